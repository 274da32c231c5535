"""The reference side of a comparison: a graph walked op by op on the NumPy references.

Ops compute in float64 and their results are kept as the GPU keeps them (float32, or halves). So both sides of
a comparison can be given the very same bits, and what differs is the op's own error, nothing that came with
its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from hightide.graph.graph import OpCall, input_ids, output_ids
from hightide.graph.values import TensorValue
from hightide.ops.binding import mutated_ids
from hightide.ops.blocks.layout import BLOCK_TYPES, dequantize
from hightide.ops.contract import Op
from hightide.planning.planner import Plan
from hightide.runtime.cpu_session import FLOATS, CpuSession
from hightide.runtime.session import Session

KEPT_BYTES = 1 << 30  # of unpacked weights: SmolLM2's are 540 MB


class Oracle(CpuSession):
    """A session's graph on the references; `start`, then `step` for every call in order."""

    def __init__(self, session: Session, dtype: Literal["float32", "float64"] = "float64") -> None:
        dynamic, names = [spec.dynamic for spec in session.specs], [spec.name for spec in session.specs]
        super().__init__(session.graph, dynamic, names, dtype=dtype)
        self.values: dict[int, Any] = {}
        self.plan: Plan | None = None

    def start(self, given: Sequence[Any], state: dict[int, np.ndarray]) -> None:
        """Take the inputs of a run, and the state that it finds."""
        inputs, self.plan, _ = self.level(given)
        self.values = {id: self._as_held(id, array).copy() for id, array in state.items()}
        for id, array in zip(self.graph.inputs, inputs, strict=True):
            value = self._input(id, array)
            self.values[id] = self._as_held(id, value) if isinstance(value, np.ndarray) else value

    def step(self, call: OpCall, op: type[Op]) -> None:
        """Run one call on the values that the calls before it left."""
        assert self.plan is not None
        with np.errstate(all="ignore"):  # infinities and NaNs go on silently, as on the GPU
            self._run_call(call, op, self.plan, self.values)
        if call.index in self.planner.aliases.views:
            return
        for id in output_ids(self.graph, call):
            if isinstance(self.values[id], np.ndarray):
                self.values[id] = self._as_held(id, self.values[id])
        for root in self.written(call, op):  # in place: views of it must see it
            self.values[root][...] = self._as_held(root, self.values[root])

    def forget(self, call: OpCall) -> None:
        """Drop what no later call reads."""
        for id in self._last_use.get(call.index, ()):
            if id not in self.planner.aliases.state:
                self.values.pop(id, None)

    def written(self, call: OpCall, op: type[Op]) -> tuple[int, ...]:
        """The memory that a call writes in place: state, or a tensor of this run."""
        return tuple(dict.fromkeys(self.planner.aliases.root[id] for id in mutated_ids(call)))

    def operands(self, call: OpCall, op: type[Op]) -> dict[int, Any]:
        """What a call is about to read (arrays and SymInts, not constants), by value; copies of what it writes."""
        written = self.written(call, op)
        root = self.planner.aliases.root
        ids = [id for id in (*input_ids(self.graph, call), *written) if id in self.values]
        return {id: self.values[id].copy() if root.get(id) in written else self.values[id] for id in ids}

    def judge(self, call: OpCall, op: type[Op], plan: Plan, values: Mapping[int, Any]) -> dict[int, np.ndarray]:
        """The outputs, and what is written in place, of one call on these values, which are not changed."""
        held = {id: self._as_held(id, v).copy() if isinstance(v, np.ndarray) else v for id, v in values.items()}
        root = self.planner.aliases.root
        for id in mutated_ids(call):  # what is written through a view is the memory behind it
            held[id] = held[root[id]].reshape(held[id].shape)
        with np.errstate(all="ignore"):
            self._run_call(call, op, plan, held)
        ids = (*output_ids(self.graph, call), *self.written(call, op))
        return {id: self._as_held(id, held[id]) for id in ids if id in held}

    def forget_weights(self) -> None:
        """Drop the unpacked weights."""
        self._unpacked.clear()

    def _as_held(self, id: int, array: np.ndarray) -> np.ndarray:
        """The array rounded to what a buffer keeps of it, in the type that the references compute in."""
        dtype = self._tensor(id).dtype
        if dtype not in FLOATS:
            return array
        kept = "float16" if dtype == "float16" else "float32"
        with np.errstate(all="ignore"):
            return array.astype(kept).astype(self.dtype)

    def _constant(self, value: TensorValue) -> np.ndarray:
        assert value.constant is not None
        if value.dtype not in BLOCK_TYPES:
            return self._as_held(value.id, super()._constant(value))
        if value.id not in self._unpacked:  # in float32, which has all that they are: half of float64's memory
            while sum(a.nbytes for a in self._unpacked.values()) > KEPT_BYTES:
                self._unpacked.pop(next(iter(self._unpacked)))
            self._unpacked[value.id] = dequantize(value.constant, value.dtype, value.dims)
        return self._unpacked[value.id].astype(self.dtype, copy=False)
