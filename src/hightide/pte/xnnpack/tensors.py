"""The tensors of an XNNPACK graph while it is translated: which value of the new graph holds each, and in which order.

XNNPACK's convolutions take NHWC, hightide's NCHW. So a value may be held with its dims in another order, and permutes
are emitted only where somebody needs the dims as they are: never in pairs. Codes are held as the floats that they
stand for, rounded to their grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

import numpy as np

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.xnngraph import PerTensor, XnnGraph, XnnNode, XnnValue
from hightide.graph.graph import FileCall
from hightide.graph.values import Dims, ListValue, LiteralValue, SymIntValue, TensorValue, Value
from hightide.pte.xnnpack.weights import Arrange, check_constant, constant_blob, float_type

Order = tuple[int, ...]
Made = TypeVar("Made", bound=Value | list[TensorValue])
NHWC: Order = (0, 2, 3, 1)  # a value [N, H, W, C] held as a tensor [N, C, H, W]
LIMITS = {"qint8": (-128, 127, "int8"), "quint8": (0, 255, "uint8")}  # of codes that a node may give


@dataclass(frozen=True)
class Held:
    """Dim i of the value is dim order[i] of the tensor."""

    tensor: TensorValue
    order: Order


class Tensors:
    def __init__(self, graph: XnnGraph) -> None:
        self.graph = graph
        self.values: list[Value] = []
        self.calls: list[FileCall] = []
        self.dynamic: dict[int, int] = {}  # a value to be rounded per row -> the value before that
        self._held: dict[int, Held] = {}
        self._ordered: dict[tuple[int, Order], TensorValue] = {}

    # ---- the new graph

    def tensor(self, dims: Dims, dtype: str = "float32", constant: Any = None) -> TensorValue:
        value = TensorValue(len(self.values), dims, dtype, dtype, constant)
        self.values.append(value)
        return value

    def call(self, name: str, *args: Any, out: Made) -> Made:
        """Adds a call and gives `out`; arguments are values, lists of tensors, or literals."""
        ids = tuple(self._argument(arg) for arg in (*args, out))
        self.calls.append(FileCall(len(self.calls), name, ids))
        return out

    def size_of(self, x: TensorValue, dim: int) -> SymIntValue:
        size = SymIntValue(len(self.values), x.dims[dim])
        self.values.append(size)
        self.call("sym_size.int", x, dim, out=size)
        return size

    def _argument(self, arg: Any) -> int:
        if isinstance(arg, TensorValue | SymIntValue):
            return arg.id
        if isinstance(arg, list):
            items = tuple(self._argument(item) for item in arg)
            made: Value = ListValue(len(self.values), items)
        else:
            made = LiteralValue(len(self.values), arg)
        self.values.append(made)
        return made.id

    # ---- values of the file

    def id(self, node: XnnNode, name: str) -> int:
        if name not in node.ids:
            raise ProgramError(f"{node} has no {name}")
        return node.ids[name]

    def value(self, node: XnnNode, name: str) -> XnnValue:
        return self.graph.values[self.id(node, name)]

    def hold(self, id: int, tensor: TensorValue, order: Order | None = None) -> None:
        if id in self._held or self.graph.values[id].constant is not None:
            raise ProgramError(f"value {id} is there already, and is computed")
        self._held[id] = Held(tensor, order or plain_order(tensor))

    def held(self, id: int) -> Held:
        if id not in self._held:
            value = self.graph.values[id]
            if id in self.dynamic:
                raise UnsupportedError("codes with a scale per row are for linears and convolutions only")
            if value.constant is None:
                raise ProgramError(f"value {id} is read before it is computed")
            order = tuple(range(len(value.dims)))
            return Held(self.ordered(id, order), order)
        return self._held[id]

    def plain(self, id: int) -> TensorValue:
        """The value with its dims as the file has them."""
        return self.ordered(id, tuple(range(len(self.graph.values[id].dims))))

    def ordered(self, id: int, order: Order) -> TensorValue:
        """The value as a tensor of which dim order[i] is its dim i."""
        if (id, order) not in self._ordered:
            value = self.graph.values[id]
            if id not in self._held and value.constant is not None:
                self._ordered[id, order] = self.constant(id, dims_in(value.dims, order), _arrangement(order))
            else:
                self._ordered[id, order] = self._permuted(self.held(id), order)
        return self._ordered[id, order]

    def constant(self, id: int, dims: Dims, arrange: Arrange | None) -> TensorValue:
        value = self.graph.values[id]
        if value.constant is None:
            raise UnsupportedError(f"value {id} has to be a constant, and is computed")
        check_constant(value)
        return self.tensor(dims, float_type(value), constant_blob(value, dims, arrange))

    def _permuted(self, held: Held, order: Order) -> TensorValue:
        if held.order == order:
            return held.tensor
        permutation = tuple(held.order[order.index(dim)] for dim in range(len(order)))
        dims = tuple(held.tensor.dims[dim] for dim in permutation)
        out = self.tensor(dims, held.tensor.dtype)
        self.call("aten.permute_copy.default", held.tensor, permutation, out=out)
        return out

    # ---- results

    def result(self, node: XnnNode, order: Order | None = None) -> TensorValue:
        """A new tensor for what a node gives, in floats."""
        value = self.value(node, "output")
        dims = value.dims if order is None else dims_in(value.dims, order)
        return self.tensor(dims, float_type(value))

    def give(self, node: XnnNode, tensor: TensorValue, order: Order | None = None, clamped: bool = False) -> None:
        """`tensor` is what the node gives, after the clamp that it asks for and rounded to its codes."""
        if node.limits is not None and not clamped:
            tensor = self.clamp(node, tensor)
        value = self.value(node, "output")
        if value.datatype in LIMITS:
            tensor = self.dequantized(value, self.quantized(value, tensor))
        elif value.datatype not in ("fp32", "fp16"):
            raise UnsupportedError(f"{node} gives a tensor of {value.datatype}")
        self.hold(self.id(node, "output"), tensor, order)

    def moved(self, node: XnnNode, tensor: TensorValue, order: Order, names: Sequence[str] = ("input",)) -> None:
        """As `give`, of an op that only moves elements: codes on the same grid stay what they are."""
        after = self.value(node, "output")
        before = [self.value(node, name) for name in names]
        same = all((value.datatype, value.scaling) == (after.datatype, after.scaling) for value in before)
        if same and node.limits is None:
            self.hold(self.id(node, "output"), tensor, order)
        else:
            self.give(node, tensor, order)

    def clamp(self, node: XnnNode, x: TensorValue) -> TensorValue:
        low, high = node.limits or (-inf, inf)
        if (low, high) == (-inf, inf):
            return x
        out = self.tensor(x.dims, x.dtype)
        if (low, high) == (0, inf):
            self.call("aten.relu.default", x, out=out)
        else:
            self.call("aten.clamp.default", x, low, high, out=out)
        return out

    def quantized(self, value: XnnValue, x: TensorValue) -> TensorValue:
        return self._codes("quantize", value, x, self.tensor(x.dims, LIMITS[value.datatype][2]))

    def dequantized(self, value: XnnValue, x: TensorValue) -> TensorValue:
        return self._codes("dequantize", value, x, self.tensor(x.dims, "float32"))

    def _codes(self, what: str, value: XnnValue, x: TensorValue, out: TensorValue) -> TensorValue:
        scaling = value.scaling
        if not isinstance(scaling, PerTensor):
            raise UnsupportedError(f"a computed {value.datatype} tensor without one scale is not supported")
        low, high, _ = LIMITS[value.datatype]
        name = f"quantized_decomposed.{what}_per_tensor.default"
        self.call(name, x, scaling.scale, scaling.zero, low, high, out=out)
        return out


def plain_order(tensor: TensorValue) -> Order:
    return tuple(range(len(tensor.dims)))


def dims_in(dims: Dims, order: Order) -> Dims:
    """The dims of a tensor that holds a value of `dims` in this order."""
    if sorted(order) != list(range(len(dims))):
        raise ProgramError(f"{list(order)} does not order the dims {list(dims)}")
    return tuple(dims[order.index(dim)] for dim in range(len(order)))


def _arrangement(order: Order) -> Arrange | None:
    permutation = tuple(order.index(dim) for dim in range(len(order)))
    if permutation == tuple(range(len(order))):
        return None
    return lambda array: np.transpose(array, permutation)
