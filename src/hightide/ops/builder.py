"""Builds a graph by hand, op by op, with output dims taken from the ops themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hightide.graph.blob import AnyBlob, Blob, Zeros
from hightide.graph.graph import Graph, OpCall
from hightide.graph.symbols import SymExpr
from hightide.graph.values import ITEM_SIZE, Dims, ListValue, LiteralValue, SymIntValue, TensorValue, Value
from hightide.ops import REGISTRY
from hightide.ops.arguments import converted
from hightide.ops.binding import name_arguments
from hightide.ops.contract import Context, LiveInt, SymIntOp, Tensor


class _Zeros(dict[Any, int]):
    def __missing__(self, key: Any) -> int:
        return 0


class GraphBuilder:
    """`input` and `constant` make tensors, `call` adds an op and gives its output; values are the handles."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.calls: list[OpCall] = []
        self.inputs: list[int] = []
        self._symints: dict[int, SymExpr] = {}

    def input(self, dims: Sequence[int], dtype: str = "float32") -> TensorValue:
        value = self._tensor(tuple(dims), dtype)
        self.inputs.append(value.id)
        return value

    def constant(self, array: np.ndarray) -> TensorValue:
        data = np.ascontiguousarray(array).tobytes()
        return self._tensor(array.shape, str(array.dtype), Blob(data, 0, len(data)))

    def stored(self, dims: Sequence[int], dtype: str, data: AnyBlob) -> TensorValue:
        """A constant whose bytes lie in a file; `dtype` may be a GGUF block type."""
        return self._tensor(tuple(dims), dtype, data)

    def copied(self, value: TensorValue) -> TensorValue:
        """A constant of another graph."""
        copy = replace(value, id=len(self.values))
        self.values.append(copy)
        return copy

    def zeros(self, dims: Sequence[int], dtype: str = "float32") -> TensorValue:
        """Zeros, for state."""
        return self._tensor(tuple(dims), dtype, Zeros(math.prod(dims) * ITEM_SIZE[dtype]))

    def call(
        self,
        name: str,
        *args: Any,
        dtype: str | tuple[str, ...] = "float32",
        dims: Sequence[Dims] | None = None,
        **named: Any,
    ) -> Any:
        """Add a call. Arguments are values, numbers, None, or lists of these, in order or by name; `dtype` is of the
        output, or of each."""
        op = REGISTRY[name]
        given = [self._argument(arg) for arg in args]
        ids = name_arguments(op, given, self.values, {key: self._argument(arg) for key, arg in named.items()})
        positions = {id: n for n, id in enumerate(self.inputs)}
        ctx = Context(env=_Zeros(), input_positions=positions, scratch_limit=1 << 27)
        bound = op.bound(converted(op, {key: self._live(id) for key, id in ids.items()}))
        if isinstance(bound, SymIntOp):
            symint = SymIntValue(len(self.values), 0)
            self.values.append(symint)
            self._symints[symint.id] = bound.symint(ctx)
            self.calls.append(OpCall(len(self.calls), name, ids, symint.id))
            return symint
        out_dims = dims or bound.outputs(ctx)
        dtypes = (dtype,) * len(out_dims) if isinstance(dtype, str) else dtype
        outs = [self._tensor(d, t) for d, t in zip(out_dims, dtypes, strict=True)]
        out_id = outs[0].id if len(outs) == 1 else self._argument(outs)
        self.calls.append(OpCall(len(self.calls), name, ids, out_id))
        return outs[0] if len(outs) == 1 else tuple(outs)

    def graph(self, *outputs: Value) -> Graph:
        return Graph(tuple(self.values), tuple(self.calls), tuple(self.inputs), tuple(o.id for o in outputs))

    def _tensor(self, dims: Dims, dtype: str, constant: AnyBlob | None = None) -> TensorValue:
        value = TensorValue(len(self.values), tuple(dims), dtype, dtype, constant)
        self.values.append(value)
        return value

    def _argument(self, arg: Any) -> int:
        if isinstance(arg, TensorValue | SymIntValue | LiteralValue | ListValue):
            return arg.id
        if isinstance(arg, list | tuple) and any(isinstance(a, TensorValue | SymIntValue) for a in arg):
            items = tuple(self._argument(a) for a in arg)
            return self._add(ListValue(len(self.values), items))
        return self._add(LiteralValue(len(self.values), tuple(arg) if isinstance(arg, list) else arg))

    def _add(self, value: Value) -> int:
        self.values.append(value)
        return value.id

    def _live(self, id: int) -> Any:
        match self.values[id]:
            case TensorValue() as value:
                return Tensor(value, value.dims)
            case SymIntValue():
                return LiveInt(self._symints[id], 0)
            case LiteralValue(value=literal):
                return literal
            case ListValue(items=items):
                return tuple(self._live(item) for item in items)
