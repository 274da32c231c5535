"""Compute pipelines and bind groups. Each is made once and looked up by what defines it.

Pipelines are compiled in threads: wgpu-native's calls release the GIL and compile in parallel (of two threads on
llvmpipe neither waits for the other; on SwiftShader a fifth of the time). They are the same threads all along: what a
driver frees in one thread, glibc gives to no other, so that with new ones every lost device left 100 to 200 MB behind.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import wgpu

from hightide.errors import DeviceError
from hightide.gpu.device import Device, Region
from hightide.gpu.native import handle, pointer, raising
from hightide.wgsl.shader import FIRST_BINDING, PARAMS_SIZE, Shader

THREADS = min(8, os.cpu_count() or 1)
KEPT = 512  # pipelines that stay for sessions to come; one takes about 2 MB on llvmpipe

# Called with (kernels ready, kernels in all) while a session is built.
compiling: ContextVar[Callable[[int, int], None] | None] = ContextVar("compiling", default=None)


@dataclass(frozen=True, eq=False)
class Pipeline:
    shader: Shader
    layout: Any
    handle: Any
    address: ctypes.c_void_p


@dataclass(frozen=True)
class BindGroup:
    handle: Any
    address: ctypes.c_void_p


class Pipelines:
    """The pipelines of one device, shared by its sessions: those that they hold, and the last ones that were made."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.warm: WeakSet[Pipeline] = WeakSet()  # those that were dispatched
        self.before_first: Callable[[Shader], None] | None = None  # called before one is dispatched that is not warm
        self._layouts: dict[tuple[int, int, bool], tuple[Any, Any]] = {}
        self._pipelines: WeakValueDictionary[Shader, Pipeline] = WeakValueDictionary()
        self._kept: deque[Pipeline] = deque(maxlen=KEPT)
        self._making: dict[Shader, Future[Pipeline]] = {}

    def get(self, shader: Shader) -> Pipeline:
        found = self._pipelines.get(shader)
        if found is None:
            making = self._making.pop(shader, None)
            # One that failed may belong to a session that was abandoned: only a failure now is an error.
            failed = making is not None and making.exception() is not None
            found = self._task(shader)() if making is None or failed else making.result()
            self._pipelines[shader] = found
            self._kept.append(found)
        return found

    def has(self, shader: Shader) -> bool:
        return shader in self._pipelines

    def start(self, shaders: Iterable[Shader]) -> None:
        """Compile these in threads while the caller does something else; `get` waits for the one it needs."""
        missing = [s for s in dict.fromkeys(shaders) if s not in self._pipelines and s not in self._making]
        if len(missing) > 1:
            self._making |= {shader: _threads().submit(self._task(shader)) for shader in missing}

    def _task(self, shader: Shader) -> Callable[[], Pipeline]:
        """A function that compiles a pipeline, in any thread."""
        layout, pipeline_layout = self._layout(shader)
        self.device.created += 1

        def compile_it() -> Pipeline:
            try:
                with raising():
                    module = self.device.shader_module(shader.text, shader.name)
                    compiled = self.device.wgpu.create_compute_pipeline(
                        layout=pipeline_layout, compute={"module": module, "entry_point": "main"}, label=shader.name
                    )
            except DeviceError as error:
                message = f"kernel {shader.name} does not compile: {error.__cause__}\n{shader.listing()}"
                raise DeviceError(message) from None
            return Pipeline(shader, layout, compiled, pointer(handle(compiled)))

        return compile_it

    def bind(self, pipeline: Pipeline, params: Any, symints: Region | None, tensors: Sequence[Region]) -> BindGroup:
        """A buffer of parameters and these tensors for a pipeline; `symints` only where its shader reads SymInts."""
        live = {1: symints} if pipeline.shader.live else {}
        regions = {0: Region(params, 0, PARAMS_SIZE), **live, **dict(enumerate(tensors, FIRST_BINDING))}
        entries = [
            {"binding": n, "resource": {"buffer": region.buffer, "offset": region.offset, "size": region.size}}
            for n, region in regions.items()
            if region is not None
        ]
        self.device.created += 1
        with raising():
            group = self.device.wgpu.create_bind_group(layout=pipeline.layout, entries=entries)
        return BindGroup(group, pointer(handle(group)))

    def _layout(self, shader: Shader) -> tuple[Any, Any]:
        reads, writes, live = len(shader.interface.read_names), len(shader.interface.write_names), shader.live
        key = (reads, writes, live)
        if key not in self._layouts:
            kinds = {0: {"type": "uniform", "has_dynamic_offset": True}, **({1: {"type": "uniform"}} if live else {})}
            tensors = [{"type": "read-only-storage"}] * reads + [{"type": "storage"}] * writes
            entries = [
                {"binding": n, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": kind}
                for n, kind in (kinds | dict(enumerate(tensors, FIRST_BINDING))).items()
            ]
            self.device.created += 2
            with raising():
                layout = self.device.wgpu.create_bind_group_layout(entries=entries)
                self._layouts[key] = (layout, self.device.wgpu.create_pipeline_layout(bind_group_layouts=[layout]))
        return self._layouts[key]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, "pipelines")


def pipelines(device: Device) -> Pipelines:
    """The pipelines of a device, which live as long as it does."""
    if device.pipelines is None:
        device.pipelines = Pipelines(device)
    found: Pipelines = device.pipelines
    return found
