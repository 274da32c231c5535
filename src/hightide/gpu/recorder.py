"""The hot path: replay a recorded list of dispatches, submit it, read outputs back.

A step goes through raw wgpu-native calls: wgpu's classes cost several times as much per dispatch.
The three calls made per dispatch go through ctypes with arguments converted beforehand, which takes
half the time of cffi's. A step that repeats the one before finds its command buffer ready: it was
encoded while the GPU worked on that one. What the native library reports meanwhile is captured and
raised. HIGHTIDE_DEBUG=1 takes wgpu's checked classes instead, one op at a time, with a `Watch` between them.
"""

from __future__ import annotations

import copy
import ctypes
import sys
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import numpy as np
from wgpu.backends.wgpu_native import ffi, lib
from wgpu.backends.wgpu_native._ffi import lib_path

from hightide.errors import DeviceError
from hightide.gpu.device import Device, capturing, debugging, raising
from hightide.gpu.params import Params
from hightide.gpu.pipelines import BindGroup, Pipeline, pointer
from hightide.wgsl.grid import fold

_native = ctypes.PyDLL(lib_path)  # keeps the GIL: these calls are shorter than giving it away
_set_pipeline = _native.wgpuComputePassEncoderSetPipeline
_set_group = _native.wgpuComputePassEncoderSetBindGroup
_dispatch = _native.wgpuComputePassEncoderDispatchWorkgroups
_ONE = ctypes.c_size_t(1)
for _function in (_set_pipeline, _set_group, _dispatch):
    _function.restype = None


@dataclass(slots=True)
class Command:
    """One dispatch, ready to record: WebGPU objects, the place of its parameters, its workgroups."""

    pipeline: Pipeline
    group: BindGroup
    params_offset: int
    groups: Hashable  # a number, or a formula that the owner of the recording evaluates before each run
    call: object  # what it belongs to: dispatches of one call are neighbours

    @property
    def label(self) -> str:
        return f"{self.call} {self.pipeline.shader.name}"


class Watch(Protocol):
    """Looks on while a step runs one op at a time."""

    def before(self, call: Any) -> None: ...

    def after(self, call: Any) -> None: ...

    def failed(self) -> None:
        """An op could not run, or `after` refused what it did."""


@dataclass(frozen=True)
class Copy:
    """`nbytes` of a tensor's buffer to a place in the readback buffer, or in `target`."""

    source: Any
    nbytes: int
    offset: int
    source_offset: int = 0
    target: Any = None


@dataclass
class Recording:
    """A plan's commands and output copies, with the native handles looked up once."""

    commands: list[Command]
    copies: list[Copy]
    native: list[list[Any]] = field(init=False)  # [pipeline, group, offset, x, y], as the calls take them
    live_grids: dict[Hashable, list[list[Any]]] = field(init=False)  # formula -> the entries of `native` it sizes

    def __post_init__(self) -> None:
        self.native, self.live_grids = [], {}
        for command in self.commands:
            x, y = fold(command.groups) if isinstance(command.groups, int) else (0, 1)
            entry = [command.pipeline.address, command.group.address, _offset(command.params_offset), x, y]
            self.native.append(entry)
            if not isinstance(command.groups, int):
                self.live_grids.setdefault(command.groups, []).append(entry)

    def ending_with(self, copies: list[Copy]) -> Recording:
        """The same commands with other copies."""
        other = copy.copy(self)
        other.copies = copies
        return other

    def size_grids(self, evaluate: Callable[[Any], int]) -> None:
        """Size the grids that follow a formula; layers share their formulas."""
        for formula, entries in self.live_grids.items():
            x, y = fold(max(0, evaluate(formula)))
            for entry in entries:
                entry[3], entry[4] = x, y

    def grids(self) -> list[tuple[int, int]]:
        """The grids that follow a formula, as they are sized now."""
        return [(entries[0][3], entries[0][4]) for entries in self.live_grids.values()]


@dataclass(frozen=True)
class Submission:
    """A step under way: where its outputs go, and the number to wait for (None: it was waited for)."""

    readback: Any
    index: int | None


