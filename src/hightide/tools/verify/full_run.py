"""A normal run of a level: the same bytes as its ops one by one, and the same bytes again.

Ops that are right alone can still be wrong together: a buffer is reused too early, a bind group or a parameter block
belongs to another op, an output is copied from the wrong place. So the outputs and the state of a normal run must be,
bit for bit, what the chain of single ops gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from hightide.errors import HightideError
from hightide.gpu.recording import Watch
from hightide.graph.graph import OpCall, output_ids
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.words import held_dtype
from hightide.tools.verify.walk import Walker

Outcome: TypeAlias = tuple[list[np.ndarray], list[np.ndarray]]  # outputs, state


def check_full_run(
    walker: Walker,
    given: Sequence[Any],
    state: Mapping[int, np.ndarray],
    chain: Mapping[int, np.ndarray],
    repeats: int,
) -> tuple[Outcome | None, list[str]]:
    """The outputs and state of a normal run, and what is wrong with it."""
    session, problems = walker.session, []
    try:
        first = full_run(session, given, state)
        runs = [full_run(session, given, state) for _ in range(repeats - 1)]
    except HightideError as error:
        return None, [f"the run as a whole fails: {error}"]
    for n, other in enumerate(runs, 2):
        if differing := _differing(session, first, other):
            problems.append(f"run {n} of the same inputs gives other bytes than run 1 in {differing}")
            break
    alone = (
        [np.asarray(chain.get(id, first[0][n])) for n, id in enumerate(session.graph.outputs)],
        [chain[id] for id in sorted(session.planner.aliases.state)],
    )
    if not problems and (differing := _differing(session, first, alone)):
        where = FirstDifference(walker, given, state).find()
        problems.append(f"the run as a whole gives other bytes than its ops one by one, in {differing}: {where}")
    return first, problems


def full_run(session: GpuSession, given: Sequence[Any], state: Mapping[int, np.ndarray]) -> Outcome:
    """A normal run on poisoned memory, from this state."""
    session.write_state([state[id] for id in sorted(state)])
    session.poison()
    outputs = session.run(given)
    return outputs, session.read_state()


def _differing(session: GpuSession, one: Outcome, other: Outcome) -> str:
    """What of two runs is not the same, bit for bit."""
    names = [f"output {n}" for n in range(len(one[0]))]
    names += [f"state {id}" for id in sorted(session.planner.aliases.state)]
    pairs = zip(names, (*one[0], *one[1]), (*other[0], *other[1]), strict=True)
    return ", ".join(name for name, a, b in pairs if a.tobytes() != np.asarray(b).astype(a.dtype).tobytes())


class FirstDifference(Watch):
    """Watches a normal run for the first op whose bytes are not those that it gives alone."""

    def __init__(self, walker: Walker, given: Sequence[Any], state: Mapping[int, np.ndarray]) -> None:
        self.session, self.walker, self.given, self.state = walker.session, walker, given, state
        arrays, self.plan, _ = self.session.level(given)
        self.chain: dict[int, Any] = dict(zip(self.session.graph.inputs, arrays, strict=True))
        self.chain.update({id: array.copy() for id, array in state.items()})
        self.next = 0  # the first call that the chain has not done
        self.found = ""

    def find(self) -> str:
        """A sentence that names the op."""
        self.session.write_state([self.state[id] for id in sorted(self.state)])
        self.session.poison()
        self.session.collect(self.session.launch(self.given, watch=self))
        return (
            self.found or "one op at a time it gives the right ones, so some dispatches depend on each other's timing"
        )

    def after(self, call: OpCall) -> None:
        if self.found:
            return
        graph, memory = self.session.graph, self.session.memory
        for at in graph.calls[self.next : call.index + 1]:
            self.walker.advance(self.plan, at, self.chain)
        self.next = call.index + 1
        for id in (*output_ids(graph, call), *self.walker.reference.written(call)):
            there = memory.read(id, self.plan.dims[id])
            if there.tobytes() != np.asarray(self.chain[id]).astype(held_dtype(memory.tensor(id).dtype)).tobytes():
                self.found = f"{call} is the first, in value {id}: memory, a bind group or parameters are not its own"
                return
