"""A graph on the NumPy references: the executor of a machine without an adapter, and what tests compare with.

It plans as the GPU session does, without dispatches, so both refuse the same calls with the same words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np

from hightide.errors import HightideError, InputError
from hightide.graph.graph import Graph, OpCall, output_ids
from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.planning.levels import (
    InputElements,
    InputSpec,
    Levels,
    MaxElements,
    check_count,
    check_int32,
    check_run,
    graph_inputs,
    live_symint,
)
from hightide.planning.planner import Plan, Planner
from hightide.runtime.references import Precision, References, Values
from hightide.runtime.room import Needs, check_host, host_needs, largest_call
from hightide.runtime.session import (
    NONE_FED,
    BaseSession,
    Fed,
    Feed,
    RowCopies,
    Session,
    Want,
    check_rows_in,
    is_odd,
    state_rows,
)


class CpuSession(BaseSession):
    """Runs one graph on the ops' references, with float tensors held as `dtype`.

    With float64 the float outputs are float64 too.
    """

    name = "NumPy"

    def __init__(
        self,
        graph: Graph,
        dynamic: Sequence[bool] | None = None,
        names: Sequence[str] | None = None,
        dtype: Precision = "float32",
    ) -> None:
        super().__init__()
        self.graph = graph
        self.specs: list[InputSpec] = graph_inputs(graph, dynamic, names)
        self.planner = Planner(graph, dispatch=False)
        self.planner.plan_max(MaxElements())  # refuses what no level could run
        check_host("the program", host_needs(graph, self.planner.aliases))
        self.references = References(self.planner, dtype)
        self.begin(is_first=True)

    def begin(self, is_first: bool) -> None:
        """Make what is a session's own."""
        self._is_first = is_first
        self.levels: Levels[Plan] = Levels(self.planner, self.max_levels)
        self.references.holders += 1
        self.state: dict[int, np.ndarray] = self.references.initial_state()
        self._fed: dict[int, np.ndarray] = {}  # by input: its elements, flat

    def sibling(self) -> CpuSession:
        """One more session over this one's constants, with state of its own."""
        self.check_open()
        other = copy(self)
        BaseSession.__init__(other)
        other.begin(is_first=False)
        return other

    def run(
        self, given: Sequence[Any], after: Callable[[OpCall, Values], None] = lambda call, values: None
    ) -> list[np.ndarray]:
        """Outputs at the live dims of `given`; state changes only if every op succeeds.

        `after` is told of every call that ran, and the values then.
        """
        with self.lock:
            return self._run(given, after)

    def _run(self, given: Sequence[Any], after: Callable[[OpCall, Values], None]) -> list[np.ndarray]:
        inputs, plan, env = self.level(given)
        check_run(plan, inputs, self.specs, env)
        for spec, array in zip(self.specs, inputs, strict=True):
            if array.dtype == np.int64 and array.size:
                check_int32(spec.name, int(array.min()), int(array.max()))
        for expr in plan.symints.values():
            live_symint(expr, env)

        state = {id: array.copy() for id, array in self.state.items()}  # ops write in place
        values: Values = dict(state)
        for id, array in zip(self.graph.inputs, inputs, strict=True):
            values[id] = self.references.input(id, array)
        with np.errstate(all="ignore"):  # infinities and NaNs go on silently, as on the GPU
            for call in self.graph.calls:
                self.references.run_call(call, plan, values)
                after(call, values)
                self.references.forget(call, values)
        outputs = [self.references.output(id, values) for id in self.graph.outputs]
        self.state = state
        return outputs

    def launch(self, given: Sequence[Any], want: Want = None, feed: Feed = NONE_FED) -> list[np.ndarray]:
        """Runs at once; see `Session.launch`."""
        with self.lock:
            for n, value in enumerate(given):
                if isinstance(value, Fed) and value.first is not None:
                    self._feed(value.first.reshape(-1), n)
            given = [self._left(n, v.dims) if isinstance(v, Fed) else v for n, v in enumerate(given)]
            outputs = self.run(given)
            for output, target in feed.items():
                elements = outputs[output].reshape(-1)
                # -1, no token: clamped as on the GPU
                self._feed(elements.clip(min=0) if elements.dtype.kind == "i" else elements, target)
            return outputs if want is None else [outputs[n] for n in want]

    def _feed(self, elements: np.ndarray, target: int) -> None:
        held = self._left(target, self.specs[target].dims).reshape(-1).copy()
        if elements.size > held.size:
            raise HightideError(f"{elements.size} elements do not fit the input that they are fed to")
        held[: elements.size] = elements
        self._fed[target] = held

    def _left(self, n: int, dims: Dims) -> np.ndarray:
        """The beginning of what was left in an input."""
        spec = self.specs[n]
        held = self._fed.get(n, np.zeros(math.prod(spec.dims), spec.dtype))
        return held[: math.prod(dims)].reshape(dims)

    def run_into(self, given: Sequence[Any], to: Session, position: int, row: int) -> None:
        """Run, and put the first output into an input of another session; see `Session.run_into`."""
        to.fill_rows(position, row, self.run(given)[0])

    def fill_rows(self, position: int, row: int, rows: np.ndarray) -> None:
        """Write rows of an input that runs are given `Fed` for."""
        self.check_open()
        with self.lock:
            count = self.check_rows(position, row, rows.shape)
            most, width = self.specs[position].dims
            held = self._left(position, (most, width)).copy()
            held[row : row + count] = rows.reshape(count, width)
            self._fed[position] = held.reshape(-1)

    def collect(self, ticket: list[np.ndarray]) -> list[np.ndarray]:
        self.check_open()
        return ticket

    def abandon(self) -> None:
        """Nothing is ever under way."""

    def recover(self) -> None:
        """Nothing is ever lost."""

    def first_odd(self, given: Sequence[Any]) -> OpCall | None:
        """Run, and give the first op whose output has NaN or +infinity."""
        found: list[OpCall] = []

        def look(call: OpCall, values: Values) -> None:
            if not found and any(is_odd(np.asarray(values[id])) for id in output_ids(self.graph, call)):
                found.append(call)

        self.run(given, look)
        return found[0] if found else None

    def level(self, given: Sequence[Any]) -> tuple[list[np.ndarray], Plan, Env]:
        """The inputs as arrays, the plan of their level, and the input elements that SymInts read."""
        self.check_open()
        check_count(self.specs, given)
        inputs = [spec.array(value) for spec, value in zip(self.specs, given, strict=True)]
        env = InputElements(inputs, self.specs)
        with self.lock:
            return inputs, self.levels.find(tuple(array.shape for array in inputs), env, self._checked), env

    def _checked(self, plan: Plan) -> Plan:
        """A new level, whose tensors must fit into memory."""
        check_host("a call of these dims", Needs(0, 0, largest_call(self.graph, plan)))
        return plan

    def reset(self) -> None:
        """Put mutable state (KV caches) back to what the program says it is at the start."""
        self.check_open()
        self.state = self.references.initial_state()

    def snapshot(self) -> Any:
        """The state, for `restore`; a run replaces it whole, so nothing is copied."""
        self.check_open()
        return self.state

    def restore(self, snapshot: Any) -> None:
        self.check_open()
        self.state = snapshot

    def read_state(self) -> list[np.ndarray]:
        """Mutable state as arrays, in a fixed order."""
        self.check_open()
        return [self.state[id].copy() for id in sorted(self.state)]

    def write_state(self, arrays: Sequence[np.ndarray]) -> None:
        self.check_open()
        self.state = {id: np.array(array) for id, array in zip(sorted(self.state), arrays, strict=True)}

    def copy_rows(self, copies: RowCopies) -> None:
        """Copy rows of every state tensor [1, C, ...]."""
        self.check_open()
        check_rows_in(self._rows(), *(span for a, b, n in copies for span in ((a, n), (b, n))))
        state = {id: array.copy() for id, array in self.state.items()}  # a snapshot keeps the old one
        for source, target, count in copies:
            for array in state.values():
                array[:, target : target + count] = array[:, source : source + count].copy()
        self.state = state

    def read_rows(self, first: int, count: int) -> list[np.ndarray]:
        """Rows of every state tensor, in the order of `read_state`."""
        self.check_open()
        check_rows_in(self._rows(), (first, count))
        return [self.state[id][:, first : first + count].copy() for id in sorted(self.state)]

    def write_rows(self, first: int, arrays: Sequence[np.ndarray]) -> None:
        self.check_open()
        state = {}
        for id, given in zip(sorted(self.state), arrays, strict=True):
            state[id] = array = self.state[id].copy()
            if given.shape[:1] != (1,) or given.shape[2:] != array.shape[2:]:
                raise InputError(f"rows of {list(given.shape)} do not go into state of {list(array.shape)}")
            check_rows_in(self._rows(), (first, given.shape[1]))
            array[:, first : first + given.shape[1]] = given
        self.state = state

    def _rows(self) -> int:
        return state_rows(array.shape for array in self.state.values())

    def device_bytes(self) -> dict[str, int]:
        """Memory by kind: on the host, only what this session made itself."""
        self.check_open()
        state = sum(array.nbytes for array in self.state.values())
        return {"weights": self.references.kept_bytes if self._is_first else 0, "state": state}

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.state, self._fed = {}, {}
            self.levels.clear()
            self.references.release()
