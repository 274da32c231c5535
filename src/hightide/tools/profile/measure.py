"""Measures the steps of a session with and without timestamps, in turns, to show what measuring itself costs."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.gpu.limits import Limits, measure_limits
from hightide.gpu.timestamps import Span, TimedRecorder, Timing, finest_timing
from hightide.graph.graph import output_ids
from hightide.graph.symbols import evaluate
from hightide.planning.costs import cost_of
from hightide.runtime.debug_checks import debugging
from hightide.runtime.gpu_session import GpuSession
from hightide.tools.opened_file import OpenedFile, default_levels, open_file
from hightide.tools.profile.profile_data import Dispatched, LevelProfile, TimedRun, UntimedRun
from hightide.tools.profile.profile_result import Profile
from hightide.wgsl.grid import fold

RUNS = 5
WARM_UP = 2  # runs before those that count: plans are made, and drivers compile late
Tell = Callable[[int, int], None]  # (runs done, in all)


def profile(
    session: Any,
    inputs: Sequence[Any],
    *,
    runs: int = RUNS,
    want: Sequence[int] | None = None,
    timing: Timing | None = None,
) -> Profile:
    """Profile a session, or a method that is one graph, with these inputs. Its state is left as it was.

    `want` names the outputs to bring back (all); `timing` a coarser way to time dispatches than the adapter has.
    """
    chosen = _session(session)
    device = chosen.device
    limits = measure_limits(device)
    at = {spec.name: _shape(value) for spec, value in zip(chosen.specs, inputs, strict=False)}
    level = _level([_Work("graph", chosen, inputs, want)], {}, runs, limits, timing, None)
    name = ", ".join(f"{name} {dims}" for name, dims in at.items())
    used = finest_timing(device) if timing is None else timing
    return Profile(name, device.adapter.name, device.adapter.driver, used, limits, (level,), load=_load())


def profile_file(
    file: OpenedFile | str | os.PathLike[str],
    at: Sequence[Mapping[str, int]] = (),
    *,
    runs: int = RUNS,
    choices: Mapping[str, str] | None = None,
    timing: Timing | None = None,
    fresh_limits: bool = False,
    progress: Callable[[str], Tell | None] = lambda what: None,
) -> Profile:
    """Profile a `.pte` or GGUF file at these levels; without any, at a prefill and a decode step.

    For another method, device or context than the usual one, open the file with `open_file` first. If a method has
    several parts, each is run at the level, and their times are added up; what the method does between them on the host
    is not counted. `choices` forces routes. `progress` is told what begins, and how far it is.
    """
    opened = file if isinstance(file, OpenedFile) else open_file(file)
    if not opened.parts:
        raise UnsupportedError(
            f"{opened.path.name}: method {opened.method} has no delegate; there is nothing to profile"
        )
    levels = _levels(opened, at)  # what cannot be run is refused before anything is built
    progress("building")
    sessions = [_session(part.session(choices=choices)) for part in opened.parts]
    adapter = sessions[0].device
    progress("measuring the adapter's limits")
    limits = measure_limits(adapter, fresh=fresh_limits)
    want = (1,) if opened.gguf is not None else None  # chat brings back ids, not logits
    profiles = []
    for level, inputs in levels:
        works = [_Work(p.name, s, given, want) for p, s, given in zip(opened.parts, sessions, inputs, strict=True)]
        tell = progress(" ".join(f"{name}={value}" for name, value in level.items()) or "running")
        profiles.append(_level(works, level, runs, limits, timing, tell))
    used = finest_timing(adapter) if timing is None else timing
    parts = tuple(part.name for part in opened.parts)
    return Profile(
        opened.path.name, adapter.adapter.name, adapter.adapter.driver, used, limits, tuple(profiles), parts, _load()
    )


def _levels(opened: OpenedFile, at: Sequence[Mapping[str, int]]) -> list[tuple[dict[str, int], list[list[np.ndarray]]]]:
    """Each level, with nothing left out, and the inputs of every part."""
    levels = []
    for n, asked in enumerate(at or default_levels(opened.parts[0].symbols)):
        try:
            level = {name: value for part in opened.parts for name, value in part.level(asked).items()}
            levels.append((level, [part.inputs_at(asked) for part in opened.parts]))
        except InputError:
            if at or n == 0:  # what nobody asked for is left out where the program does not take it
                raise
    return levels


@dataclass(frozen=True)
class _Work:
    """A part to run at a level."""

    name: str
    session: GpuSession
    inputs: Sequence[Any]
    want: Sequence[int] | None

    def run(self) -> None:
        self.session.collect(self.session.launch(self.inputs, self.want))


def _level(
    works: Sequence[_Work],
    at: Mapping[str, int],
    runs: int,
    limits: Limits,
    timing: Timing | None,
    tell: Tell | None,
) -> LevelProfile:
    if runs < 1:
        raise InputError(f"a profile takes at least one run, not {runs}")
    timers = [work.session.timer(timing) for work in works]
    untimed: list[UntimedRun] = []
    timed: list[TimedRun] = []
    with ExitStack() as stack:
        for work, timer in zip(works, timers, strict=True):
            stack.callback(timer.close)
            stack.enter_context(work.session.memory.state_kept())
        begin = time.perf_counter()
        for work in works:
            work.run()
        first = time.perf_counter() - begin
        for n in range(-WARM_UP, runs):
            for measured in (False, True) if n % 2 else (True, False):  # each as often behind the other
                if measured:
                    timed.append(_timed(works, timers))
                else:
                    untimed.append(_untimed(works, timers))
            if tell is not None:
                tell(max(0, n + 1), runs)
    timed, untimed = timed[WARM_UP:], untimed[WARM_UP:]
    software = works[0].session.device.traits.software
    return LevelProfile(dict(at), _dispatched(works, timed), tuple(timed), tuple(untimed), first, limits, software)


def _untimed(works: Sequence[_Work], timers: Sequence[TimedRecorder]) -> UntimedRun:
    for timer in timers:
        timer.prepare()  # as before a timed run, so that both begin alike
    begin, cpu = time.perf_counter_ns(), time.process_time()
    for work in works:
        work.run()
    return UntimedRun(begin, time.perf_counter_ns(), time.process_time() - cpu)


def _timed(works: Sequence[_Work], timers: Sequence[TimedRecorder]) -> TimedRun:
    """One run of all parts with their dispatches timed; between parts, nothing counts."""
    spans: list[Span] = []
    dispatches: list[tuple[int, int]] = []
    first = last = 0
    error = cpu = 0.0
    for work, timer in zip(works, timers, strict=True):
        timer.prepare()
        with work.session.timed(timer):
            begin, started = time.perf_counter_ns(), time.process_time()
            work.run()
            end, cpu = time.perf_counter_ns(), cpu + time.process_time() - started
        times = timer.times()
        shift = (begin - last) if last else 0  # the parts follow each other as if nothing were between them
        spans += [Span(s.name, s.begin - shift, s.end - shift) for s in _with_checks(timer.spans, begin)]
        dispatches += zip((times.begin - shift).tolist(), (times.end - shift).tolist(), strict=True)
        first, last, error = first or begin, end - shift, max(error, times.error)
    return TimedRun(first, last, cpu, tuple(spans), tuple(dispatches), error)


def _with_checks(spans: Sequence[Span], begin: int) -> list[Span]:
    """The spans of a step with what lies between its begin and its first write or command: checking the inputs."""
    ordered = sorted(spans, key=lambda span: span.begin)
    checks, at = [], begin
    for span in ordered:
        checks.append(Span("check", at, span.begin))
        at = span.end
        if span.name != "plan":
            break
    return sorted((*ordered, *checks), key=lambda span: span.begin)


def _dispatched(works: Sequence[_Work], timed: Sequence[TimedRun]) -> tuple[Dispatched, ...]:
    """The dispatches of the parts, in order, with their times over the runs."""
    durations = np.array([[end - begin for begin, end in run.dispatches] for run in timed], np.float64) / 1e9
    found: list[Dispatched] = []
    for work in works:
        _, plan, env = work.session.level(work.inputs)
        graph = work.session.graph
        for step in plan.steps:
            seconds = durations[:, len(found)].tolist()
            found.append(
                Dispatched(
                    part=work.name,
                    index=step.call.index,
                    op=step.call.name,
                    family=step.op.family,
                    route=step.dispatch.kernel.name,
                    dims=tuple(plan.dims[id] for id in output_ids(graph, step.call) if id in plan.dims),
                    grid=fold(max(0, evaluate(step.dispatch.groups, env))),
                    cost=cost_of(step, env, plan),
                    seconds=statistics.median(seconds),
                    best=min(seconds),
                    worst=max(seconds),
                )
            )
    return tuple(found)


def _session(given: Any) -> GpuSession:
    """The GPU session of what the caller gave."""
    if debugging():
        raise UnsupportedError("HIGHTIDE_DEBUG runs one submit per op: unset it to profile")
    sessions = getattr(given, "sessions", None)
    session = sessions[0] if sessions is not None and len(sessions) == 1 else given
    if not isinstance(session, GpuSession):
        if sessions is not None:
            raise UnsupportedError(f"the method has {len(sessions)} parts: profile its file instead")
        raise UnsupportedError("only what runs on a WebGPU adapter can be profiled; the NumPy references cannot")
    return session


def _shape(value: Any) -> str:
    return str(list(np.shape(value)))


def _load() -> float | None:
    """Processes that want to run, per core; None where the system does not say."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else None
