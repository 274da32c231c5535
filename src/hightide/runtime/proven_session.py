"""A session on a GPU whose kernels prove themselves before they are used."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.planning.planner import Plan, Planner
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.prover import Prover
from hightide.runtime.ready_plans import ReadyPlan
from hightide.runtime.session_plan import SessionPlan, plan_session


class ProvenSession(GpuSession):
    """A `GpuSession` that takes no route that answers wrong on its adapter.

    The longest and the shortest level are proven when it is built, the others when they are first met.
    """

    def _planned(self) -> SessionPlan:
        self._prover = Prover(self.device)
        made: dict[Planner, SessionPlan] = {}

        def plans(planner: Planner) -> Sequence[Plan]:
            if planner not in made:
                made[planner] = plan_session(planner, self.specs, self._build_levels)
            return made[planner].plans

        self.planner = self._prover.trusted(self.planner, plans, self._ends)
        return made[self.planner]

    def _ends(self, plans: Sequence[Plan]) -> list[Plan]:
        def items(plan: Plan) -> int:
            return sum(math.prod(plan.dims[id]) for id in self.graph.inputs if id in plan.dims)

        return [plans[0], min(plans, key=items)]

    def find_level(self, dims: tuple[Dims, ...], env: Env) -> ReadyPlan:
        """The plan of a level, found or made, and proven."""
        with self.lock, self._guard:
            return self.levels.find(dims, env, lambda plan: self._prepare(self._trusted(plan, dims, env)))

    def _trusted(self, plan: Plan, dims: tuple[Dims, ...], env: Env) -> Plan:
        planner = self._prover.trusted(
            self.planner, lambda planner: [plan if planner is self.planner else planner.plan(dims, env)], list
        )
        if planner is self.planner:
            return plan
        self.planner = self.levels.planner = planner
        self.levels.clear()
        self.recorder.forget()
        self.add_scratch(plan_session(planner, self.specs, self._build_levels).scratch)
        return planner.plan(dims, env)
