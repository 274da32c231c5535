"""Compute pipelines and bind groups, each made once and found again by what defines it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Template
from typing import Any

import wgpu
from wgpu.backends.wgpu_native import ffi

from hightide.errors import DeviceError
from hightide.gpu.device import Device, raising
from hightide.ops.contract import Kernel

PARAMS_SIZE = 256  # bytes of one dispatch's parameters: WebGPU's largest offset alignment
SYMINT_SLOTS = 4096  # as declared in prelude.wgsl


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
        self._layouts: dict[tuple[int, int, bool], tuple[Any, Any]] = {}
        self._pipelines: dict[tuple[Kernel, int, int], Pipeline] = {}

    def get(self, kernel: Kernel, reads: int, writes: int) -> Pipeline:
        key = (kernel, reads, writes)
        if key not in self._pipelines:
            source = shader_source(kernel)
            live = "live_int(" in source
            layout, pipeline_layout = self._layout(reads, writes, live)
            self.device.created += 1
            try:
                with raising():
                    module = self.device.wgpu.create_shader_module(code=source, label=kernel.name)
                    handle = self.device.wgpu.create_compute_pipeline(
                        layout=pipeline_layout, compute={"module": module, "entry_point": "main"}, label=kernel.name
                    )
            except DeviceError as error:
                lines = "\n".join(f"{n:4} {line}" for n, line in enumerate(source.splitlines(), 1))
                raise DeviceError(f"kernel {kernel.name} does not compile: {error.__cause__}\n{lines}") from None
            self._pipelines[key] = Pipeline(kernel, layout, handle, pointer(handle._internal), live)
        return self._pipelines[key]

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


def shader_source(kernel: Kernel) -> str:
    """The kernel's WGSL behind the helpers it uses; a SymInt buffer that is not read costs time to bind."""
    folder = resources.files("hightide.ops")
    body = Template(folder.joinpath(kernel.file).read_text()).substitute(dict(kernel.defines))
    helpers = ["groups.wgsl", "symints.wgsl"] if "live_int(" in body else ["groups.wgsl"]
    return "".join(folder.joinpath(name).read_text() for name in helpers) + body
