"""Does a graph cost what S costs, or what its max costs? One token on a graph built for 2048 and on one built for 1."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

from hightide.tools.bench.bench_engine import BenchEngine
from hightide.tools.bench.samples import TimeSample

LONG = 2048


@dataclass(frozen=True)
class BuiltFor:
    built_for: int
    ratio: float  # of the CPU time of a decode step: the long graph's by the short one's, median of pairs
    low: float  # quartiles
    high: float
    ms: float
    pairs: int


def measure_built_for(model: Path, *, device: str | None, software: bool, pairs: int) -> BuiltFor:
    """Steps of the two in turns, each pair in the other order than the one before."""
    built = [BenchEngine(model, context=LONG, chunk=chunk, device=device) for chunk in (LONG, 1)]
    for engine in built:
        _step(engine)

    def cost(sample: TimeSample) -> float:
        return sample.cpu_ms if software else sample.wall_ms

    ratios, times = [], []
    for n in range(pairs):
        order = (0, 1) if n % 2 == 0 else (1, 0)
        taken = {which: cost(_step(built[which])) for which in order}
        ratios.append(taken[0] / taken[1])
        times.append(taken[0])
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return BuiltFor(LONG, middle, low, high, statistics.median(times), pairs)


def _step(engine: BenchEngine, tokens: int = 4) -> TimeSample:
    engine.start_at(64)
    return engine.decode(tokens).samples[0]
