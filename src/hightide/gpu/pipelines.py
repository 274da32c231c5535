"""Compute pipelines and bind groups, each made once and found again by what defines it.

Pipelines are compiled in threads: wgpu-native's calls let go of the GIL, and compile side by side (of two threads on
llvmpipe neither waits for the other; on SwiftShader a fifth of the time).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Template
from typing import Any, TypeAlias

import wgpu
from wgpu.backends.wgpu_native import ffi

from hightide.errors import DeviceError
from hightide.gpu.device import Device, raising
from hightide.gpu.halves import as_halves
from hightide.gpu.unroll import unroll
from hightide.ops.contract import Kernel

PARAMS_SIZE = 256  # bytes of one dispatch's parameters: WebGPU's largest offset alignment
SYMINT_SLOTS = 4096  # as declared in prelude.wgsl
THREADS = min(8, os.cpu_count() or 1)

# (kernel, how many tensors it reads, how many it writes, which of them are held as halves)
Key: TypeAlias = tuple[Kernel, int, int, tuple[int, ...]]
# Told (kernels ready, kernels in all) while a session is built.
compiling: ContextVar[Callable[[int, int], None] | None] = ContextVar("compiling", default=None)


@dataclass(frozen=True)
class Pipeline:
    kernel: Kernel
    layout: Any
    handle: Any
    address: ctypes.c_void_p
    live: bool  # it reads SymInts


@dataclass(frozen=True)
class BindGroup:
    handle: Any
    address: ctypes.c_void_p


def pointer(native: Any) -> ctypes.c_void_p:
    """A native object as ctypes passes it."""
    return ctypes.c_void_p(int(ffi.cast("uintptr_t", native)))


class Pipelines:
    """The pipelines of one device, shared by its sessions."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.warm: set[int] = set()  # addresses of those that were dispatched
        self._layouts: dict[tuple[int, int, bool], tuple[Any, Any]] = {}
        self._pipelines: dict[Key, Pipeline] = {}
        self._making: dict[Key, Future[Pipeline]] = {}

    def get(self, kernel: Kernel, reads: int, writes: int, halves: tuple[int, ...] = ()) -> Pipeline:
        """`halves`: which of its tensors, reads first, are held as halves."""
        key = (kernel, reads, writes, halves)
        if key not in self._pipelines:
            making = self._making.pop(key, None)
            # One that failed may belong to a session that was given up: only what fails now is an error.
            failed = making is not None and making.exception() is not None
            self._pipelines[key] = self._task(key)() if making is None or failed else making.result()
        return self._pipelines[key]

    def start(self, keys: Iterable[Key]) -> None:
        """Have these compiled in threads, while the caller does something else; `get` waits for the one it needs."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._pipelines and key not in self._making]
        if len(missing) > 1:
            pool = ThreadPoolExecutor(THREADS, "pipelines")
            self._making |= {key: pool.submit(self._task(key)) for key in missing}
            pool.shutdown(wait=False)  # no more of them: the threads end when these are done

    def _task(self, key: Key) -> Callable[[], Pipeline]:
        """What compiles a pipeline, in any thread."""
        kernel, reads, writes, halves = key
        source = shader_source(kernel, halves)
        live = "live_int(" in source
        layout, pipeline_layout = self._layout(reads, writes, live)
        self.device.created += 1

        def compile_it() -> Pipeline:
            try:
                with raising():
                    module = self.device.wgpu.create_shader_module(code=source, label=kernel.name)
                    handle = self.device.wgpu.create_compute_pipeline(
                        layout=pipeline_layout, compute={"module": module, "entry_point": "main"}, label=kernel.name
                    )
            except DeviceError as error:
                lines = "\n".join(f"{n:4} {line}" for n, line in enumerate(source.splitlines(), 1))
                raise DeviceError(f"kernel {kernel.name} does not compile: {error.__cause__}\n{lines}") from None
            return Pipeline(kernel, layout, handle, pointer(handle._internal), live)

        return compile_it

    def bind(self, pipeline: Pipeline, params: Any, symints: Any, tensors: Sequence[Any]) -> BindGroup:
        buffers = {0: params, **({1: symints} if pipeline.live else {}), **dict(enumerate(tensors, 2))}
        entries = [
            {"binding": n, "resource": {"buffer": b, "offset": 0, "size": b.size if n else PARAMS_SIZE}}
            for n, b in buffers.items()
        ]
        self.device.created += 1
        with raising():
            handle = self.device.wgpu.create_bind_group(layout=pipeline.layout, entries=entries)
        return BindGroup(handle, pointer(handle._internal))

    def _layout(self, reads: int, writes: int, live: bool) -> tuple[Any, Any]:
        key = (reads, writes, live)
        if key not in self._layouts:
            kinds = {0: {"type": "uniform", "has_dynamic_offset": True}, **({1: {"type": "uniform"}} if live else {})}
            tensors = [{"type": "read-only-storage"}] * reads + [{"type": "storage"}] * writes
            entries = [
                {"binding": n, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": kind}
                for n, kind in (kinds | dict(enumerate(tensors, 2))).items()
            ]
            self.device.created += 2
            with raising():
                layout = self.device.wgpu.create_bind_group_layout(entries=entries)
                self._layouts[key] = (layout, self.device.wgpu.create_pipeline_layout(bind_group_layouts=[layout]))
        return self._layouts[key]


@cache
def pipelines(device: Device) -> Pipelines:
    return Pipelines(device)


def shader_source(kernel: Kernel, halves: Sequence[int] = ()) -> str:
    """The kernel's WGSL behind the helpers it uses; a SymInt buffer that is not read costs time to bind."""
    folder = resources.files("hightide.ops")
    body = Template(folder.joinpath(kernel.file).read_text()).substitute(dict(kernel.defines))
    helpers = ["groups.wgsl", "symints.wgsl"] if "live_int(" in body else ["groups.wgsl"]
    source = "".join(folder.joinpath(name).read_text() for name in helpers) + unroll(body)
    return as_halves(source, [2 + n for n in halves])
