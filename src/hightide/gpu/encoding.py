"""Recordings as command buffers, encoded where they are needed or by a thread ahead of that."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from hightide.errors import DeviceError
from hightide.gpu.device import Device
from hightide.gpu.native import ONE, capturing, dispatch, ffi, handle, lib, pointer, set_bind_group, set_pipeline
from hightide.gpu.recording import Recording

_spent = [0.0]


class StepEncoder:
    """Encodes for one device: every command in one compute pass, then the copies."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._encoder_descriptor = ffi.new("WGPUCommandEncoderDescriptor *")
        self._pass_descriptor = ffi.new("WGPUComputePassDescriptor *")
        self._finish_descriptor = ffi.new("WGPUCommandBufferDescriptor *")

    def encode(self, recording: Recording, readback: Any) -> Any:
        """Commands that are known to be valid: submitting others would end the process."""
        commands = None
        try:
            with capturing("encoding the step"):
                encoder = lib.wgpuDeviceCreateCommandEncoder(self.device.device_id, self._encoder_descriptor)
                if recording.native:
                    self._dispatches(encoder, recording)
                commands = self._finish(encoder, recording, readback)
        except DeviceError:
            if commands is not None:
                lib.wgpuCommandBufferRelease(commands)
            raise
        return commands

    def _dispatches(self, encoder: Any, recording: Recording) -> None:
        self._one_pass(encoder, recording)

    def _one_pass(self, encoder: Any, recording: Recording, mark: Callable[[Any], None] | None = None) -> None:
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

    def _finish(self, encoder: Any, recording: Recording, readback: Any) -> Any:
        """The copies of a step, and the end of its commands."""
        for c in recording.copies:
            target = readback if c.target is None else c.target
            source, start, _ = c.source
            lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, handle(source), start, handle(target), c.offset, c.nbytes)
        commands = lib.wgpuCommandEncoderFinish(encoder, self._finish_descriptor)
        lib.wgpuCommandEncoderRelease(encoder)
        return commands


class Ahead:
    """A recording at the grids that it has now, to be encoded by the thread as soon as it is free."""

    def __init__(self, encoder: StepEncoder, recording: Recording, readback: Any) -> None:
        self.recording, self.grids = recording, recording.grids()
        self._encoder, self._readback = encoder, readback
        self._begun, self._done = Lock(), Lock()
        self._done.acquire()
        self._commands: Any = None

    def fits(self, recording: Recording | None, readback: Any) -> bool:
        """Whether this is what is to run now."""
        return recording is self.recording and readback is self._readback and self.grids == recording.grids()

    def start(self) -> None:
        _jobs().put(self._run)

    def _run(self) -> None:
        if self._begun.acquire(blocking=False):
            try:
                with suppress(DeviceError):  # whoever encodes it again will hear of it
                    self._commands = self._encode()
            finally:
                self._done.release()

    def _encode(self) -> Any:
        return self._encoder.encode(self.recording, self._readback)

    def take(self) -> Any:
        """The commands, waited for if the thread has begun; None if it has not, nor will it now."""
        if not self._begun.acquire(blocking=False):
            with self._done:
                pass
        commands, self._commands = self._commands, None
        return commands


@cache
def _jobs() -> SimpleQueue[Callable[[], None] | None]:
    """What the thread does, in order. Before the process ends, it is waited for: a driver is torn down then."""
    jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
    thread = Thread(target=_work, args=(jobs,), name="encode", daemon=True)
    thread.start()

    def end() -> None:
        jobs.put(None)
        thread.join()

    atexit.register(end)
    return jobs


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # it holds buffers
        _spent[0] = time.thread_time()


def seconds_ahead() -> float:
    """CPU time that the thread has taken so far."""
    return _spent[0]
