"""A run of a whole method in which dims and integers remember how they were made (`formulas.Live`).

Arrays are computed as always, so that branches and everything that depends on data are what they are. With every
value goes its trace: its dims, or its number, with a formula. Where an op cannot give the dims of its outputs from
traces, or gives others than the array has, plain numbers are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import HightideError
from hightide.formats.program_file import TensorSpec, ValueListSpec
from hightide.graph.symbols import Element, Env, evaluate
from hightide.graph.values import Dims, TensorValue
from hightide.ops.arguments import named
from hightide.ops.contract import Context, Op, SymIntOp, Tensor
from hightide.pte.interpreter import Observer, PartCall, Run
from hightide.pte.kernel_calls import Signature, find_op
from hightide.pte.program import Method
from hightide.tools.levels.varying import ElementAt

ITEM = find_op("aten::_local_scalar_dense")


@dataclass(frozen=True)
class PartInputs:
    """What one part was given."""

    dims: list[Dims]
    env: Env


@dataclass(frozen=True)
class MethodRun:
    """What was seen in a run."""

    parts: dict[int, PartInputs]  # by the number of the delegate, those that it came to
    values: dict[int, Any]  # dims of the tensors, and the integers, that instructions gave
    outputs: list[Dims]


class MethodTrace(Observer):
    """Runs a method and keeps what its parts are given."""

    def __init__(self, method: Method) -> None:
        self._method, self._file = method, method.interpreter.method
        self._traces: dict[int, Any] = {}  # value id -> dims or number
        self._items: dict[tuple[int, int], int] = {}  # (value id, flat index) -> number in an input
        self._parts: dict[int, PartInputs] = {}
        self._values: dict[int, Any] = {}

    def trace(self, given: Sequence[np.ndarray], dims: Sequence[Dims], values: Mapping[ElementAt, int]) -> MethodRun:
        """A run with these inputs; state stays as it was."""
        self._parts, self._values = {}, {}
        self._items = {(self._file.inputs[n], flat): value for (n, flat), value in values.items()}
        self._traces = {}
        for id, d in zip(self._file.inputs, dims, strict=True):
            number = self._items.get((id, 0))
            self._traces[id] = d if isinstance(self._file.values[id], TensorSpec) else number
        outputs = self._method.observe(given, self)
        last = [self._traces.get(id) for id in self._file.outputs]
        shapes = [d if d == array.shape else array.shape for d, array in zip(last, outputs, strict=True)]
        return MethodRun(self._parts, self._values, shapes)

    def kernel(self, op: type[Op], call: Signature, values: Sequence[Any], run: Run) -> None:
        args = [self._traced(id, values) for id in call.reads]
        run()
        ctx = Context(env={}, input_positions={}, scratch_limit=1 << 62)
        try:
            made: Iterable[Any]
            if op is ITEM:
                made = [self._items.get((call.reads[0], 0))]
            else:
                bound = op.bound(named(op, args))
                made = [bound.symint(ctx)] if isinstance(bound, SymIntOp) else bound.outputs(ctx)
            self._keep(call.writes, list(made), values)
        # Traces are not the arrays that an op expects, and some are unknown: whatever fails, its dims stay plain.
        except (HightideError, NotImplementedError, TypeError, ValueError, IndexError, AttributeError, KeyError):
            self._keep(call.writes, [], values)

    def delegate(self, call: PartCall, values: Sequence[Any], run: Run) -> None:
        session = call.session
        traces = [self._traced(id, values) for id in call.reads]
        dims = [s.dims if isinstance(s, Tensor) else () for s in traces]
        env: dict[Element, int] = _Elements(call.inputs)
        for n, (id, trace) in enumerate(zip(call.reads, traces, strict=True)):
            if isinstance(trace, Tensor):
                env.update({Element(n, flat): v for (value, flat), v in self._items.items() if value == id})
            else:
                env[Element(n, 0)] = trace
        self._parts.setdefault(call.number, PartInputs(dims, env))
        run()
        try:
            plan = session.planner.plan(dims, env)
        except HightideError:  # an integer that `_Elements` does not know decides a shape
            self._keep(call.writes, [], values)
            return
        outputs = [
            plan.dims[id] if id in plan.dims else evaluate(plan.symints[id], env) if id in plan.symints else None
            for id in session.graph.outputs
        ]
        self._keep(call.writes, outputs, values)

    def _traced(self, id: int, values: Sequence[Any]) -> Any:
        """An argument as an op's `outputs` takes it."""
        spec = self._file.values[id]
        if isinstance(spec, ValueListSpec):
            return tuple(None if item == -1 else self._traced(item, values) for item in spec.items)
        if isinstance(spec, TensorSpec):
            dims = self._traces.get(id)
            actual = np.shape(values[id])
            tensor = TensorValue(id, spec.dims, spec.dtype, spec.dtype)
            return Tensor(tensor, dims if dims == actual else actual)
        number = self._traces.get(id)
        return number if number is not None and number == values[id] else values[id]

    def _keep(self, ids: Sequence[int], made: Sequence[Any], values: Sequence[Any]) -> None:
        """Traces that agree with what was computed; others are forgotten."""
        for n, id in enumerate(ids):
            trace = made[n] if n < len(made) else None
            value = values[id]
            actual = np.shape(value) if isinstance(self._file.values[id], TensorSpec) else value
            if trace is not None and trace == actual:
                self._traces[id] = trace
            else:
                self._traces.pop(id, None)
            if isinstance(actual, tuple | int):
                self._values[id] = self._traces.get(id, actual)


class _Elements(dict[Element, int]):
    """The integers that a part reads from its inputs, where no formula is known."""

    def __init__(self, given: Sequence[Any]) -> None:
        super().__init__()
        self.given = [g if np.size(g) <= 64 else None for g in given]  # integers for shapes come in small tensors

    def __missing__(self, element: Element) -> int:
        given = self.given[element.position]
        self[element] = 0 if given is None else int(np.reshape(given, -1)[element.flat])
        return self[element]
