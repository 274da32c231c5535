"""What a measurement is: CPU and wall time of a piece of work, and the spread of several."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class TimeSample:
    """CPU time is that of all threads of the process: a software adapter's work is in it."""

    cpu_ms: float
    wall_ms: float

    def shared(self, count: int) -> TimeSample:
        """Of one of `count` equal parts."""
        return TimeSample(self.cpu_ms / count, self.wall_ms / count)


@dataclass(frozen=True)
class Measured:
    """Samples of one order, and the token ids it gave."""

    samples: tuple[TimeSample, ...]
    ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Spread:
    """The median of several samples, and the middle half of them."""

    median: float
    low: float  # the first quartile
    high: float  # the third
    count: int

    def __format__(self, spec: str) -> str:
        return f"{self.median:{spec}}"


def timed(work: Callable[[], Result]) -> tuple[TimeSample, Result]:
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    return TimeSample((time.process_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3), result


def spread(values: Sequence[float]) -> Spread:
    if len(values) < 2:
        return Spread(values[0], values[0], values[0], 1)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high, len(values))


@dataclass
class WorkRow:
    """One engine on one piece of work: "prefill" of `size` tokens, "decode" of one token after `size` others."""

    what: str
    size: int
    engine: str
    on_cpu: bool = False  # a reference that does not run on the adapter
    samples: list[TimeSample] = field(default_factory=list)

    @property
    def cpu_ms(self) -> Spread:
        return spread([sample.cpu_ms for sample in self.samples])

    @property
    def wall_ms(self) -> Spread:
        return spread([sample.wall_ms for sample in self.samples])

    @property
    def rate(self) -> float:
        """Tokens (or rows of a matmul) per second of wall time."""
        return (1 if self.what == "decode" else self.size) / self.wall_ms.median * 1e3

    def milliseconds(self, software: bool) -> float:
        """What engines are compared by: CPU time where the CPU is the adapter, else wall time."""
        return (self.cpu_ms if software else self.wall_ms).median

    def as_json(self) -> Mapping[str, Any]:
        about = {"what": self.what, "size": self.size, "engine": self.engine, "on_cpu": self.on_cpu}
        return {**about, "cpu_ms": vars(self.cpu_ms), "wall_ms": vars(self.wall_ms), "per_second": self.rate}


def find_row(rows: Sequence[WorkRow], what: str, size: int, engine: str) -> WorkRow | None:
    wanted = (what, size, engine)
    return next((row for row in rows if (row.what, row.size, row.engine) == wanted and row.samples), None)
