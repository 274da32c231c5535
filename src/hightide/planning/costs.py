"""What the dispatches of a plan cost in a run; see `hightide.ops.cost`."""

from __future__ import annotations

from hightide.graph.symbols import Env, evaluate
from hightide.ops.cost import Cost
from hightide.planning.planner import Plan, Step


def cost_of(step: Step, env: Env, plan: Plan | None = None) -> Cost:
    """The cost of one dispatch in a run with these input elements; with its plan, scratch is counted too."""
    if evaluate(step.dispatch.groups, env) <= 0:
        return Cost()
    return step.op.cost(step.dispatch, env, {} if plan is None else plan.scratch_sizes)
