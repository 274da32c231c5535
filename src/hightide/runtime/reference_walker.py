"""A graph walked op by op on the NumPy references, to compare a GPU with.

Ops compute in float64 and their results are rounded to what a buffer keeps of them (float32, or halves). So both sides
of a comparison can be given the very same bits, and what differs is the op's own error, nothing that came with its
inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hightide.graph.graph import OpCall, input_ids, output_ids
from hightide.graph.values import TensorValue
from hightide.ops.binding import mutated_ids
from hightide.ops.blocks.layout import BLOCK_TYPES, dequantize
from hightide.planning.planner import Plan, Planner
from hightide.runtime.references import FLOATS, Precision, References, Values

KEPT_BYTES = 1 << 30  # of weights that are kept in memory: SmolLM2's are 540 MB


class ReferenceWalker:
    """The graph of a planner on the references, each as its route has it: `start`, then `step` for every call in order.

    Unless they are `rounded`, values may lie between two float32s.
    """

    def __init__(self, planner: Planner, dtype: Precision = "float64", rounded: bool = True) -> None:
        self.planner, self.graph = planner, planner.graph
        self.values: Values = {}
        self._references = _HeldReferences(planner, dtype, rounded)
        self._plan: Plan | None = None

    def start(self, plan: Plan, inputs: Sequence[np.ndarray], state: Mapping[int, np.ndarray]) -> None:
        """Take a level's plan, the inputs of a run and the state that it finds."""
        self._plan = plan
        self.values = {id: self._references.rounded(id, array).copy() for id, array in state.items()}
        for id, array in zip(self.graph.inputs, inputs, strict=True):
            self.values[id] = self._references.rounded(id, self._references.input(id, array))

    def step(self, call: OpCall) -> None:
        """Run one call on the values that the calls before it left."""
        assert self._plan is not None
        with np.errstate(all="ignore"):  # infinities and NaNs go on silently, as on the GPU
            self._references.run_call(call, self._plan, self.values)
        if call.index in self.planner.aliases.views:
            return
        for id in output_ids(self.graph, call):
            self.values[id] = self._references.rounded(id, self.values[id])
        for root in self.written(call):  # in place: views of it must see it
            self.values[root][...] = self._references.rounded(root, self.values[root])

    def value(self, id: int) -> np.ndarray:
        """What a value is now."""
        return np.asarray(self._references.argument(id, self.values))

    def dropped(self, call: OpCall) -> list[int]:
        """The values that no call after this one reads; state is not among them."""
        state = self.planner.aliases.state
        return [id for id in self._references.last_use.get(call.index, ()) if id not in state]

    def forget(self, call: OpCall) -> None:
        """Drop what no later call reads."""
        for id in self.dropped(call):
            self.values.pop(id, None)

    def written(self, call: OpCall) -> tuple[int, ...]:
        """The memory that a call writes in place: state, or a tensor of this run."""
        return tuple(dict.fromkeys(self.planner.aliases.root[id] for id in mutated_ids(call)))

    def operands(self, call: OpCall) -> dict[int, Any]:
        """What a call is about to read (arrays and SymInts, not constants), by value; copies of what it writes."""
        written = self.written(call)
        root = self.planner.aliases.root
        ids = [id for id in (*input_ids(self.graph, call), *written) if id in self.values]
        return {id: self.values[id].copy() if root.get(id) in written else self.values[id] for id in ids}

    def evaluate(self, call: OpCall, plan: Plan, values: Mapping[int, Any]) -> dict[int, np.ndarray]:
        """The outputs, and what is written in place, of one call on these values, which are not changed."""
        rounded = self._references.rounded
        held = {id: rounded(id, v).copy() if isinstance(v, np.ndarray) else v for id, v in values.items()}
        root = self.planner.aliases.root
        for id in mutated_ids(call):  # what is written through a view is the memory behind it
            held[id] = held[root[id]].reshape(held[id].shape)
        with np.errstate(all="ignore"):
            self._references.run_call(call, plan, held)
        ids = (*output_ids(self.graph, call), *self.written(call))
        return {id: rounded(id, held[id]) for id in ids if id in held}

    def forget_weights(self) -> None:
        """Drop the unpacked weights."""
        self._references.forget_weights()


class _HeldReferences(References):
    """Constants are rounded too; they are kept as long as there is room."""

    def __init__(self, planner: Planner, dtype: Precision, rounded: bool) -> None:
        super().__init__(planner, dtype)
        self._rounds = rounded

    def result(self, call: OpCall, plan: Plan, given: Mapping[str, Any]) -> Any:
        """On the routes that the planner takes, as far as they change the numbers."""
        op = next((step.op for step in plan.steps if step.call.index == call.index), None)
        return super().result(call, plan, given) if op is None else op.evaluate_on(self.planner.choices, given)

    def rounded(self, id: int, value: Any) -> Any:
        """An array with what a buffer keeps of it, in the type that the references compute in."""
        if not isinstance(value, np.ndarray):
            return value
        if not self._rounds:
            return value.astype(self.dtype) if value.dtype.kind == "f" else value
        dtype = self.tensor(id).dtype
        if dtype not in FLOATS:
            return value
        with np.errstate(all="ignore"):
            return value.astype("float16" if dtype == "float16" else "float32").astype(self.dtype)

    def constant(self, value: TensorValue) -> np.ndarray:
        if value.id not in self._kept:
            while self.kept_bytes > KEPT_BYTES:
                self._kept.pop(next(iter(self._kept)))
        if value.dtype not in BLOCK_TYPES:
            rounded: np.ndarray = self.rounded(value.id, super().constant(value))
            return rounded
        # In float32, which has all that they are: half of float64's memory.
        assert value.constant is not None
        data, dtype, dims = value.constant, value.dtype, value.dims
        return self._keep(value, lambda: dequantize(data, dtype, dims)).astype(self.dtype, copy=False)
