"""A session on a GPU whose kernels prove themselves before they are used."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hightide.gpu.compile_ahead import CompileAhead, helpers
from hightide.gpu.pipelines import pipelines
from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.planning.planner import Plan, Planner
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.need import needs_of, needs_of_all
from hightide.runtime.prover import Prover
from hightide.runtime.ready_plans import ReadyPlan
from hightide.runtime.session_plan import SessionPlan, plan_session

ENOUGH_KERNELS = 8  # that are new, to open another device for


class ProvenSession(GpuSession):
    """A `GpuSession` that takes no route that answers wrong on its adapter.

    The longest and the shortest level are proven when it is built, the others when they are first met.
    """

    def _start(self, progress: Callable[[int, int], None] | None = None) -> None:
        self._ahead: CompileAhead | None = None
        try:
            super()._start(progress)
        finally:
            if self._ahead is not None:
                pipelines(self.device).before_first = None
                self._ahead.stop()

    def _planned(self) -> SessionPlan:
        self._prover = Prover(self.device)
        made: dict[Planner, SessionPlan] = {}

        def plans(planner: Planner) -> Sequence[Plan]:
            if planner not in made:
                made[planner] = plan_session(planner, self.specs, self._build_levels)
                self._compile_ahead(made[planner].plans)
            return made[planner].plans

        self.planner = self._prover.trusted(self.planner, plans, self._ends)
        return made[self.planner]

    def _compile_ahead(self, plans: Sequence[Plan]) -> None:
        """Have kernels compiled beside this session: at once if they are not proven, else if one takes long."""
        count, ends, known = helpers(self.device.adapter), self._ends(plans), self._prover.verdicts.known
        if not count or self._ahead is not None:
            return
        own = pipelines(self.device)
        warm = {pipeline.shader for pipeline in own.warm}
        unproven = not all(known(need) for need in needs_of_all(ends))
        needs = [need for plan in (*ends, *plans) for need in needs_of(plan)]  # as they are proven, then warmed up
        met = dict.fromkeys(s for need in needs if not (unproven and known(need)) for s in need.shaders)
        new = [shader for shader in met if shader not in warm]
        if len(new) >= ENOUGH_KERNELS:
            self._ahead = CompileAhead(self.device.adapter, new, count)
            own.before_first = self._ahead.meet
            if unproven:
                self._ahead.start()

    def _ends(self, plans: Sequence[Plan]) -> list[Plan]:
        def items(plan: Plan) -> int:
            return sum(math.prod(plan.dims[id]) for id in self.graph.inputs if id in plan.dims)

        return [plans[0], min(plans, key=items)]

    def _find_level(self, dims: tuple[Dims, ...], env: Env) -> ReadyPlan:
        """The plan of a level, found or made, and proven."""
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