class Recorder:
    """Runs recordings on one device, with two readback buffers in turns: one step may run while another is read."""

    def __init__(self, device: Device, readback_bytes: int, params: Params) -> None:
        self.device = device
        self.params = params
        self.readbacks = [device.buffer(readback_bytes, "COPY_DST|MAP_READ", "readback") for _ in range(2)]
        self._turn = 0  # which of them the next step copies to
        self._index = ffi.new("WGPUSubmissionIndex *")
        self._encoder_descriptor = ffi.new("WGPUCommandEncoderDescriptor *")
        self._pass_descriptor = ffi.new("WGPUComputePassDescriptor *")
        self._finish_descriptor = ffi.new("WGPUCommandBufferDescriptor *")
        self._command_buffer = ffi.new("WGPUCommandBuffer[1]")
        self._last: Recording | None = None  # what ran last
        self._ahead: tuple[Recording, list[tuple[int, int]], Any] | None = None  # (recording, live grids, commands)
        statuses: list[int] = []
        self._map_status = statuses

        @ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)")  # type: ignore[untyped-decorator]
        def mapped(status: int, _message: Any, _userdata1: Any, _userdata2: Any) -> None:
            statuses.append(status)  # without `self`, which would keep the recorder alive

        self._map_info = ffi.new("WGPUBufferMapCallbackInfo *")
        self._map_info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        self._map_info.callback = mapped
        self._mapped = mapped  # the library keeps only a pointer

    def write(self, buffer: Any, offset: int, data: np.ndarray) -> None:
        with capturing("write"):
            lib.wgpuQueueWriteBuffer(
                self.device.queue_id, buffer._internal, offset, ffi.cast("void *", data.ctypes.data), data.nbytes
            )

    def submit(self, recording: Recording) -> Submission:
        """Run a recording: every command in one compute pass, then the output copies, in one submit."""
        return self._submitted(self._submit(self._take_ahead(recording) or self._encode(recording)))

    def submit_watched(self, recording: Recording, watch: Watch) -> Submission:
        """The same, one op at a time, through wgpu's checked classes."""
        self.forget()
        try:
            self._submit_checked(recording, watch)
        except DeviceError:
            watch.failed()
            raise
        return self._submitted(None)

    def _submitted(self, index: int | None) -> Submission:
        submission = Submission(self.readbacks[self._turn], index)
        self._turn = 1 - self._turn
        return submission

    def encode_ahead(self, recording: Recording, evaluate: Callable[[Any], int]) -> None:
        """While the GPU works: encode the next step, with its grids as `evaluate` foresees them, if the last two were alike."""
        if recording is self._last and not debugging():
            recording.size_grids(evaluate)
            self._ahead = recording, recording.grids(), self._encode(recording)
        self._last = recording

    def forget(self) -> None:
        """Drop what was encoded ahead: its parameters are about to be overwritten."""
        ahead, self._last, self._ahead = self._ahead, None, None
        if ahead is not None:
            self._discard(ahead[2])

    def __del__(self) -> None:
        ahead = getattr(self, "_ahead", None)
        if ahead is not None and not sys.is_finalizing():
            with suppress(DeviceError):  # nobody is left to see what it computes; the parameters may be gone already
                self._submit(ahead[2])

    def _take_ahead(self, recording: Recording) -> Any:
        if self._ahead is None:
            return None
        known, grids, commands = self._ahead
        self._ahead = None
        if known is recording and grids == recording.grids():
            return commands
        self._discard(commands)
        return None

    def _submit(self, commands: Any) -> int:
        try:
            with capturing("submit"):
                self.device.check_alive()
            with capturing("submit"):
                self._command_buffer[0] = commands
                return int(lib.wgpuQueueSubmitForIndex(self.device.queue_id, 1, self._command_buffer))
        finally:
            lib.wgpuCommandBufferRelease(commands)

    def _discard(self, commands: Any) -> None:
        """Get rid of commands that are not wanted, by running them over nothing.

        wgpu-native 29 never frees a command buffer that was not submitted, nor the buffers it names.
        """
        with self.params.blank():
            self._submit(commands)

    def _encode(self, recording: Recording) -> Any:
        """Commands that are known to be valid: submitting others would end the process."""
        commands = None
        try:
            with capturing("encoding the step"):
                commands = self._encode_unchecked(recording)
        except DeviceError:
            if commands is not None:
                lib.wgpuCommandBufferRelease(commands)
            raise
        return commands

    def _encode_unchecked(self, recording: Recording) -> Any:
        set_pipeline, set_group, dispatch, one = _set_pipeline, _set_group, _dispatch, _ONE
        encoder = lib.wgpuDeviceCreateCommandEncoder(self.device.device_id, self._encoder_descriptor)
        if recording.native:
            compute = lib.wgpuCommandEncoderBeginComputePass(encoder, self._pass_descriptor)
            address = pointer(compute)
            current = None
            for pipeline, group, offset, x, y in recording.native:
                if pipeline is not current:
                    set_pipeline(address, pipeline)
                    current = pipeline
                set_group(address, 0, group, one, offset)
                dispatch(address, x, y, 1)
            lib.wgpuComputePassEncoderEnd(compute)
            lib.wgpuComputePassEncoderRelease(compute)
        return self._finish(encoder, recording)

    def _finish(self, encoder: Any, recording: Recording) -> Any:
        """The copies of a step, and the end of its commands."""
        for c in recording.copies:
            target = self.readbacks[self._turn] if c.target is None else c.target
            lib.wgpuCommandEncoderCopyBufferToBuffer(
                encoder, c.source._internal, c.source_offset, target._internal, c.offset, c.nbytes
            )
        commands = lib.wgpuCommandEncoderFinish(encoder, self._finish_descriptor)
        lib.wgpuCommandEncoderRelease(encoder)
        return commands

    def read(self, copies: Sequence[Copy], submission: Submission) -> list[bytes]:
        """Wait for a step, and for no later one, and take the copied bytes."""
        copies = [c for c in copies if c.target is None]
        if not copies:
            return []
        size = max(c.offset + c.nbytes for c in copies)
        buffer = submission.readback._internal
        index = ffi.NULL
        if submission.index is not None:
            self._index[0] = submission.index
            index = self._index
        self._map_status.clear()
        with capturing("readback"):
            lib.wgpuBufferMapAsync(buffer, lib.WGPUMapMode_Read, 0, size, self._map_info[0])
            while not self._map_status:
                lib.wgpuDevicePoll(self.device.device_id, True, index)
        if self._map_status[0] != lib.WGPUMapAsyncStatus_Success:
            raise DeviceError("the outputs could not be read back: the device was lost")
        with capturing("readback"):
            address = lib.wgpuBufferGetConstMappedRange(buffer, 0, size)
            view = ffi.buffer(address, size)
            data = [view[c.offset : c.offset + c.nbytes] for c in copies]
            lib.wgpuBufferUnmap(buffer)
        return data

    def _submit_checked(self, recording: Recording, watch: Watch) -> None:
        """The same step through wgpu's classes, one submit per op: an error names the op and its dispatch."""
        device = self.device.wgpu
        grids = {id(command): entry[3:] for command, entry in zip(recording.commands, recording.native, strict=True)}
        for call, group in groupby(recording.commands, lambda command: command.call):
            commands = list(group)
            watch.before(call)
            for n, command in enumerate(commands, 1):
                try:
                    with raising():
                        encoder = device.create_command_encoder(label=command.label)
                        compute = encoder.begin_compute_pass(label=command.label)
                        compute.set_pipeline(command.pipeline.handle)
                        compute.set_bind_group(0, command.group.handle, [command.params_offset])
                        compute.dispatch_workgroups(*grids[id(command)], 1)
                        compute.end()
                        device.queue.submit([encoder.finish()])
                except DeviceError as error:
                    which = f" (dispatch {n} of {len(commands)})" if len(commands) > 1 else ""
                    raise DeviceError(f"{command.label}{which}: {error}") from None
            watch.after(call)
        with raising():
            encoder = device.create_command_encoder()
            for c in recording.copies:
                target = self.readbacks[self._turn] if c.target is None else c.target
                encoder.copy_buffer_to_buffer(c.source, c.source_offset, target, c.offset, c.nbytes)
            device.queue.submit([encoder.finish()])


_offsets: dict[int, Any] = {}


def _offset(value: int) -> Any:
    """A dynamic offset as a kept array of one, to be passed by address."""
    if value not in _offsets:
        _offsets[value] = (ctypes.c_uint32 * 1)(value)
    return _offsets[value]
