"""Compute pipelines and bind groups, each made once and found again by what defines it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Template
from typing import Any

import wgpu

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


class Pipelines:
    """The pipelines of one device, shared by its sessions."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._layouts: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._pipelines: dict[tuple[Kernel, int, int], Pipeline] = {}

    def get(self, kernel: Kernel, reads: int, writes: int) -> Pipeline:
        key = (kernel, reads, writes)
        if key not in self._pipelines:
            layout, pipeline_layout = self._layout(reads, writes)
            source = shader_source(kernel)
            self.device.created += 1
            try:
                with raising():
                    module = self.device.wgpu.create_shader_module(code=source, label=kernel.name)
                    handle = self.device.wgpu.create_compute_pipeline(
                        layout=pipeline_layout, compute={"module": module, "entry_point": "main"}, label=kernel.name
                    )
            except DeviceError as error:
                lines = "\n".join(f"{n:4} {line}" for n, line in enumerate(source.splitlines(), 1))
                raise DeviceError(f"kernel {kernel.name} does not compile: {error}\n{lines}") from None
            self._pipelines[key] = Pipeline(kernel, layout, handle)
        return self._pipelines[key]

    def bind(self, pipeline: Pipeline, params: Any, symints: Any, tensors: Sequence[Any]) -> Any:
        entries = [
            {"binding": 0, "resource": {"buffer": params, "offset": 0, "size": PARAMS_SIZE}},
            {"binding": 1, "resource": {"buffer": symints, "offset": 0, "size": symints.size}},
        ]
        entries += [
            {"binding": n, "resource": {"buffer": b, "offset": 0, "size": b.size}} for n, b in enumerate(tensors, 2)
        ]
        self.device.created += 1
        with raising():
            return self.device.wgpu.create_bind_group(layout=pipeline.layout, entries=entries)

    def _layout(self, reads: int, writes: int) -> tuple[Any, Any]:
        key = (reads, writes)
        if key not in self._layouts:
            kinds = [{"type": "uniform", "has_dynamic_offset": True}, {"type": "uniform"}]
            kinds += [{"type": "read-only-storage"}] * reads + [{"type": "storage"}] * writes
            entries = [
                {"binding": n, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": kind} for n, kind in enumerate(kinds)
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
    folder = resources.files("hightide.ops")
    body = Template(folder.joinpath(kernel.file).read_text()).substitute(dict(kernel.defines))
    return folder.joinpath("prelude.wgsl").read_text() + body
