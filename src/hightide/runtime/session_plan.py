"""What a session is built from, planned before anything is allocated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hightide.errors import UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.kernel import Scratch
from hightide.planning.build_levels import probe
from hightide.planning.levels import InputSpec, MaxElements
from hightide.planning.memory import MemoryPlan, plan_memory
from hightide.planning.planner import Plan, Planner
from hightide.wgsl.shader import SYMINT_SLOTS

BuildLevels: TypeAlias = Sequence[Sequence[Dims]] | None  # the dims of every input, for each level


@dataclass(frozen=True)
class SessionPlan:
    """The plans of the levels that a build prepares, the max dims first, and the memory that every level fits in."""

    plans: list[Plan]
    scratch: dict[Scratch, int]  # bytes: the most that any of these levels asks for
    memory: MemoryPlan


def plan_session(planner: Planner, specs: Sequence[InputSpec], levels: BuildLevels = None) -> SessionPlan:
    """Raises UnsupportedError for a graph that cannot be built.

    `levels` are the input dims that will be met; without them, guesses.
    """
    if len(planner.slots) > SYMINT_SLOTS:
        raise UnsupportedError(f"the program has {len(planner.slots)} SymInts; {SYMINT_SLOTS} is the most")
    max_plan = planner.plan_max(MaxElements())
    if levels is None:
        plans = [max_plan, *probe(planner, specs, bool(max_plan.pins))]
    else:
        plans = [max_plan, *(planner.plan(dims, MaxElements()) for dims in levels)]
    scratch: dict[Scratch, int] = {}
    for plan in plans:
        for what, size in plan.scratch_sizes.items():
            scratch[what] = max(size, scratch.get(what, 0))
    return SessionPlan(plans, scratch, plan_memory(planner.graph, planner.aliases, scratch))
