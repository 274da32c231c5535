"""Timestamp queries, and how the GPU's clock relates to the host's."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import wgpu

from hightide.gpu.device import Device
from hightide.gpu.native import handle, lib, raising, wait

SET_SIZE = 4096  # WebGPU's most queries in a set
ALIGNMENTS = 8  # submits that compare the two clocks


@dataclass(frozen=True)
class Clock:
    """From GPU timestamps to the host's clock: host = ticks * period + offset, give or take `error` ns."""

    period: float
    offset: float
    error: float

    def host(self, ticks: np.ndarray) -> np.ndarray:
        # Differences first: ticks may exceed the 53 bits of a float.
        first = int(ticks.min()) if ticks.size else 0
        return (
            (ticks - np.uint64(first)).astype(np.float64) * self.period + (first * self.period + self.offset)
        ).astype(np.int64)


class Queries:
    """Timestamp queries of one run: as many sets as it takes, resolved into one buffer."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.period = float(lib.wgpuQueueGetTimestampPeriod(device.queue_id))
        self._sets: list[Any] = []
        self._buffer: Any = None
        self._used = 0

    def fit(self, count: int) -> None:
        """Start a run of at most `count` timestamps."""
        self._used = 0
        wanted = -(-count // SET_SIZE)
        if wanted > len(self._sets):
            with raising():
                for _ in range(wanted - len(self._sets)):
                    self._sets.append(self.device.wgpu.create_query_set(type="timestamp", count=SET_SIZE))
                usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
                self._buffer = self.device.wgpu.create_buffer(size=len(self._sets) * SET_SIZE * 8, usage=usage)

    def next(self) -> tuple[Any, int]:
        """The set and index of the next timestamp. A set holds an even number, so pairs are in one."""
        number = self._used
        self._used += 1
        return handle(self._sets[number // SET_SIZE]), number % SET_SIZE

    def around(self) -> dict[str, Any]:
        """The next two timestamps, as a pass descriptor of wgpu's classes takes them."""
        first, second = self.next()[1], self.next()[1]
        query_set = self._sets[(self._used - 1) // SET_SIZE]
        return {
            "query_set": query_set,
            "beginning_of_pass_write_index": first,
            "end_of_pass_write_index": second,
        }

    def resolve(self, encoder: Any) -> None:
        """Have the timestamps written to the buffer, at the end of a native encoder's commands."""
        for n, queries in enumerate(self._sets):
            count = min(SET_SIZE, self._used - n * SET_SIZE)
            if count > 0:
                lib.wgpuCommandEncoderResolveQuerySet(
                    encoder, handle(queries), 0, count, handle(self._buffer), n * SET_SIZE * 8
                )

    def ticks(self) -> np.ndarray:
        if not self._used:
            return np.zeros(0, np.uint64)
        return np.frombuffer(self.device.read(self._buffer), np.uint64, self._used).copy()

    def align(self) -> Clock:
        """Compare the clocks: a timestamp lies between the submit that writes it and the end of the wait for it."""
        low, high = -np.inf, np.inf
        best = (np.inf, 0.0)
        for _ in range(ALIGNMENTS):
            self.fit(2)
            with raising():
                encoder = self.device.wgpu.create_command_encoder()
                encoder.begin_compute_pass(timestamp_writes=self.around()).end()
                self.resolve(handle(encoder))
                commands = encoder.finish()
                begin = time.perf_counter_ns()
                self.device.wgpu.queue.submit([commands])
                wait(self.device.wgpu)
                end = time.perf_counter_ns()
            at = float(int(self.ticks()[0])) * self.period
            low, high = max(low, begin - at), min(high, end - at)
            best = min(best, (end - begin, (begin + end) / 2 - at))
        self._used = 0
        if low <= high:
            return Clock(self.period, (low + high) / 2, (high - low) / 2)
        return Clock(self.period, best[1], best[0] / 2)  # the clocks drift apart: the shortest round trip
