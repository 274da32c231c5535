"""WebGPU adapters, and one opened device for each."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import wgpu

from hightide.errors import DeviceError
from hightide.gpu.native import ReadMapping, capturing, ffi, handle, in_thread, lib, raising, shader_module, wait
from hightide.gpu.subgroups import subgroup_size
from hightide.gpu.wide_loads import INT64, has_wide_loads, wide_loads
from hightide.traits import Traits

# Real GPUs first; software adapters last. OpenGL is left out: its compute support is a subset.
_TYPE_ORDER = {"DiscreteGPU": 0, "IntegratedGPU": 1, "Unknown": 2, "CPU": 3}
_BACKENDS = ("Vulkan", "Metal", "D3D12")
# The features that a device is opened with, where the adapter has them.
FEATURES = ("shader-f16", "subgroup", "timestamp-query", "timestamp-query-inside-passes")


@dataclass(frozen=True)
class Adapter:
    """One WebGPU adapter."""

    index: int
    name: str
    kind: str  # DiscreteGPU, IntegratedGPU, CPU
    backend: str  # Vulkan, Metal, D3D12
    driver: str
    limits: dict[str, int] = field(repr=False, compare=False)
    features: tuple[str, ...] = field(repr=False)
    handle: Any = field(repr=False, compare=False)
    process: int = field(default_factory=os.getpid, repr=False, compare=False)  # that found it

    def check_process(self) -> None:
        """Refuse a child that was forked: the driver's threads and locks are not in it, and every call would hang."""
        if self.process != os.getpid():
            raise DeviceError(
                "this process was forked from one that uses the GPU, which only that one can go on using; start it "
                "anew instead (multiprocessing's 'spawn' or 'forkserver'), or use device='cpu'"
            )


@cache
def adapters() -> tuple[Adapter, ...]:
    """Every adapter that can run programs, best first."""
    try:
        found = in_thread(wgpu.gpu.enumerate_adapters_sync)
    except Exception as error:  # wgpu raises plain RuntimeError when there is no driver at all
        raise DeviceError(f"WebGPU could not list adapters: {error}") from error
    usable = [a for a in found if a.info["backend_type"] in _BACKENDS]
    usable.sort(key=lambda a: (_TYPE_ORDER.get(a.info["adapter_type"], 2), _BACKENDS.index(a.info["backend_type"])))
    return tuple(
        Adapter(
            index=index,
            name=a.info["device"],
            kind=a.info["adapter_type"],
            backend=a.info["backend_type"],
            driver=a.info["description"],
            limits=dict(a.limits),
            features=tuple(sorted(a.features)),
            handle=a,
        )
        for index, a in enumerate(usable)
    )


def find_adapter(selector: str | int | None) -> Adapter:
    """The adapter with this index, or whose name contains this text; `gpu:1` is the second one that is no software;
    the best one for None."""
    found = adapters()
    if not found:
        wanted = "" if selector is None else f"there is no device {selector!r}: "
        raise DeviceError(f"{wanted}no WebGPU adapter was found; install a Vulkan driver, or use device='cpu'")
    if selector is None:
        return found[0]
    if isinstance(selector, int) or selector.isdigit():
        if int(selector) < len(found):
            return found[int(selector)]
    elif (number := re.fullmatch(r"gpu:(\d{1,9})", selector.lower())) is not None:
        hardware = [adapter for adapter in found if adapter.kind != "CPU"]
        if int(number[1]) < len(hardware):
            return hardware[int(number[1])]
    else:
        for adapter in found:
            if selector.lower() in adapter.name.lower():
                return adapter
    names = ", ".join(f"{a.index}: {a.name}" for a in found)
    raise DeviceError(f"there is no device {selector!r}; there are 'cpu' and {names}")


