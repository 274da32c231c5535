"""What is known of a tensor's dims at every level, without planning: which are numbers, which are the same.

Max dims alone do not tell: two live dims may have the same max, and a view may swap them. Here a dim is a number, or a
`LiveSize` that stands for one live size wherever it goes. Where nothing is known, a dim is a `LiveSize` of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hightide.graph.graph import OpCall
from hightide.graph.values import ListValue, LiteralValue, SymIntValue, TensorValue, Value
from hightide.ops import REGISTRY

ELEMENT = "et_vk.select_as_symint.default"
SYM_SIZE = ("sym_size.int", "aten.sym_size.int")
SLICES = ("aten.slice_copy.Tensor", "aten.slice.Tensor")
EXPANDS = ("aten.expand_copy.default", "aten.expand.default")
CAT = "aten.cat.default"
PERMUTES = ("aten.permute_copy.default", "aten.permute.default")
SPLITS = ("aten.split_with_sizes_copy.default", "aten.split_with_sizes.default")
ROWS_AS_WEIGHT = (
    "et_vk.rms_norm.default",
    "et_vk.linear_q4gsw.default",
    "hightide.linear_q4.default",
    "aten.linear.default",
    "hightide.linear.default",
    "hightide.adapted_linear.default",
)
LAYER_NORM = "aten.native_layer_norm.default"
LIKE = tuple(f"aten.{name}_like.default" for name in ("full", "zeros", "ones"))
AS_X = (  # dims of x
    "et_vk.rms_norm.default",
    "aten._softmax.default",
    "aten._log_softmax.default",
    "hightide.media_rows.default",
    "hightide.rotary.default",
    *LIKE,
)
SELECTS = ("aten.select_copy.int", "aten.select.int")
REDUCED = ("aten.any.dim", "aten.mean.dim", "aten.sum.dim_IntList")  # dims that may stay with a size of 1
# By family: ops whose output has the dims of one argument, but for a last one that another decides.
BUT_THE_LAST = {
    "linear": ("x", "weight"),
    "embedding": ("indices", "weight"),
    "attention": ("q", "v_cache"),
    "short_conv": ("mixed", "weight"),
}


@dataclass(frozen=True)
class LiveSize:
    """A size that a run decides: dim `axis` of value `id`, where it first appears (axis -1: the SymInt `id`)."""

    id: int
    axis: int


LiveDim: TypeAlias = int | LiveSize
KnownDims: TypeAlias = tuple[LiveDim, ...]


class LiveDims:
    """The dims of every tensor that was entered, in the order of calls."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._values = values  # grows with the graph
        self._dims: dict[int, KnownDims] = {}
        self._symints: dict[int, LiveDim] = {}
        self._same: dict[
            LiveSize, LiveDim
        ] = {}  # sizes that some call refuses unless they are this number, or this size
        self._factors: dict[LiveSize, tuple[LiveDim, ...]] = {}  # what a size is the product of
        self._positions: set[int] = set()  # SymInts that are read from an input
        self._sums: dict[int, tuple[int, int]] = {}  # SymInts that are the sum of two
        self._most: dict[int, int] = {}  # SymInts that are a tensor's size, and how large that is at most

    def of(self, id: int) -> KnownDims:
        if id not in self._dims:  # an input, a constant
            value = self._tensor(id)
            self._dims[id] = value.dims if value.constant is not None else _unknown(value)
        return tuple([self._found(dim) for dim in self._dims[id]])

    def fix(self, id: int) -> None:
        """Take a tensor that has become a constant."""
        self._dims[id] = self._tensor(id).dims

    def enter(self, call: OpCall) -> None:
        """Take a call whose arguments are known: its outputs are now, too."""
        out = self._values[call.out]
        if isinstance(out, SymIntValue):
            self._symints.setdefault(out.id, self._symint(call))
            return
        if call.name in ROWS_AS_WEIGHT:
            self._rows_as_weight(call)
        made = out.items if isinstance(out, ListValue) else (out.id,)
        for n, id in enumerate(made):
            if id not in self._dims:  # a value means the same, whichever call makes it
                known, value = self._made(call, n), self._tensor(id)
                self._dims[id] = _unknown(value) if known is None or len(known) != len(value.dims) else known

    def _symint(self, call: OpCall) -> LiveDim:
        if call.name in SYM_SIZE:
            dims, axis = self.of(call.args["x"]), self._literal(call.args["dim"])
            if isinstance(axis, int) and -len(dims) <= axis < len(dims):
                self._most[call.out] = self._tensor(call.args["x"]).dims[axis]
                return dims[axis]
        size = LiveSize(call.out, -1)
        if call.name == ELEMENT:
            self._positions.add(call.out)
        if call.name == "add":
            self._sums[call.out] = call.args["left"], call.args["right"]
        if call.name == "mul":
            self._factors[size] = tuple(self._size(call.args[side]) for side in ("left", "right"))
        return size

    def _rows_as_weight(self, call: OpCall) -> None:
        """The rows of x must be as long as those of the weight are."""
        x, dims = self._tensor(call.args["x"]), self.of(call.args["x"])
        if dims and isinstance(dims[-1], LiveSize) and self._fixed(call.args["weight"]):
            self._same[dims[-1]] = x.dims[-1]

    def _made(self, call: OpCall, n: int) -> KnownDims | None:
        """The dims of a call's output number n, as far as its op just passes them on."""
        op, args = REGISTRY[call.name], call.args
        if op.family == "views":
            return self._viewed(call)
        if op.family == "elementwise":
            tensors = [id for id in args.values() if isinstance(self._values[id], TensorValue)]
            return self._broadcast(call.out, [self.of(id) for id in tensors])
        if call.name in AS_X or (call.name == LAYER_NORM and n == 0):
            return self.of(args["x"])
        if op.family == "rotary" and "xq" in args:
            return self.of(args["xk" if n else "xq"])
        if call.name in SLICES:
            axis, dims = self._literal(args["dim"]) if "dim" in args else 0, self.of(args["x"])
            if not isinstance(axis, int):
                return None
            return tuple(
                self._sliced(call, n, dim) if axis in (n, n - len(dims)) else dim for n, dim in enumerate(dims)
            )
        if call.name == CAT:
            return self._joined(call)
        if call.name in SPLITS:
            return self._part(call, n)
        if call.name in EXPANDS:
            return self._expanded(call)
        if call.name in REDUCED and "keepdim" in args and self._literal(args["keepdim"]) is True:
            axes, dims = self._literal(args["dim"]), self.of(args["x"])
            over = axes if isinstance(axes, tuple) else (axes,)
            if not over or not all(isinstance(axis, int) for axis in over):
                return None
            return tuple(1 if n in over or n - len(dims) in over else dim for n, dim in enumerate(dims))
        if call.name in SELECTS:
            axis, dims = self._literal(args["dim"]), self.of(args["x"])
            if not isinstance(axis, int):
                return None
            return tuple(dim for n, dim in enumerate(dims) if axis not in (n, n - len(dims)))
        if call.name in PERMUTES:
            order, dims = self._literal(args["order"]), self.of(args["x"])
            return tuple(dims[axis] for axis in order) if isinstance(order, tuple) and len(order) == len(dims) else None
        if call.name == "aten.bmm.default":
            return (*self.of(args["x"])[:2], *self.of(args["y"])[2:])
        if call.name == "aten.index_select.default":
            axis, dims = self._literal(args["dim"]), self.of(args["x"])
            picked = self.of(args["indices"]) or (1,)
            return tuple(picked[0] if axis in (n, n - len(dims)) else dim for n, dim in enumerate(dims))
        if call.name == "hightide.take_tokens.default":
            return self.of(args["tokens"])
        leading, last = BUT_THE_LAST.get(op.family, ("", ""))
        last = "v_pool" if "v_pool" in args else last
        if leading in args and last in args:
            rows = self.of(args[leading])
            return (*(rows if op.family == "embedding" else rows[:-1]), self._last(call.out, args[last]))
        return None

    def _sliced(self, call: OpCall, axis: int, dim: LiveDim) -> LiveDim:
        """What a slice leaves of a dim: of a live position and so many rows from there on, all, or it is refused."""
        if not all(name in call.args for name in ("start", "end", "step")) or self._literal(call.args["step"]) != 1:
            return LiveSize(call.out, axis)
        start, end = call.args["start"], call.args["end"]
        if start in self._positions:
            for one, rows in itertools.permutations(self._sums.get(end, ())):
                if one == start:
                    return self._size(rows)
        elif isinstance(dim, int) and isinstance(first := self._values[start], LiteralValue):
            if isinstance(last := self._values[end], LiteralValue):
                return len(range(*slice(first.value, last.value).indices(dim)))
            if first.value in (None, 0) and self._most.get(end, dim + 1) <= dim:  # so many rows are there
                return self._size(end)
        return LiveSize(call.out, axis)

    def _joined(self, call: OpCall) -> KnownDims | None:
        parts = [self.of(id) for id in self._tensors(call.args["tensors"])]
        axis = self._literal(call.args["dim"]) if "dim" in call.args else 0
        ranks = {len(part) for part in parts}
        if len(ranks) != 1 or min(ranks) < 2 or not isinstance(axis, int):  # an empty vector goes with any rank
            return None
        dims = [next((dim for dim in column if isinstance(dim, int)), column[0]) for column in zip(*parts, strict=True)]
        along = [part[axis] for part in parts]
        numbers = [dim for dim in along if isinstance(dim, int)]
        at = axis % len(dims)
        dims[at] = (
            sum(numbers) if len(numbers) == len(along) else along[0] if len(along) == 1 else LiveSize(call.out, at)
        )
        return tuple(dims)

    def _part(self, call: OpCall, n: int) -> KnownDims | None:
        sizes, dims = self._sizes(call.args["sizes"]), self.of(call.args["x"])
        axis = self._literal(call.args["dim"]) if "dim" in call.args else 0
        if n >= len(sizes) or not isinstance(axis, int):
            return None
        return tuple(sizes[n] if axis in (at, at - len(dims)) else dim for at, dim in enumerate(dims))

    def _expanded(self, call: OpCall) -> KnownDims | None:
        sizes, dims = self._sizes(call.args["sizes"]), self.of(call.args["x"])
        if len(sizes) != len(dims):
            return None
        return tuple(dim if size == -1 else self._found(size) for dim, size in zip(dims, sizes, strict=True))

    def _viewed(self, call: OpCall) -> KnownDims | None:
        source, args = self.of(call.args["x"]), call.args
        if "sizes" in args:
            return self._reshaped(call.out, source, self._sizes(args["sizes"]))
        if "dims" in args:
            given = self._literal(args["dims"])
            drop = {
                d % max(len(source), 1) for d in (given if isinstance(given, tuple) else (given,)) if isinstance(d, int)
            }
            most = self._tensor(args["x"]).dims
            return tuple(d for axis, d in enumerate(source) if axis not in drop or most[axis] != 1)
        if "dim" in args:
            axis = self._literal(args["dim"])
            at = axis % (len(source) + 1) if isinstance(axis, int) else 0
            return (*source[:at], 1, *source[at:])
        return source

    def _reshaped(self, out: int, source: KnownDims, sizes: Sequence[LiveDim]) -> KnownDims:
        """The number of elements is the same, so a live size that is left alone among numbers is known."""
        dims = tuple(LiveSize(out, n) if size == -1 else self._found(size) for n, size in enumerate(sizes))
        (before, rows), (after, columns) = self._parts(source), self._parts(dims)
        for size in tuple(rows):  # one may be there twice
            if size in columns:
                rows.remove(size)
                columns.remove(size)
        if len(columns) == 1 and not rows and after and before % after == 0:
            self._same[columns[0]] = before // after
        elif len(rows) == len(columns) == 1 and before == after != 0 and rows != columns:
            self._same[columns[0]] = rows[0]
        return dims

    def _parts(self, dims: KnownDims) -> tuple[int, list[LiveSize]]:
        """The product of the numbers, and the live sizes; of a size that is a product, its factors."""
        number, sizes, left = 1, list[LiveSize](), list(dims)
        while left:
            dim = self._found(left.pop())
            if isinstance(dim, int):
                number *= dim
            elif dim in self._factors:
                left += self._factors[dim]
            else:
                sizes.append(dim)
        return number, sizes

    def _found(self, dim: LiveDim) -> LiveDim:
        while isinstance(dim, LiveSize) and dim in self._same:
            dim = self._same[dim]
        return dim

    def _sizes(self, id: int) -> list[LiveDim]:
        value = self._values[id]
        if isinstance(value, ListValue):
            return [self._size(item) for item in value.items]
        literal = self._literal(id)
        return [d for d in literal if isinstance(d, int)] if isinstance(literal, tuple) else []

    def _size(self, id: int) -> LiveDim:
        literal = self._literal(id)
        return literal if isinstance(literal, int) else self._symints.get(id, LiveSize(id, -1))

    def _broadcast(self, out: int, operands: Sequence[KnownDims]) -> KnownDims:
        rank = max(map(len, operands), default=0)
        padded = [(1,) * (rank - len(dims)) + dims for dims in operands]
        dims: list[LiveDim] = []
        for axis, column in enumerate(zip(*padded, strict=True)):
            sizes = {size for size in column if size != 1}
            numbers = [size for size in sizes if isinstance(size, int)]
            if len(sizes) > 1 and not numbers:  # either may be 1
                dims.append(LiveSize(out, axis))
            else:
                dims.append(numbers[0] if numbers else sizes.pop() if sizes else 1)
        return tuple(dims)

    def _last(self, out: int, weight: int) -> LiveDim:
        """The last dim of an output that a weight decides."""
        most = self._tensor(out).dims
        return most[-1] if self._fixed(weight) else LiveSize(out, len(most) - 1)

    def _fixed(self, weight: int) -> bool:
        """Whether a weight, or all its parts, have the same dims at every level."""
        value = self._values[weight]
        parts = value.items if isinstance(value, ListValue) else (weight,)
        return all(isinstance(dim, int) for part in parts for dim in self.of(part))

    def _literal(self, id: int) -> object:
        value = self._values[id]
        return value.value if isinstance(value, LiteralValue) else None

    def _tensors(self, id: int) -> tuple[int, ...]:
        value = self._values[id]
        return value.items if isinstance(value, ListValue) else (id,)

    def _tensor(self, id: int) -> TensorValue:
        value = self._values[id]
        assert isinstance(value, TensorValue)
        return value


def _unknown(value: TensorValue) -> KnownDims:
    return tuple(most if most <= 1 else LiveSize(value.id, axis) for axis, most in enumerate(value.dims))
