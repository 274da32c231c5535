"""Live integers: read from an input element or a live dim, and computed on."""

from __future__ import annotations

import numpy as np

from hightide.errors import InputError
from hightide.graph import symbols
from hightide.graph.symbols import SymExpr
from hightide.ops.legacy import Context, LiveInt, SymIntOp, Tensor, add, expr_of, normalize_dim, op, strides_of


@op("et_vk.select_as_symint.default")
class SelectAsSymInt(SymIntOp):
    """The integer at [0, ..., index, ..., 0] of an input, `index` along `dim`."""

    def symint(self, ctx: Context, x: Tensor, dim: int, index: int) -> SymExpr:
        position = ctx.input_positions.get(x.value.id)
        if position is None:
            raise InputError("a SymInt can be read from a graph input only, not from a computed tensor")
        return symbols.element(position, _element(x.dims, dim, index))

    def reference(self, x: np.ndarray, dim: int, index: int) -> int:
        return int(x.reshape(-1)[_element(x.shape, dim, index)])


def _element(dims: tuple[int, ...], dim: int, index: int) -> int:
    dim = normalize_dim(dim, len(dims))
    length = dims[dim] if dims else 1
    if not -length <= index < length or 0 in dims:
        raise InputError(f"element {index} is outside dim {dim} of an input of {list(dims)}")
    return index % length * (strides_of(dims)[dim] if dims else 1)


@op("sym_size.int", "aten.sym_size.int")
class SymSize(SymIntOp):
    """The live dim of a tensor."""

    def symint(self, ctx: Context, x: Tensor, dim: int) -> SymExpr:
        return x.dims[normalize_dim(dim, x.rank)]

    def reference(self, x: np.ndarray, dim: int) -> int:
        return x.shape[dim]


class Arithmetic(SymIntOp):
    def __init__(self, name: str) -> None:
        self.name = name

    def symint(self, ctx: Context, left: int | LiveInt, right: int | LiveInt) -> SymExpr:
        return self._apply(expr_of(left), expr_of(right))

    def reference(self, left: int, right: int) -> int:
        value = self._apply(left, right)
        assert isinstance(value, int)
        return value

    def _apply(self, left: SymExpr, right: SymExpr) -> SymExpr:
        match self.name:
            case "add":
                return symbols.add(left, right)
            case "sub":
                return symbols.add(left, symbols.mul(right, -1))
            case "mul":
                return symbols.mul(left, right)
            case _:  # Python's floor, as in the exporter
                return symbols.floordiv(left, right)


for _name in ("add", "sub", "mul", "floordiv"):
    add(Arithmetic(_name), _name)
