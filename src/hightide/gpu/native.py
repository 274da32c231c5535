"""wgpu-native below wgpu's classes. Only this module touches wgpu's private names.

A step goes through raw calls, because wgpu's classes cost several times as much per dispatch. The three calls that are
made per dispatch go through ctypes with arguments converted beforehand, which takes half the time of cffi's.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, TypeVar

import cffi  # type: ignore[import-untyped]
import wgpu
from wgpu.backends.wgpu_native import _api, ffi, lib, lib_path

from hightide.errors import DeviceError, HightideError, TooLargeError

_library = ctypes.PyDLL(lib_path)  # keeps the GIL: these calls are shorter than giving it away
set_pipeline = _library.wgpuComputePassEncoderSetPipeline
set_bind_group = _library.wgpuComputePassEncoderSetBindGroup
dispatch = _library.wgpuComputePassEncoderDispatchWorkgroups
for _function in (set_pipeline, set_bind_group, dispatch):
    _function.restype = None
Taken = TypeVar("Taken")
ONE = ctypes.c_size_t(1)  # `set_bind_group` takes one dynamic offset
_BOUNDS_CHECKS = 1  # WGPUShaderRuntimeChecks_BoundsChecks


def _forked() -> None:
    """In a child of `fork` nothing is released: the driver's threads are not in it, and it would wait for them."""
    _api.libf = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _look_up_types() -> None:
    """Let cffi look up the types that WebGPU's header names, of which opening a device takes thirty.

    It would parse each name together with all typedefs of the header: 28 ms, most of a second in all.
    """
    try:
        parser: Any = ffi._parser
        parse, declared = parser.parse_type, parser._declarations
    except AttributeError:  # another cffi
        return

    def parse_type(text: str) -> Any:
        found = re.fullmatch(r"(\w+) ?(\*|\[\])? ?", text)
        known, _ = declared.get(f"typedef {found[1]}", (None, 0)) if found else (None, 0)
        if found is None or not isinstance(known, cffi.model.StructType | cffi.model.PointerType):
            return parse(text)
        if found[2] is None:
            return known
        return cffi.model.PointerType(known) if found[2] == "*" else cffi.model.ArrayType(known, None)

    parser.parse_type = parse_type


_look_up_types()


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


def shader_module(device: Any, text: str, label: str) -> Any:
    """A WGSL module whose indices are checked, but whose loops are not counted.

    wgpu's own function adds a counter to every loop, lest a compiler take one without an end for undefined behaviour.
    Ours all end. On llvmpipe the counters cost a matrix product 15 % of its time. (Compilers for GPUs unroll more
    without them, and take more registers.)
    """
    code, name = (ffi.new("char[]", string.encode()) for string in (text, label))
    source = ffi.new("WGPUShaderSourceWGSL *")
    source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
    source.code.data, source.code.length = code, lib.WGPU_STRLEN
    descriptor = ffi.new("WGPUShaderModuleDescriptor *")
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
    descriptor.label.data, descriptor.label.length = name, lib.WGPU_STRLEN
    made = _api.libf.wgpuDeviceCreateShaderModuleTrusted(handle(device), descriptor, _BOUNDS_CHECKS)
    return _api.GPUShaderModule(label, made, device)


class ReadMapping:
    """Maps buffers for reading, one at a time.

    A signal's handler may raise between any two bytecodes of the main thread, and what it raises inside a callback is
    swallowed. So the callback is no Python function but a list's `append`; it takes the status, its first argument,
    and leaves the others where they are. A buffer that was left mapped is unmapped before the next use.
    """

    def __init__(self, device_id: Any) -> None:
        self._device_id = device_id
        self._statuses: list[int] = []
        self._callback = ffi.callback("void(uint32_t)", self._statuses.append)  # the library keeps only a pointer
        self._info = ffi.new("WGPUBufferMapCallbackInfo *")
        self._info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        self._info.callback = ffi.cast("WGPUBufferMapCallback", self._callback)
        self._mapped: Any = None  # a buffer that is mapped, or may be

    def read(self, buffer: Any, size: int, index: Any, take: Callable[[Any], Taken]) -> Taken:
        """What `take` makes of a native buffer's first bytes, once the submission `index` (NULL: all) is done."""
        self.unmap()
        self._statuses.clear()
        self._mapped = buffer
        with capturing("readback"):
            lib.wgpuBufferMapAsync(buffer, lib.WGPUMapMode_Read, 0, size, self._info[0])
            while not self._statuses:
                lib.wgpuDevicePoll(self._device_id, True, index)
        if self._statuses[0] != lib.WGPUMapAsyncStatus_Success:
            raise DeviceError("the outputs could not be read back")
        with capturing("readback"):
            address = lib.wgpuBufferGetConstMappedRange(buffer, 0, size)
            taken = take(ffi.buffer(address, size))
            lib.wgpuBufferUnmap(buffer)
        self._mapped = None
        return taken

    def unmap(self) -> None:
        """Unmap what an interrupted read left mapped: a submit that names it would end the process."""
        if self._mapped is not None:
            with suppress(DeviceError), capturing("unmap"):  # it may not be mapped
                lib.wgpuBufferUnmap(self._mapped)
            self._mapped = None


def in_thread(function: Callable[[], Taken]) -> Taken:
    """Call a function of wgpu that waits for a callback of its own.

    Signals are handled in the main thread. Were this that thread, what a handler raises could be swallowed by the
    callback.
    """
    done: Future[Taken] = Future()

    def call() -> None:
        try:
            done.set_result(function())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return done.result()


@contextmanager
def raising() -> Iterator[None]:
    """Turn wgpu's exceptions into DeviceError."""
    try:
        yield
    except HightideError:
        raise
    except (wgpu.GPUError, RuntimeError, ValueError) as error:
        full = isinstance(error, wgpu.GPUOutOfMemoryError) or "not enough memory" in str(error).lower()
        raise (TooLargeError if full else DeviceError)(_one_line(str(error))) from error


class capturing:
    """Raise the errors that wgpu-native reports during raw calls; wgpu would only log them.

    A class, because a generator takes three times as long, and a step has a dozen of these.
    """

    __slots__ = ("_slot", "_what")

    def __init__(self, what: str) -> None:
        self._what, self._slot = what, _ErrorSlot()

    def __enter__(self) -> None:
        _api.error_handler._get_proxy_stack().append(self._slot)

    def __exit__(self, error: object, *_: object) -> None:
        slot, slots = self._slot, _api.error_handler._get_proxy_stack()
        while slots and slots.pop() is not slot:  # a signal may have left some
            pass
        if slot.errors and error is None:
            raise DeviceError(f"{self._what}: {'; '.join(slot.errors)}")


class _ErrorSlot:
    """Keeps every error that is reported; wgpu's own slot keeps the last one and logs the others."""

    name = type = ""
    message = property(lambda self: None, lambda self, message: self.errors.append(_one_line(message)))

    def __init__(self) -> None:
        self.errors: list[str] = []


def _one_line(message: str) -> str:
    """wgpu's report of an error and its causes, on one line."""
    lines = (line.strip() for line in message.splitlines())
    return ": ".join(line for line in lines if line and line != "Caused by:")


__all__ = [
    "ONE",
    "ReadMapping",
    "capturing",
    "dispatch",
    "ffi",
    "handle",
    "in_thread",
    "lib",
    "offset",
    "pointer",
    "raising",
    "set_bind_group",
    "set_pipeline",
    "shader_module",
    "wait",
]
