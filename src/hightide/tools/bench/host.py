"""What a decode step costs the host: time, dispatches, bytes, and what a change of level takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hightide.gpu.encoding import seconds_ahead
from hightide.planning.levels import MaxElements
from hightide.runtime.gpu_session import GpuSession
from hightide.tools.bench.bench_engine import BenchEngine

STEPS = 24


@dataclass(frozen=True)
class Host:
    """Per decoded token, unless it says otherwise."""

    dispatches: int
    host_us: float  # CPU time of the thread that drives the GPU: checks, writes, submit, readback
    ahead_us: float  # CPU time of the thread that encodes the next step meanwhile
    waits_us: float  # the part of it that the GPU waits for where a step's result is needed before the next
    step_ms: float  # CPU time of the whole process, a software adapter's work too
    step_wall_ms: float
    written_bytes: float
    read_bytes: float
    objects: float  # GPU objects made
    known_level_us: float  # to find the plan of a level met before
    new_level_ms: float  # to plan a level met for the first time

    @property
    def per_dispatch_us(self) -> float:
        return (self.host_us + self.ahead_us) / max(1, self.dispatches)

    @property
    def share(self) -> float:
        """The host's part of a step: of CPU time, so where the CPU is the adapter too, of all that is done."""
        return (self.host_us + self.ahead_us) / 1e3 / self.step_ms


@dataclass
class Traffic:
    written: int = 0
    read: int = 0


def measure_host(engine: BenchEngine, position: int = 128) -> Host:
    session = engine.session
    position = max(0, min(position, engine.context - STEPS - 2))
    steps = min(STEPS, engine.context - 2)
    engine.start_at(position)
    engine.decode(3)
    dispatches = _dispatches(engine, position)
    created = session.device.created
    engine.start_at(position)
    ahead, thread, cpu, wall = seconds_ahead(), time.thread_time(), time.process_time(), time.perf_counter()
    with counted(session) as traffic:
        engine.decode(steps)
    thread, cpu, wall = time.thread_time() - thread, time.process_time() - cpu, time.perf_counter() - wall
    ahead = seconds_ahead() - ahead
    known, fresh = _levels(session)
    return Host(
        dispatches=dispatches,
        host_us=thread / steps * 1e6,
        ahead_us=ahead / steps * 1e6,
        waits_us=_waits(engine, position, steps) * 1e6,
        step_ms=cpu / steps * 1e3,
        step_wall_ms=wall / steps * 1e3,
        written_bytes=traffic.written / steps,
        read_bytes=traffic.read / steps,
        objects=(session.device.created - created) / steps,
        known_level_us=known * 1e6,
        new_level_ms=fresh * 1e3,
    )


def _waits(engine: BenchEngine, position: int, steps: int) -> float:
    """Seconds of the host before a step is submitted and after it is done."""
    session, samples = engine.session, []
    for n in range(steps):
        start = time.thread_time()
        ticket = engine.straight.launch([1], position + n)
        launched = time.thread_time()
        session.device.wait()
        idle = time.thread_time()
        engine.straight.collect(ticket)
        samples.append(launched - start + time.thread_time() - idle)
    return statistics.median(samples)


def _dispatches(engine: BenchEngine, position: int) -> int:
    ticket = engine.straight.launch([1], position)
    engine.straight.collect(ticket)
    return len(ticket.recording.commands)


@contextmanager
def counted(session: GpuSession) -> Iterator[Traffic]:
    """Bytes that runs of this session write to the device and bring back."""
    written, read, traffic = session.counters.written_bytes, session.counters.read_bytes, Traffic()
    yield traffic
    traffic.written = session.counters.written_bytes - written
    traffic.read = session.counters.read_bytes - read


def _levels(session: GpuSession) -> tuple[float, float]:
    """Seconds to find a known level and to plan a new one: medians."""
    most = session.specs[0].dims[1]
    by_row = {"tokens", "positions", "places"}  # their last dim is the rows of a step
    env = MaxElements()

    def find(length: int) -> Callable[[], object]:
        dims = tuple((*s.dims[:-1], length) if s.name in by_row else s.dims for s in session.specs)
        return lambda: session.find_level(dims, env)

    fresh = []
    for length in range(most - 1, 1, -1):
        planned = session.levels.planned
        seconds = _seconds(find(length))
        if session.levels.planned > planned:
            fresh.append(seconds)
        if len(fresh) == 9:
            break
    find(1)()
    known = [_seconds(find(1)) for _ in range(200)]
    return statistics.median(known), statistics.median(fresh) if fresh else 0.0


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
