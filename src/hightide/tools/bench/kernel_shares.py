"""Every kernel's time as a share of the limit that binds it: memory, arithmetic or the cost of a dispatch."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from hightide.gpu.limits import Limits
from hightide.ops.cost import Cost
from hightide.planning.costs import cost_of
from hightide.runtime.gpu_session import GpuSession, Ticket
from hightide.tools.bench.bench_engine import BenchEngine, prompt

PREFILL = 128


@dataclass(frozen=True)
class KernelShare:
    """All dispatches of one kernel in one run."""

    run: str  # "prefill 128", "decode at 1024"
    family: str
    kernel: str
    calls: int
    milliseconds: float
    part: float  # of the run's GPU time
    gb_s: float
    gflop_s: float
    bound_by: str
    share: float  # of the limit that binds it: 1 is as fast as the adapter can


def kernel_shares(engine: BenchEngine, limits: Limits, contexts: Sequence[int], runs: int) -> list[KernelShare]:
    """A prefill, and decode at the shortest and the longest context that fit."""
    fitting = sorted(size for size in contexts if size < engine.context)
    tokens = prompt(min(PREFILL, engine.decoder.max_rows), engine.decoder.vocab_size)
    found = shares_of(f"prefill {len(tokens)}", engine.session, limits, runs, partial(_launch, engine, tokens, 0))
    for size in dict.fromkeys((min(PREFILL, engine.context - 1), fitting[-1] if fitting else 0)):
        found += shares_of(f"decode at {size}", engine.session, limits, runs, partial(_launch, engine, [1], size))
    return found


def _launch(engine: BenchEngine, tokens: list[int], position: int) -> Ticket:
    ticket = engine.straight.launch(tokens, position)
    engine.straight.collect(ticket)
    launched: Ticket = ticket
    return launched


def shares_of(
    name: str, session: GpuSession, limits: Limits, runs: int, once: Callable[[], Ticket]
) -> list[KernelShare]:
    """The kernels of the plan that `once` runs, by the median of their times."""
    once()
    taken = []
    with session.timed() as timer:
        for _ in range(runs):
            timer.prepare()
            ticket = once()
            taken.append(timer.times().durations)
    seconds = np.median(np.array(taken), axis=0) / 1e9
    plan = ticket.plan
    groups: dict[tuple[str, str], list[int]] = {}
    for n, step in enumerate(plan.steps):
        groups.setdefault((step.op.family, step.dispatch.kernel.name), []).append(n)
    costs = [cost_of(step, ticket.env, plan) for step in plan.steps]
    whole = float(seconds.sum())
    found = []
    for (family, kernel), members in groups.items():
        time, cost = float(seconds[members].sum()), sum((costs[n] for n in members), Cost())
        if time <= 0:
            continue
        least = sum(limits.seconds(costs[n].bytes, costs[n].flops) for n in members)
        bound = statistics.mode(limits.binding(costs[n].bytes, costs[n].flops) for n in members)
        rates = cost.bytes / time / 1e9, cost.flops / time / 1e9
        found.append(
            KernelShare(name, family, kernel, len(members), time * 1e3, time / whole, *rates, bound, least / time)
        )
    return sorted(found, key=lambda share: -share.milliseconds)
