"""Compares the GPU with the references at one level, op by op, with the same inputs and in a chain.

*Alone*, an op is given the reference's inputs, bit for bit, so that any difference is its own. *Chained*, it is given
what the GPU computed before it, which shows how errors grow on their way to the outputs. The first op that is wrong
alone is the culprit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hightide.errors import HightideError
from hightide.graph.graph import OpCall, input_ids, output_ids
from hightide.graph.symbols import Env, evaluate
from hightide.ops.contract import Dispatch, SymIntOp, Tensor
from hightide.planning.planner import Plan
from hightide.runtime.device_routes import forcing
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.reference_walker import ReferenceWalker
from hightide.tools.verify.compare import Errors, compare
from hightide.tools.verify.judge import CheckedCall, Judge, is_float
from hightide.tools.verify.other_routes import Route, compiled_beside, other_routes
from hightide.tools.verify.results import OpResult, RouteResult, Status
from hightide.tools.verify.single_op import SingleOpRunner, Written
from hightide.tools.verify.tolerances import tolerance_of


class ReadsPoison(Exception):
    """The reference itself reads state that was taken to be beyond the live part."""


class Walker:
    """Walks one session's graph at any level."""

    def __init__(self, session: GpuSession, tolerance: float | None = None, routes: bool = True) -> None:
        self.session, self.tolerance, self.routes = session, tolerance, routes
        self.reference = ReferenceWalker(session.planner)
        self.runner = SingleOpRunner(session)
        self.judge = Judge(session.planner)

    def walk(
        self, given: Sequence[Any], state: Mapping[int, np.ndarray], *, poisoned: bool
    ) -> tuple[list[OpResult], dict[int, np.ndarray]]:
        """Every call at the level of these inputs, and the values that the GPU's chain left: outputs and state.

        `poisoned`: the state is NaN where the run must not look.
        """
        session, reference = self.session, self.reference
        arrays, plan, env = session.level(given)
        reference.start(plan, arrays, state)
        self.runner.set_level(plan, env)
        chain: dict[int, Any] = dict(zip(session.graph.inputs, arrays, strict=True))
        chain.update({id: array.copy() for id, array in state.items()})
        dispatches: dict[int, list[Dispatch]] = {}
        for step in plan.steps:
            dispatches.setdefault(step.call.index, []).append(step.dispatch)
        others = other_routes(session, [a.shape for a in arrays], env, dispatches) if self.routes else {}
        at = _Level(plan, env, dispatches, others, poisoned)
        results = []
        in_order = [route for call in session.graph.calls for route in others.get(call.index, ())]
        with compiled_beside(session.device, in_order):
            for call in session.graph.calls:
                try:
                    results.append(self._call(at, call, chain))
                except HightideError as error:  # a kernel that does not compile or run, a reference that refuses
                    dims = tuple(plan.dims[id] for id in output_ids(session.graph, call) if id in plan.dims)
                    results.append(OpResult(call.index, call.name, (), dims, "bad", problem=str(error)))
                    return results, {}
                reference.forget(call)
                for id in reference.dropped(call):
                    chain.pop(id, None)
        return results, chain

    def advance(self, plan: Plan, call: OpCall, chain: dict[int, Any]) -> None:
        """Run one call of the chain alone, without the references."""
        graph, aliases = self.session.graph, self.session.planner.aliases
        ids = output_ids(graph, call)
        if self._gives_symint(call):
            return
        if call.index in aliases.views:
            source = aliases.views[call.index]
            if source in chain:
                chain[ids[0]] = chain[source].reshape(plan.dims[ids[0]])
            return
        dispatches = [step.dispatch for step in plan.steps if step.call.index == call.index]
        if not dispatches:
            chain.update({id: np.zeros(plan.dims[id], self.session.memory.tensor(id).dtype) for id in ids})
            return
        written = self.reference.written(call)
        given = self._given({id: chain[id] for id in (*input_ids(graph, call), *written) if id in chain})
        self._keep(chain, self.runner.run(plan, dispatches, given, (*ids, *written)))

    def _keep(self, chain: dict[int, Any], result: Mapping[int, Written]) -> None:
        root = self.session.planner.aliases.root
        for id, written in result.items():
            chain[id] = written.array
            for view in [v for v in chain if v != id and root.get(v) == id]:  # other names of the same memory
                chain[view] = written.array.reshape(chain[view].shape)

    def expected(self, id: int) -> np.ndarray:
        """What the reference has for a value, after `walk`."""
        return self.reference.value(id)

    def _gives_symint(self, call: OpCall) -> bool:
        return issubclass(self.session.planner.ops[call.index], SymIntOp)

    def _call(self, at: _Level, call: OpCall, chain: dict[int, Any]) -> OpResult:
        graph, aliases = self.session.graph, self.session.planner.aliases
        ids = output_ids(graph, call)
        dims = tuple(at.plan.dims[id] for id in ids if id in at.plan.dims)
        before = self.reference.operands(call)
        self.reference.step(call)
        if self._gives_symint(call):
            got, want = evaluate(at.plan.symints[ids[0]], at.env), self.reference.values[ids[0]]
            problem = "" if got == want else f"the plan says {got}, the reference {want}"
            return OpResult(call.index, call.name, ("host",), (), "bad" if problem else "host", problem=problem)
        dispatches = at.dispatches.get(call.index, [])
        if call.index in aliases.views or not dispatches:
            self.advance(at.plan, call, chain)
            status: Status = "view" if call.index in aliases.views else "empty"
            return OpResult(call.index, call.name, (status,), dims, status)
        bound = {tensor.value.id for d in dispatches for tensor in d.writes if isinstance(tensor, Tensor)}
        made = [id for id in ids if id in bound]  # an op that writes state may give a placeholder, which nobody reads
        expected = {id: self.reference.values[id] for id in (*made, *self.reference.written(call))}
        case = CheckedCall(call, at.plan, before, expected)
        if at.poisoned:
            self._look_for_poison(case)
        tolerance = self._tolerance(call, dispatches)
        alone = self.runner.run(at.plan, dispatches, self._given(before), case.wanted)
        judged = self.judge.judge(case, alone, tolerance)
        return OpResult(
            call.index,
            call.name,
            tuple(dispatch.kernel.name for dispatch in dispatches),
            dims,
            "bad" if judged.problem else "ok",
            tolerance,
            judged.errors,
            self._chained(case, dispatches, alone, chain, tolerance),
            judged.what,
            judged.problem,
            self._hints(case, dispatches, at.poisoned) if judged.problem else (),
            tuple(self._other(case, route) for route in at.others.get(call.index, ())),
        )

    def _chained(
        self,
        case: CheckedCall,
        dispatches: Sequence[Dispatch],
        alone: Mapping[int, Written],
        chain: dict[int, Any],
        tolerance: float,
    ) -> Errors:
        """Run the call on the GPU's own values, and keep what it gives."""
        expected = self._given(case.before)
        given = {id: chain[id] for id in expected}
        same = all(np.array_equal(given[id], array, equal_nan=True) for id, array in expected.items())
        self._keep(chain, alone if same else self.runner.run(case.plan, dispatches, given, case.wanted))
        found = [compare(chain[id], want, tolerance) for id, want in case.expected.items()]
        return max(found, key=lambda errors: errors.max_rel)

    def _other(self, case: CheckedCall, route: Route) -> RouteResult:
        names = tuple(dispatch.kernel.name for dispatch in route.dispatches)
        try:
            got = self.runner.run(route.plan, route.dispatches, self._given(case.before), case.wanted)
        except HightideError as error:
            return RouteResult(route.choice, route.option, names, None, str(error))
        judge = self.judge
        if not route.exact:
            judge, case = self._on_route(case, route)
        judged = judge.judge(case, got, self._tolerance(case.call, route.dispatches))
        return RouteResult(route.choice, route.option, names, judged.errors, judged.problem)

    def _on_route(self, case: CheckedCall, route: Route) -> tuple[Judge, CheckedCall]:
        """The case on a route that changes the numbers: beside a reference that changes them in the same way."""
        planner = forcing(self.session.planner, {route.choice: route.option})
        expected = ReferenceWalker(planner).evaluate(case.call, route.plan, case.before)
        return Judge(planner), replace(case, plan=route.plan, expected=expected)

    def _hints(self, case: CheckedCall, dispatches: Sequence[Dispatch], poisoned: bool) -> tuple[str, ...]:
        """What tells one fault from another: poison or not, the same again or not, constants as in the file or not."""
        given, state = self._given(case.before), self.session.planner.aliases.state
        clean = {id: np.nan_to_num(a, nan=0.0) if poisoned and id in state else a for id, a in given.items()}
        one, two = (self.runner.run(case.plan, dispatches, given, case.wanted) for _ in range(2))
        zeros = self.runner.run(case.plan, dispatches, clean, case.wanted, "zeros")
        hints = []
        if any(one[id].array.tobytes() != two[id].array.tobytes() for id in one):
            hints.append("it gives other bytes each time it runs")
        elif any(one[id].array.tobytes() != zeros[id].array.tobytes() for id in one if id not in state):
            hints.append(
                "what it gives depends on memory that nobody wrote: it reads beyond the live part of something"
            )
        return (*hints, *self.runner.changed_constants(case.call))

    def _tolerance(self, call: OpCall, dispatches: Sequence[Dispatch]) -> float:
        return tolerance_of(call.name, dispatches) if self.tolerance is None else self.tolerance

    def _given(self, before: Mapping[int, Any]) -> dict[int, np.ndarray]:
        """The tensors that a single op has to be given: not SymInts, nor other names of constants."""
        root, state = self.session.planner.aliases.root, self.session.planner.aliases.state
        return {
            id: value
            for id, value in before.items()
            if id in root and (self.session.memory.tensor(root[id]).constant is None or root[id] in state)
        }

    def _look_for_poison(self, case: CheckedCall) -> None:
        """The references must not see the poison: then it is not beyond what the op may read."""
        state = self.session.planner.aliases.state
        if any(is_float(v) and np.isnan(v).any() for id, v in case.before.items() if id not in state):
            return
        if any(is_float(v) and np.isnan(v).any() for id, v in case.expected.items() if id not in state):
            raise ReadsPoison


@dataclass(frozen=True)
class _Level:
    plan: Plan
    env: Env
    dispatches: Mapping[int, list[Dispatch]]  # by call
    others: Mapping[int, Sequence[Route]]  # routes that the calls do not take here
    poisoned: bool
