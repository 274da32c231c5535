"""Adapters and devices: what there is to run on, and one opened device per adapter."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import wgpu
from wgpu.backends.wgpu_native import ffi, lib
from wgpu.backends.wgpu_native._api import error_handler

from hightide.errors import DeviceError
from hightide.gpu.measurements import tuned_routes
from hightide.gpu.subgroups import subgroup_size
from hightide.traits import Traits

# Real GPUs first; software adapters last. OpenGL is left out: its compute support is a subset.
_TYPE_ORDER = {"DiscreteGPU": 0, "IntegratedGPU": 1, "Unknown": 2, "CPU": 3}
_BACKENDS = ("Vulkan", "Metal", "D3D12")
# What a device is opened with, where the adapter has it.
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


@cache
def adapters() -> tuple[Adapter, ...]:
    """Every adapter that can run programs, best first."""
    try:
        found = wgpu.gpu.enumerate_adapters_sync()
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
    """The adapter with this index or a name containing this text; the best one for None."""
    found = adapters()
    if not found:
        raise DeviceError("no WebGPU adapter was found; install a Vulkan driver, or use device='cpu'")
    if selector is None:
        return found[0]
    if isinstance(selector, int) or selector.isdigit():
        if int(selector) < len(found):
            return found[int(selector)]
    else:
        for adapter in found:
            if selector.lower() in adapter.name.lower():
                return adapter
    names = ", ".join(f"{a.index}: {a.name}" for a in found)
    raise DeviceError(f"there is no device {selector!r}; there are 'cpu' and {names}")


class Device:
    """An opened adapter: the wgpu device, its limits, and its objects counted as they are made."""

    def __init__(self, adapter: Adapter) -> None:
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
        features = [name for name in FEATURES if name in adapter.features]
        try:
            self.wgpu: Any = adapter.handle.request_device_sync(required_limits=limits, required_features=features)
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
        self.tuned = tuned_routes(adapter)  # routes measured on this adapter, by the choice's name
        self.device_id = self.wgpu._internal
        self.queue_id = self.wgpu.queue._internal
        self.created = 0  # GPU objects made so far: a steady step must not raise it
        self._probe = self.buffer(16, label="probe")

    def buffer(self, size: int, usage: str = "STORAGE|COPY_DST|COPY_SRC", label: str = "") -> Any:
        """A zeroed buffer of at least `size` bytes, rounded to 16 so that kernels may read whole vec4s."""
        size = max(16, -(-size // 16) * 16)
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
        """Report a lost device as an error, by a write of nothing; call it inside `capturing`.

        wgpu-native ends the process when a lost device is submitted to, so every submit asks first.
        """
        lib.wgpuQueueWriteBuffer(self.queue_id, self._probe._internal, 0, ffi.NULL, 0)

    def write(self, buffer: Any, offset: int, data: Any) -> None:
        """Queue `data` (a C-contiguous buffer of a multiple of 4 bytes) for `buffer`."""
        with raising():
            self.wgpu.queue.write_buffer(buffer, offset, data)

    def copy(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Copy whole buffers, each (source, target) of one size."""
        with raising():
            encoder = self.wgpu.create_command_encoder()
            for source, target in pairs:
                encoder.copy_buffer_to_buffer(source, 0, target, 0, source.size)
            self.wgpu.queue.submit([encoder.finish()])

    def read(self, buffer: Any) -> memoryview:
        """A buffer's bytes, after all that was submitted."""
        with raising():
            return memoryview(self.wgpu.queue.read_buffer(buffer))

    def flush(self) -> None:
        """Hand queued writes to the GPU and wait, so that their staging memory is freed."""
        with capturing("flush"):
            self.check_alive()
        with raising():
            self.wgpu.queue.submit([])
            self.wgpu._poll_wait()


@cache
def open_device(adapter: Adapter) -> Device:
    return Device(adapter)


@contextmanager
def raising() -> Iterator[None]:
    """Turn wgpu's exceptions into DeviceError."""
    try:
        yield
    except (wgpu.GPUError, RuntimeError, ValueError) as error:
        raise DeviceError(_sentence(str(error))) from error


@contextmanager
def capturing(what: str) -> Iterator[None]:
    """Raise what wgpu-native reports during raw calls, which otherwise is only logged."""
    slot = _ErrorSlot(what)
    error_handler._get_proxy_stack().append(slot)
    try:
        yield
    finally:
        error_handler.release(what)
    if slot.errors:
        raise DeviceError(f"{what}: {'; '.join(slot.errors)}")


class _ErrorSlot:
    """Keeps every error that is reported; wgpu's own slot keeps the last and logs the others."""

    type = ""
    message = property(lambda self: None, lambda self, message: self.errors.append(_sentence(message)))

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors: list[str] = []


def _sentence(message: str) -> str:
    """wgpu's report of an error and its causes, on one line."""
    lines = (line.strip() for line in message.splitlines())
    return ": ".join(line for line in lines if line and line != "Caused by:")


def debugging() -> bool:
    """HIGHTIDE_DEBUG=1 runs one op at a time through wgpu's checked classes, watched by `debugging.Checker`."""
    return os.environ.get("HIGHTIDE_DEBUG", "") not in ("", "0")
