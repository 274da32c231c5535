"""The hot path: replay a recorded list of dispatches, submit it, read outputs back.

A step goes through raw wgpu-native calls (see `native.py`). A step that repeats the one before finds its command buffer
ready: a thread encoded it while the GPU worked on that one. Errors that the native library reports are captured and
raised.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeAlias

import numpy as np

from hightide.errors import DeviceError
from hightide.gpu.checked import run_watched
from hightide.gpu.device import Device
from hightide.gpu.encoding import Ahead, StepEncoder
from hightide.gpu.native import ReadMapping, capturing, ffi, handle, lib
from hightide.gpu.params import Params
from hightide.gpu.recording import BufferCopy, Recording, Submission, Watch

Evaluate: TypeAlias = Callable[[Any], int]  # the number of workgroups that a formula stands for

_UNTIMED = nullcontext()


class Recorder:
    """Runs recordings on one device, with two readback buffers in turns: one step may run while another is read."""

    def __init__(self, device: Device, readback_bytes: int, params: Params) -> None:
        self.device = device
        self.params = params
        self.readbacks = [device.buffer(readback_bytes, "COPY_DST|MAP_READ", "readback") for _ in range(2)]
        self._turn = 0  # which of them the next step copies to
        self._index = ffi.new("WGPUSubmissionIndex *")
        self._command_buffer = ffi.new("WGPUCommandBuffer[1]")
        self._encoder = StepEncoder(device)
        self._last: Recording | None = None  # what ran last
        self._ahead: Ahead | None = None
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

    def submit(self, recording: Recording, foresee: Evaluate | None = None) -> Submission:
        """Run a recording: every command in one compute pass, then the output copies, in one submit.

        With `foresee`, which says how grids go on, the next step is encoded meanwhile, if this one is like the last.
        """
        self._mapping.unmap()
        self.expect(recording)
        commands = None if self._ahead is None else self._ahead.take()
        self._ahead = None
        if commands is None:
            with self.span("encode"):
                commands = self._encode(recording)
        if foresee is not None:
            self._encode_ahead(recording, foresee)  # before the submit: llvmpipe may do its work there
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

    def expect(self, recording: Recording | None) -> None:
        """Before the inputs of a step are written: drop what was encoded ahead, unless it is for these grids."""
        ahead = self._ahead
        if ahead is None or ahead.fits(recording, self.readbacks[self._turn]):
            return
        commands = ahead.take()
        self._ahead = None
        if commands is not None:
            self._mapping.unmap()
            self._discard(commands)

    def forget(self) -> None:
        """Drop what was encoded ahead: its parameters are about to be overwritten."""
        self._last = None
        self.expect(None)

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
        ahead: Ahead | None = getattr(self, "_ahead", None)
        if ahead is None or sys.is_finalizing() or self.device.adapter.process != os.getpid():
            return
        if (commands := ahead.take()) is not None:
            with suppress(DeviceError):  # nobody is left to see what it computes; the parameters may be gone already
                self._submit(commands)

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

    def _encode_ahead(self, recording: Recording, foresee: Evaluate) -> None:
        if recording is self._last:
            recording.size_grids(foresee)
            self._ahead = Ahead(self._encoder, recording, self.readbacks[1 - self._turn])
            self._ahead.start()
        self._last = recording

    def _encode(self, recording: Recording) -> Any:
        return self._encoder.encode(recording, self.readbacks[self._turn])

    def _native_index(self, submission: Submission) -> Any:
        if submission.index is None:
            return ffi.NULL
        self._index[0] = submission.index
        return self._index
