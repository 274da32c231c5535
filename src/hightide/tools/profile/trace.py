"""A profile as a trace for Perfetto and chrome://tracing: the host and the GPU as two tracks on one clock."""

from __future__ import annotations

from typing import Any

from hightide.tools.profile.profile_data import Dispatched, LevelProfile, ProfileData
from hightide.tools.profile.profile_tables import short

HOST, GPU = 1, 2  # process ids of the tracks


def trace(profile: ProfileData) -> dict[str, Any]:
    """The Trace Event Format: an object whose `traceEvents` are complete events, in microseconds."""
    starts = [step.begin for level in profile.levels for step in (*level.untimed, *level.runs)]
    zero = min(starts, default=0)
    events: list[dict[str, Any]] = [
        _named("process_name", HOST, 0, "host"),
        _named("thread_name", HOST, 1, "steps"),
        _named("process_name", GPU, 0, f"GPU: {profile.adapter}"),
        _named("thread_name", GPU, 1, "dispatches"),
    ]
    for level in profile.levels:
        events += _level_events(level, zero)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "subject": profile.subject,
            "adapter": profile.adapter,
            "driver": profile.driver,
            "timing": profile.timing.value,
        },
    }


def _level_events(level: LevelProfile, zero: int) -> list[dict[str, Any]]:
    at = dict(level.at)
    events = []
    for step in level.untimed:
        events.append(_event(f"{level.name}, untimed", "step", HOST, step.begin - zero, step.end - step.begin, at))
    for number, run in enumerate(level.runs):
        args = {**at, "run": number, "clock error ns": round(run.error)}
        events.append(_event(level.name, "step", HOST, run.begin - zero, run.end - run.begin, args))
        for span in run.spans:
            events.append(_event(span.name, "host", HOST, span.begin - zero, span.duration, {"run": number}))
        for dispatched, (begin, end) in zip(level.dispatches, run.dispatches, strict=True):
            events.append(
                _event(dispatched.route, dispatched.family, GPU, begin - zero, end - begin, _args(dispatched))
            )
    return events


def _args(d: Dispatched) -> dict[str, Any]:
    return {
        "op": short(d.op),
        "index": d.index,
        "part": d.part,
        "dims": " ".join(str(list(dims)) for dims in d.dims),
        "grid": "x".join(map(str, d.grid)),
        "bytes read": d.cost.bytes_read,
        "bytes written": d.cost.bytes_written,
        "flops": d.cost.flops,
    }


def _event(name: str, kind: str, process: int, begin: int, length: int, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "ts": begin / 1000,
        "dur": length / 1000,
        "pid": process,
        "tid": 1,
        "args": args,
    }


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "ts": 0, "pid": process, "tid": thread, "args": {"name": name}}
