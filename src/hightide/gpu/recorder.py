"""The hot path: replay a recorded list of dispatches, submit it, read outputs back.

A step goes through raw wgpu-native calls (see `native.py`). A step that repeats the one before finds its command buffer
ready: it was encoded while the GPU worked on that one. Errors that the native library reports are captured and raised.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import numpy as np

from hightide.errors import DeviceError
from hightide.gpu.checked import run_watched
from hightide.gpu.device import Device
from hightide.gpu.native import (
    ONE,
    ReadMapping,
    capturing,
    dispatch,
    ffi,
    handle,
    lib,
    pointer,
    set_bind_group,
    set_pipeline,
)
from hightide.gpu.params import Params
from hightide.gpu.recording import BufferCopy, Recording, Submission, Watch

_UNTIMED = nullcontext()


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
        self._mapping = ReadMapping(device.device_id)

    # ---- a step

    def span(self, name: str) -> AbstractContextManager[None]:
        """Something that the host does in a step; a recorder that times notes how long it takes."""
        return _UNTIMED

    def write(self, buffer: Any, offset: int, data: np.ndarray) -> None:
        with capturing("write"):
            lib.wgpuQueueWriteBuffer(
                self.device.queue_id, handle(buffer), offset, ffi.cast("void *", data.ctypes.data), data.nbytes
            )

    def submit(self, recording: Recording) -> Submission:
        """Run a recording: every command in one compute pass, then the output copies, in one submit."""
        self._mapping.unmap()
        commands = self._take_ahead(recording)
        if commands is None:
            with self.span("encode"):
                commands = self._encode(recording)
        with self.span("submit"):
            index = self._submit(commands)
        return self._submitted(index)

    def submit_watched(self, recording: Recording, watch: Watch) -> Submission:
        """The same, one call at a time, through wgpu's checked classes."""
        self.forget()
        self._mapping.unmap()
        try:
            run_watched(self.device, recording, watch, self.readbacks[self._turn])
        except DeviceError:
            watch.failed()
            raise
        return self._submitted(None)

    def read(self, copies: Sequence[BufferCopy], submission: Submission) -> list[bytes]:
        """Wait for a step, and for no later one, and take the copied bytes."""
        copies = [c for c in copies if c.target is None]
        if not copies:
            self.wait(submission)
            return []
        size = max(c.offset + c.nbytes for c in copies)
        return self._mapping.read(
            handle(submission.readback),
            size,
            self._native_index(submission),
            lambda view: [view[c.offset : c.offset + c.nbytes] for c in copies],
        )

    def wait(self, submission: Submission) -> None:
        """Wait for a step, and for no later one."""
        if submission.index is not None:
            with capturing("wait"):
                lib.wgpuDevicePoll(self.device.device_id, True, self._native_index(submission))

    # ---- the next step

    def encode_ahead(self, recording: Recording, evaluate: Callable[[Any], int]) -> None:
        """While the GPU works: encode the next step, if the last two were alike, with its grids as `evaluate` says."""
        if recording is self._last:
            recording.size_grids(evaluate)
            self._ahead = recording, recording.grids(), self._encode(recording)
        self._last = recording

    def forget(self) -> None:
        """Drop what was encoded ahead: its parameters are about to be overwritten."""
        ahead, self._last, self._ahead = self._ahead, None, None
        if ahead is not None:
            self._discard(ahead[2])

    def run_blank(self, recording: Recording) -> None:
        """Run commands with all parameters zero: a kernel that is told of no elements writes nothing."""
        self._discard(self._encode(recording))

    def close(self) -> None:
        """Free the buffers; nothing can run any more."""
        with suppress(DeviceError):  # of a lost device
            self.forget()
        for buffer in self.readbacks:
            buffer.destroy()
        self.readbacks = []

    def __del__(self) -> None:
        ahead = getattr(self, "_ahead", None)
        if ahead is not None and not sys.is_finalizing() and self.device.adapter.process == os.getpid():
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

    def _discard(self, commands: Any) -> None:
        """Get rid of commands that are not wanted, by running them over nothing.

        wgpu-native 29 never frees a command buffer that was not submitted, nor the buffers it names.
        """
        with self.params.blank():
            self._submit(commands)

    # ---- raw calls

    def _submitted(self, index: int | None) -> Submission:
        submission = Submission(self.readbacks[self._turn], index)
        self._turn = 1 - self._turn
        return submission

    def _submit(self, commands: Any) -> int:
        try:
            with capturing("submit"):
                self.device.check_alive()
            with capturing("submit"):
                self._command_buffer[0] = commands
                return int(lib.wgpuQueueSubmitForIndex(self.device.queue_id, 1, self._command_buffer))
        finally:
            lib.wgpuCommandBufferRelease(commands)

    def _encode(self, recording: Recording) -> Any:
        """Commands that are known to be valid: submitting others would end the process."""
        commands = None
        try:
            with capturing("encoding the step"):
                encoder = lib.wgpuDeviceCreateCommandEncoder(self.device.device_id, self._encoder_descriptor)
                if recording.native:
                    self._encode_dispatches(encoder, recording)
                commands = self._finish(encoder, recording)
        except DeviceError:
            if commands is not None:
                lib.wgpuCommandBufferRelease(commands)
            raise
        return commands

    def _encode_dispatches(self, encoder: Any, recording: Recording) -> None:
        self._encode_pass(encoder, recording)

    def _encode_pass(self, encoder: Any, recording: Recording, mark: Callable[[Any], None] | None = None) -> None:
        """All dispatches in one pass; `mark` is called before the first and behind each."""
        compute = lib.wgpuCommandEncoderBeginComputePass(encoder, self._pass_descriptor)
        address = pointer(compute)
        current = None
        if mark:
            mark(compute)
        for pipeline, group, offset, x, y in recording.native:
            if pipeline is not current:
                set_pipeline(address, pipeline)
                current = pipeline
            set_bind_group(address, 0, group, ONE, offset)
            dispatch(address, x, y, 1)
            if mark:
                mark(compute)
        lib.wgpuComputePassEncoderEnd(compute)
        lib.wgpuComputePassEncoderRelease(compute)

    def _finish(self, encoder: Any, recording: Recording) -> Any:
        """The copies of a step, and the end of its commands."""
        for c in recording.copies:
            target = self.readbacks[self._turn] if c.target is None else c.target
            lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, handle(c.source), 0, handle(target), c.offset, c.nbytes)
        commands = lib.wgpuCommandEncoderFinish(encoder, self._finish_descriptor)
        lib.wgpuCommandEncoderRelease(encoder)
        return commands

    def _native_index(self, submission: Submission) -> Any:
        if submission.index is None:
            return ffi.NULL
        self._index[0] = submission.index
        return self._index
