"""wgpu-native below wgpu's classes. Only this module touches wgpu's private names.

A step goes through raw calls, because wgpu's classes cost several times as much per dispatch. The three calls that are
made per dispatch go through ctypes with arguments converted beforehand, which takes half the time of cffi's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import wgpu
from wgpu.backends.wgpu_native import ffi, lib, lib_path
from wgpu.backends.wgpu_native._api import error_handler

from hightide.errors import DeviceError, HightideError

_library = ctypes.PyDLL(lib_path)  # keeps the GIL: these calls are shorter than giving it away
set_pipeline = _library.wgpuComputePassEncoderSetPipeline
set_bind_group = _library.wgpuComputePassEncoderSetBindGroup
dispatch = _library.wgpuComputePassEncoderDispatchWorkgroups
for _function in (set_pipeline, set_bind_group, dispatch):
    _function.restype = None
ONE = ctypes.c_size_t(1)  # `set_bind_group` takes one dynamic offset


def handle(wrapped: Any) -> Any:
    """The native object behind an object of wgpu's classes."""
    return wrapped._internal


def pointer(native: Any) -> ctypes.c_void_p:
    """A native object as the ctypes functions take it."""
    return ctypes.c_void_p(int(ffi.cast("uintptr_t", native)))


@cache
def offset(value: int) -> Any:
    """A dynamic offset as `set_bind_group` takes it: by address, so it is kept."""
    return (ctypes.c_uint32 * 1)(value)


def wait(device: Any) -> None:
    """Wait until a wgpu device has done all that was submitted."""
    device._poll_wait()


@contextmanager
def raising() -> Iterator[None]:
    """Turn wgpu's exceptions into DeviceError."""
    try:
        yield
    except HightideError:
        raise
    except (wgpu.GPUError, RuntimeError, ValueError) as error:
        raise DeviceError(_one_line(str(error))) from error


@contextmanager
def capturing(what: str) -> Iterator[None]:
    """Raise the errors that wgpu-native reports during raw calls; wgpu would only log them."""
    slot = _ErrorSlot(what)
    error_handler._get_proxy_stack().append(slot)
    try:
        yield
    finally:
        error_handler.release(what)
    if slot.errors:
        raise DeviceError(f"{what}: {'; '.join(slot.errors)}")


class _ErrorSlot:
    """Keeps every error that is reported; wgpu's own slot keeps the last one and logs the others."""

    type = ""
    message = property(lambda self: None, lambda self, message: self.errors.append(_one_line(message)))

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors: list[str] = []


def _one_line(message: str) -> str:
    """wgpu's report of an error and its causes, on one line."""
    lines = (line.strip() for line in message.splitlines())
    return ": ".join(line for line in lines if line and line != "Caused by:")


__all__ = [
    "ONE",
    "capturing",
    "dispatch",
    "ffi",
    "handle",
    "lib",
    "offset",
    "pointer",
    "raising",
    "set_bind_group",
    "set_pipeline",
    "wait",
]
