"""A profile whose times are made up: what a page shows of it does not depend on how busy the machine was."""

from __future__ import annotations

from dataclasses import replace

from schedules import PROGRAMS

from hightide.gpu.timestamps import Span
from hightide.tools.profile import LevelProfile, Profile, TimedRun, profile_file
from hightide.tools.profile.profile_data import HOST_SPANS

HOST = 100_000  # ns of each kind of the host's work
SHORTEST = 20_000  # ns of a dispatch; the others are up to five times as long


def steady_profile(runs: int = 1) -> Profile:
    """The dispatches of a llama at two levels, one after the other while the host waits."""
    measured = profile_file(PROGRAMS / "llama_gqa.pte", [{"S": 17, "pos": 0}, {"S": 1, "pos": 40}], runs=runs)
    return replace(measured, levels=tuple(map(_steady, measured.levels)), load=0.0)


def _steady(level: LevelProfile) -> LevelProfile:
    lengths = [SHORTEST * (n % 5 + 1) for n in range(len(level.dispatches))]
    dispatches = [
        replace(d, seconds=ns / 1e9, best=ns / 1e9, worst=ns / 1e9)
        for d, ns in zip(level.dispatches, lengths, strict=True)
    ]
    return replace(level, dispatches=tuple(dispatches), runs=tuple(_run(run, lengths) for run in level.runs))


def _run(run: TimedRun, lengths: list[int]) -> TimedRun:
    now, spans, times = run.begin, [], []
    for name in HOST_SPANS:
        begin = now
        if name == "wait":
            for length in lengths:
                times.append((now, now + length))
                now += length
        else:
            now += HOST
        spans.append(Span(name, begin, now))
    return replace(run, end=now, spans=tuple(spans), dispatches=tuple(times))
