"""GPU time per dispatch, on the host's clock.

A `TimedRecorder` takes the place of a session's recorder and notes when each dispatch began and ended, and what
the host did meanwhile. It times as finely as the adapter allows: by timestamps between the dispatches of the one
pass of a step; else by a pass per dispatch; else by a submit per dispatch, timed on the host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from wgpu.backends.wgpu_native import ffi, lib

from hightide.errors import UnsupportedError
from hightide.gpu.device import Device, capturing
from hightide.gpu.params import Params
from hightide.gpu.pipelines import pointer
from hightide.gpu.queries import ALIGNMENTS, Clock, Queries
from hightide.gpu.recorder import _ONE, Recorder, Recording, Submission, _dispatch, _set_group, _set_pipeline


class Timing(str, Enum):
    """How dispatches are timed."""

    INSIDE = "timestamps between dispatches"
    PASSES = "timestamps around a pass per dispatch"
    SUBMITS = "the host's clock around a submit per dispatch"


FINEST_FIRST = tuple(Timing)


@dataclass(frozen=True)
class Span:
    """Something that took time; nanoseconds of `time.perf_counter_ns`."""

    name: str
    begin: int
    end: int

    @property
    def duration(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class Times:
    """When each dispatch of a run began and ended on the host's clock, in order, and how that was found out."""

    timing: Timing
    begin: np.ndarray  # int64 ns
    end: np.ndarray
    error: float  # ns by which the whole may be off the host's clock

    @property
    def durations(self) -> np.ndarray:
        return self.end - self.begin


def finest_timing(device: Device) -> Timing:
    features = device.wgpu.features
    if "timestamp-query-inside-passes" in features:
        return Timing.INSIDE
    return Timing.PASSES if "timestamp-query" in features else Timing.SUBMITS


class TimedRecorder(Recorder):
    """Runs recordings like its base and times them: call `prepare` before a run, `times` and `spans` after it."""

    def __init__(self, device: Device, readback_bytes: int, params: Params, timing: Timing | None = None) -> None:
        super().__init__(device, readback_bytes, params)
        finest = finest_timing(device)
        self.timing = finest if timing is None else timing
        if FINEST_FIRST.index(self.timing) < FINEST_FIRST.index(finest):
            raise UnsupportedError(f"{device.adapter.name} has no {self.timing.value}")
        self.spans: list[Span] = []
        self._times: Times | None = None
        self._queries = Queries(device) if self.timing is not Timing.SUBMITS else None
        self._clock: Clock | None = None
        self._latency = 0  # ns of a submit that does nothing, where each dispatch is one

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        begin = time.perf_counter_ns()
        try:
            yield
        finally:
            self.spans.append(Span(name, begin, time.perf_counter_ns()))

    def prepare(self) -> None:
        """Before a run: forget the last one's spans, and compare the clocks anew."""
        self.spans = []
        if self._queries is not None:
            self._clock = self._queries.align()
        else:
            self._latency = min(_host_time(self, None) for _ in range(ALIGNMENTS))

    def write(self, buffer: Any, offset: int, data: np.ndarray) -> None:
        with self.span("write"):
            super().write(buffer, offset, data)

    def submit(self, recording: Recording) -> Submission:
        if self._queries is None:
            self._submit_each(recording)
            recording = Recording([], recording.copies)
        else:
            self._queries.fit(2 * len(recording.native) + 1)
        with self.span("encode"):
            commands = self._encode(recording)
        with self.span("submit"):
            index = self._submit(commands)
        submission = Submission(self.readbacks[self._turn], index)
        self._turn = 1 - self._turn
        return submission

    def encode_ahead(self, recording: Recording, env: Any) -> None:
        """Commands are used once: their queries are read before the next run."""

    def read(self, copies: Any, submission: Submission) -> list[bytes]:
        with self.span("wait"):
            self._wait(submission)
        with self.span("read"):
            return super().read(copies, submission)

    def times(self) -> Times:
        """Of the last run, once it was waited for."""
        if self._queries is not None and self._clock is not None:
            at = self._clock.host(self._queries.ticks())
            begin, end = (at[:-1], at[1:]) if self.timing is Timing.INSIDE else (at[0::2], at[1::2])
            # Timestamps of some drivers are coarse, or of several engines: time does not run backwards here.
            self._times = Times(self.timing, begin, np.maximum(begin, end), self._clock.error)
        assert self._times is not None, "nothing was run"
        return self._times

    def _wait(self, submission: Submission) -> None:
        if submission.index is not None:
            self._index[0] = submission.index
            with capturing("wait"):
                lib.wgpuDevicePoll(self.device.device_id, True, self._index)

    def _encode_unchecked(self, recording: Recording) -> Any:
        if self._queries is None:
            return super()._encode_unchecked(recording)
        encoder = lib.wgpuDeviceCreateCommandEncoder(self.device.device_id, self._encoder_descriptor)
        if recording.native:
            if self.timing is Timing.INSIDE:
                self._encode_pass(encoder, recording)
            else:
                self._encode_passes(encoder, recording)
            self._queries.resolve(encoder)
        return self._finish(encoder, recording)

    def _encode_pass(self, encoder: Any, recording: Recording) -> None:
        """One pass, with a timestamp before the first dispatch and one behind each: as a step runs untimed."""
        assert self._queries is not None
        compute = lib.wgpuCommandEncoderBeginComputePass(encoder, self._pass_descriptor)
        address = pointer(compute)
        lib.wgpuComputePassEncoderWriteTimestamp(compute, *self._queries.next())
        current = None
        for pipeline, group, offset, x, y in recording.native:
            if pipeline is not current:
                _set_pipeline(address, pipeline)
                current = pipeline
            _set_group(address, 0, group, _ONE, offset)
            _dispatch(address, x, y, 1)
            lib.wgpuComputePassEncoderWriteTimestamp(compute, *self._queries.next())
        lib.wgpuComputePassEncoderEnd(compute)
        lib.wgpuComputePassEncoderRelease(compute)

    def _encode_passes(self, encoder: Any, recording: Recording) -> None:
        assert self._queries is not None
        writes = ffi.new("WGPUPassTimestampWrites *")
        descriptor = ffi.new("WGPUComputePassDescriptor *", {"timestampWrites": writes})
        for pipeline, group, offset, x, y in recording.native:
            writes.querySet, writes.beginningOfPassWriteIndex = self._queries.next()
            _, writes.endOfPassWriteIndex = self._queries.next()
            compute = lib.wgpuCommandEncoderBeginComputePass(encoder, descriptor)
            address = pointer(compute)
            _set_pipeline(address, pipeline)
            _set_group(address, 0, group, _ONE, offset)
            _dispatch(address, x, y, 1)
            lib.wgpuComputePassEncoderEnd(compute)
            lib.wgpuComputePassEncoderRelease(compute)

    def _submit_each(self, recording: Recording) -> None:
        """Each dispatch by itself: what it takes longer than an empty submit is its time."""
        begin, end = [], []
        for n, command in enumerate(recording.commands):
            alone = Recording([command], [])
            alone.native = [recording.native[n]]  # its grid is sized already
            started = time.perf_counter_ns()
            begin.append(started)
            end.append(started + max(0, _host_time(self, alone) - self._latency))
        self._times = Times(self.timing, np.array(begin, np.int64), np.array(end, np.int64), float(self._latency))


def _host_time(recorder: TimedRecorder, recording: Recording | None) -> int:
    """ns from submit to done."""
    commands = recorder._encode(recording or Recording([], []))
    begin = time.perf_counter_ns()
    recorder._wait(Submission(None, recorder._submit(commands)))
    return time.perf_counter_ns() - begin
