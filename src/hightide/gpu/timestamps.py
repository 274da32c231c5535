"""GPU time per dispatch, on the host's clock.

A `TimedRecorder` stands in for a session's recorder. It notes when each dispatch began and ended, and what the host did
meanwhile. It times as finely as the adapter allows: with timestamps between the dispatches of a step's one pass; else
with a pass per dispatch; else with a submit per dispatch, timed on the host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from hightide.errors import UnsupportedError
from hightide.gpu.device import Device
from hightide.gpu.encoding import StepEncoder
from hightide.gpu.native import ONE, dispatch, ffi, lib, pointer, set_bind_group, set_pipeline
from hightide.gpu.params import Params
from hightide.gpu.queries import ALIGNMENTS, Clock, Queries
from hightide.gpu.recorder import Recorder
from hightide.gpu.recording import Recording, Submission


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
    """Runs recordings as its base does and times them: `prepare` before a run, `times()` and `spans` after it."""

    def __init__(self, device: Device, readback_bytes: int, params: Params, timing: Timing | None = None) -> None:
        super().__init__(device, readback_bytes, params)
        finest = finest_timing(device)
        self.timing = finest if timing is None else timing
        if FINEST_FIRST.index(self.timing) < FINEST_FIRST.index(finest):
            raise UnsupportedError(f"{device.adapter.name} has no {self.timing.value}")
        self.spans: list[Span] = []  # what the host did in the last run
        self._times: Times | None = None
        self._queries = Queries(device) if self.timing is not Timing.SUBMITS else None
        if self._queries is not None:
            self._encoder = _TimedEncoder(device, self.timing, self._queries)
        self._clock: Clock | None = None
        self._latency = 0  # ns of a submit that does nothing, where each dispatch is one

    def prepare(self) -> None:
        """Before a run: forget the last one's spans, and compare the clocks anew."""
        self.spans = []
        if self._queries is not None:
            self._clock = self._queries.align()
        else:
            self._latency = min(self._host_time(Recording([], [])) for _ in range(ALIGNMENTS))

    def times(self) -> Times:
        """Of the last run, once it was waited for."""
        if self._queries is not None and self._clock is not None:
            at = self._clock.host(self._queries.ticks())
            begin, end = (at[:-1], at[1:]) if self.timing is Timing.INSIDE else (at[0::2], at[1::2])
            # Timestamps of some drivers are coarse, or of several engines: time does not run backwards here.
            self._times = Times(self.timing, begin, np.maximum(begin, end), self._clock.error)
        assert self._times is not None, "nothing was run"
        return self._times

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        begin = time.perf_counter_ns()
        try:
            yield
        finally:
            self.spans.append(Span(name, begin, time.perf_counter_ns()))

    def write(self, buffer: Any, offset: int, data: np.ndarray) -> None:
        with self.span("write"):
            super().write(buffer, offset, data)

    def submit(self, recording: Recording, foresee: Any = None) -> Submission:
        """Nothing is encoded ahead: commands are used once, and their queries are read before the next run."""
        if self._queries is not None:
            self._queries.fit(2 * len(recording.native) + 1)
            return super().submit(recording)
        self._submit_each(recording)
        return super().submit(Recording([], recording.copies))

    def read(self, copies: Any, submission: Submission) -> list[bytes]:
        with self.span("wait"):
            self.wait(submission)
        with self.span("read"):
            return super().read(copies, submission)

    def _submit_each(self, recording: Recording) -> None:
        """Each dispatch by itself: what it takes longer than an empty submit is its time."""
        begin, end = [], []
        for n, command in enumerate(recording.commands):
            alone = Recording([command], [])
            alone.native = [recording.native[n]]  # its grid is sized already
            started = time.perf_counter_ns()
            begin.append(started)
            end.append(started + max(0, self._host_time(alone) - self._latency))
        self._times = Times(self.timing, np.array(begin, np.int64), np.array(end, np.int64), float(self._latency))

    def _host_time(self, recording: Recording) -> int:
        """ns from submit to done."""
        commands = self._encode(recording)
        begin = time.perf_counter_ns()
        self.wait(Submission(None, self._submit(commands)))
        return time.perf_counter_ns() - begin


class _TimedEncoder(StepEncoder):
    """Encodes timestamps as well."""

    def __init__(self, device: Device, timing: Timing, queries: Queries) -> None:
        super().__init__(device)
        self._timing, self._queries = timing, queries

    def _dispatches(self, encoder: Any, recording: Recording) -> None:
        queries = self._queries
        if self._timing is Timing.INSIDE:  # one pass, as a step runs untimed
            write = lib.wgpuComputePassEncoderWriteTimestamp
            self._one_pass(encoder, recording, lambda compute: write(compute, *queries.next()))
        else:
            self._passes(encoder, recording, queries)
        queries.resolve(encoder)

    def _passes(self, encoder: Any, recording: Recording, queries: Queries) -> None:
        writes = ffi.new("WGPUPassTimestampWrites *")
        descriptor = ffi.new("WGPUComputePassDescriptor *", {"timestampWrites": writes})
        for pipeline, group, offset, x, y in recording.native:
            writes.querySet, writes.beginningOfPassWriteIndex = queries.next()
            _, writes.endOfPassWriteIndex = queries.next()
            compute = lib.wgpuCommandEncoderBeginComputePass(encoder, descriptor)
            address = pointer(compute)
            set_pipeline(address, pipeline)
            set_bind_group(address, 0, group, ONE, offset)
            dispatch(address, x, y, 1)
            lib.wgpuComputePassEncoderEnd(compute)
            lib.wgpuComputePassEncoderRelease(compute)
