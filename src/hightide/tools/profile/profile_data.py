"""What was measured: dispatches with their times and costs, summed by op and route, compared with limits."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from hightide.gpu.limits import Kind, Limits
from hightide.gpu.timestamps import Span, Timing
from hightide.graph.values import Dims
from hightide.ops.cost import Cost

HOST_SPANS = ("check", "plan", "write", "encode", "submit", "wait", "read")  # of a step, in order


@dataclass(frozen=True)
class Dispatched:
    """One dispatch of a step."""

    part: str  # the graph it is in
    index: int  # of its op call in that graph
    op: str  # "aten.linear.default"
    family: str  # "linear"
    route: str
    dims: tuple[Dims, ...]  # live dims of the op's outputs
    grid: tuple[int, int]
    cost: Cost
    seconds: float  # the median over the runs
    best: float  # the shortest
    worst: float


@dataclass(frozen=True)
class Group:
    """Dispatches taken together: of one op, of one route of an op, or all of them."""

    name: str
    route: str  # "" where they are of several
    family: str
    calls: int
    seconds: float
    cost: Cost
    limit_seconds: float  # the least that they could take on this adapter
    binding: Kind  # the limit that most of that comes from

    @property
    def gb_s(self) -> float:
        return self.cost.bytes / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gflop_s(self) -> float:
        return self.cost.flops / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def of_limit(self) -> float:
        """The share of the adapter's limit that is reached, 0 to 1 (and a little over: limits are measured too)."""
        return self.limit_seconds / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class UntimedRun:
    """A step without any measuring inside it, on the host's clock (ns)."""

    begin: int
    end: int
    cpu: float  # seconds of all threads of the process

    @property
    def seconds(self) -> float:
        return (self.end - self.begin) / 1e9


@dataclass(frozen=True)
class TimedRun(UntimedRun):
    """One timed run: what the host did, when each dispatch began and ended."""

    spans: tuple[Span, ...]
    dispatches: tuple[tuple[int, int], ...]  # (begin, end) of each, as in `LevelProfile.dispatches`
    error: float  # ns by which the dispatches may be off the host's clock


@dataclass(frozen=True)
class LevelProfile:
    """One level, over several runs."""

    at: Mapping[str, int]
    dispatches: tuple[Dispatched, ...]
    runs: tuple[TimedRun, ...]
    untimed: tuple[UntimedRun, ...]  # the same steps without any measuring, in between
    first: float  # seconds of the first run, which is not counted: planning, compiling
    limits: Limits
    software: bool  # the adapter computes on the CPU: CPU time says what a step costs, however busy the machine

    @property
    def name(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.at.items()) or "fixed shapes"

    @property
    def gpu_seconds(self) -> float:
        """All dispatches."""
        return sum(d.seconds for d in self.dispatches)

    @property
    def step_seconds(self) -> float:
        """The whole step, not measured inside: from the inputs to the outputs."""
        return statistics.median(step.seconds for step in self.untimed)

    @property
    def timed_seconds(self) -> float:
        """The whole step with its dispatches timed."""
        return statistics.median(run.seconds for run in self.runs)

    @property
    def cpu_seconds(self) -> tuple[float, float]:
        """CPU time of a step untimed and timed."""
        return statistics.median(s.cpu for s in self.untimed), statistics.median(r.cpu for r in self.runs)

    @cached_property
    def host(self) -> dict[str, float]:
        """Seconds of the host by what it did: medians over the timed runs."""
        spent = {
            name: [sum(s.duration for s in run.spans if s.name == name) for run in self.runs] for name in HOST_SPANS
        }
        return {name: statistics.median(times) / 1e9 for name, times in spent.items()}

    @cached_property
    def total(self) -> Group:
        return self.group("all", "", "", self.dispatches)

    def by_op(self) -> list[Group]:
        """The slowest first."""
        return self._grouped(lambda d: (d.op, ""))

    def by_route(self) -> list[Group]:
        """Op and route; the slowest first."""
        return self._grouped(lambda d: (d.op, d.route))

    def _grouped(self, key: Callable[[Dispatched], tuple[str, str]]) -> list[Group]:
        found: dict[tuple[str, str], list[Dispatched]] = {}
        for dispatched in self.dispatches:
            found.setdefault(key(dispatched), []).append(dispatched)
        groups = [self.group(name, route, d[0].family, d) for (name, route), d in found.items()]
        return sorted(groups, key=lambda group: -group.seconds)

    def group(self, name: str, route: str, family: str, dispatches: Iterable[Dispatched]) -> Group:
        """Dispatches of this level taken together."""
        least: dict[Kind, float] = {"memory": 0.0, "arithmetic": 0.0, "dispatch": 0.0}
        calls, seconds, cost = 0, 0.0, Cost()
        for d in dispatches:
            calls, seconds, cost = calls + 1, seconds + d.seconds, cost + d.cost
            least[self.limits.binding(d.cost.bytes, d.cost.flops)] += self.limits.seconds(d.cost.bytes, d.cost.flops)
        binding = max(least, key=lambda kind: least[kind])
        return Group(name, route, family, calls, seconds, cost, sum(least.values()), binding)


@dataclass(frozen=True, repr=False)
class ProfileData:
    """A program's levels on one adapter."""

    subject: str  # the file, or the inputs, that were measured
    adapter: str
    driver: str
    timing: Timing
    limits: Limits
    levels: tuple[LevelProfile, ...]
    parts: tuple[str, ...] = ()
    load: float | None = None  # of the machine meanwhile: processes that wanted to run, per core

    def as_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "adapter": self.adapter,
            "driver": self.driver,
            "timing": self.timing.value,
            "limits": asdict(self.limits),
            "parts": list(self.parts),
            "load_per_core": self.load,
            "levels": [_level_as_json(level) for level in self.levels],
        }


def _level_as_json(level: LevelProfile) -> dict[str, Any]:
    return {
        "at": dict(level.at),
        "runs": len(level.runs),
        "step_seconds": level.step_seconds,
        "timed_step_seconds": level.timed_seconds,
        "first_step_seconds": level.first,
        "cpu_seconds": level.cpu_seconds[0],
        "timed_cpu_seconds": level.cpu_seconds[1],
        "gpu_seconds": level.gpu_seconds,
        "clock_error_seconds": max(run.error for run in level.runs) / 1e9,
        "host_seconds": level.host,
        "total": group_as_json(level.total, level.gpu_seconds),
        "ops": [group_as_json(group, level.gpu_seconds) for group in level.by_op()],
        "routes": [group_as_json(group, level.gpu_seconds) for group in level.by_route()],
        "dispatches": [
            {
                "part": d.part,
                "index": d.index,
                "op": d.op,
                "family": d.family,
                "route": d.route,
                "dims": [list(dims) for dims in d.dims],
                "grid": list(d.grid),
                "seconds": d.seconds,
                "best": d.best,
                "worst": d.worst,
                **asdict(d.cost),
            }
            for d in level.dispatches
        ],
    }


def group_as_json(group: Group, every: float) -> dict[str, Any]:
    return {
        "op": group.name,
        "route": group.route,
        "family": group.family,
        "calls": group.calls,
        "seconds": group.seconds,
        "share": group.seconds / every if every else 0.0,
        **asdict(group.cost),
        "gb_s": group.gb_s,
        "gflop_s": group.gflop_s,
        "limit": group.binding,
        "of_limit": group.of_limit,
    }