def buffer_size(size: int) -> int:
    """Bytes of the buffer that something of this size lies in: whole vec4s, and at least one."""
    return max(16, -(-size // 16) * 16)


class Region(NamedTuple):
    """A part of a buffer, in bytes."""

    buffer: Any
    offset: int
    size: int


def whole(buffer: Any) -> Region:
    return Region(buffer, 0, buffer.size)


class Device:
    """An opened adapter: the wgpu device, its limits, and a count of the objects that were made on it."""

    def __init__(self, adapter: Adapter) -> None:
        adapter.check_process()
        self.adapter = adapter
        wanted = (
            "max-storage-buffer-binding-size",
            "max-buffer-size",
            "max-storage-buffers-per-shader-stage",
            "max-compute-workgroup-storage-size",
            "max-compute-invocations-per-workgroup",
            "max-compute-workgroup-size-x",
        )
        limits = {name: adapter.limits[name] for name in wanted}
        self.wide_loads = has_wide_loads(adapter.name, adapter.features)
        features = [name for name in FEATURES if name in adapter.features] + [INT64] * self.wide_loads
        request = adapter.handle.request_device_sync
        try:
            self.wgpu: Any = in_thread(lambda: request(required_limits=limits, required_features=features))
        except Exception as error:
            raise DeviceError(f"{adapter.name} could not be opened: {error}") from error
        self.max_binding: int = min(limits["max-storage-buffer-binding-size"], limits["max-buffer-size"])
        self.traits = Traits(
            software=adapter.kind == "CPU",
            f16="shader-f16" in features,
            subgroups="subgroup" in features,
            subgroup_size=subgroup_size(self.wgpu) if "subgroup" in features else 0,
            invocations=limits["max-compute-invocations-per-workgroup"],
            workgroup_bytes=limits["max-compute-workgroup-storage-size"],
            storage_buffers=limits["max-storage-buffers-per-shader-stage"],
        )
        self.device_id = handle(self.wgpu)
        self.queue_id = handle(self.wgpu.queue)
        self.created = 0  # GPU objects made so far: a steady step must not raise it
        self.pipelines: Any = None  # those made on it; see `pipelines.py`
        self._probe = self.buffer(16, label="probe")
        self._mapping = ReadMapping(self.device_id)
        self._reading = threading.Lock()

    def buffer(self, size: int, usage: str = "STORAGE|COPY_DST|COPY_SRC", label: str = "") -> Any:
        """A zeroed buffer of at least `size` bytes, rounded to 16 so that kernels may read whole vec4s."""
        size = buffer_size(size)
        self.check_size(size, label)
        self.created += 1
        with raising():
            return self.wgpu.create_buffer(size=size, usage=usage, label=label)

    def check_size(self, size: int, label: str) -> None:
        if size > self.max_binding:
            raise DeviceError(
                f"{label or 'a buffer'} needs {size} bytes; {self.adapter.name} binds at most {self.max_binding}"
            )

    def check_alive(self) -> None:
        """Report a lost device as an error, with an empty write; call it inside `capturing`.

        wgpu-native aborts the process on a submit to a lost device, so this comes before every submit.
        """
        lib.wgpuQueueWriteBuffer(self.queue_id, handle(self._probe), 0, ffi.NULL, 0)

    @property
    def lost(self) -> bool:
        """Whether the device was lost; what was on it is gone then."""
        try:
            with capturing("device"):
                self.check_alive()
        except DeviceError:
            return True
        return False

    def shader_module(self, text: str, label: str) -> Any:
        """A kernel's text, checked. On a software adapter its loops are not counted; see `native.shader_module`."""
        if self.wide_loads:
            text = wide_loads(text)
        if self.traits.software:
            return shader_module(self.wgpu, text, label)
        return self.wgpu.create_shader_module(code=text, label=label)

    def write(self, buffer: Any, offset: int, data: Any) -> None:
        """Queue `data` (a C-contiguous buffer of a multiple of 4 bytes) for `buffer`."""
        with raising():
            self.wgpu.queue.write_buffer(buffer, offset, data)

    def copy(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Fill each target with the beginning of its source."""
        self.copy_parts((source, 0, target, 0, target.size) for source, target in pairs)

    def copy_parts(self, parts: Iterable[tuple[Any, int, Any, int, int]]) -> None:
        """Copy (source, offset, target, offset, bytes), one after the other. No buffer can be copied to itself."""
        with capturing("copy"):
            self.check_alive()
        with raising():
            encoder = self.wgpu.create_command_encoder()
            for part in parts:
                encoder.copy_buffer_to_buffer(*part)
            self.wgpu.queue.submit([encoder.finish()])

    def clear(self, *buffers: Any) -> None:
        """Set buffers to zero on the GPU, so that their memory really exists."""
        with raising():
            encoder = self.wgpu.create_command_encoder()
            for buffer in buffers:
                encoder.clear_buffer(buffer, 0, buffer.size)
            self.wgpu.queue.submit([encoder.finish()])

    def read(self, buffer: Any) -> memoryview:
        """A buffer's bytes, once everything submitted before is done."""
        return self.read_parts([(buffer, 0, buffer.size)])[0]

    def read_parts(self, parts: Sequence[tuple[Any, int, int]]) -> list[memoryview]:
        """The same of parts: (buffer, offset, bytes), in whole words."""
        starts = [0, *accumulate(nbytes for _, _, nbytes in parts)]
        if not starts[-1]:
            return [memoryview(b"") for _ in parts]
        with raising():
            copy = self.wgpu.create_buffer(size=starts[-1], usage="COPY_DST|MAP_READ")
            self.copy_parts((b, at, copy, start, n) for (b, at, n), start in zip(parts, starts, strict=False) if n)
        with self._reading:
            data = memoryview(self._mapping.read(handle(copy), copy.size, ffi.NULL, bytes))
        copy.destroy()
        return [data[start:end] for start, end in pairwise(starts)]

    def flush(self) -> None:
        """Send queued writes to the GPU and wait, so that their staging memory is freed."""
        with capturing("flush"):
            self.check_alive()
        with raising():
            self.wgpu.queue.submit([])
            wait(self.wgpu)

    def wait(self) -> None:
        """Wait until everything that was submitted is done."""
        with raising():
            wait(self.wgpu)


_opening = threading.Lock()
_opened: dict[Adapter, Device] = {}


def open_device(adapter: Adapter) -> Device:
    """The adapter's device, opened once; one that was lost is opened again."""
    adapter.check_process()
    with _opening:
        device = _opened.get(adapter)
        if device is not None and device.lost:
            adapter = _found_again(adapter)
            device = None
        if device is None:
            device = _opened[adapter] = Device(adapter)
        return device


def _found_again(adapter: Adapter) -> Adapter:
    """The same adapter from a new list: a driver that was restarted knows nothing of the old one."""
    adapters.cache_clear()
    return next((found for found in adapters() if found == adapter), adapter)
