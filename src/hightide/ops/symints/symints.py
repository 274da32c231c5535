"""Live integers: read from an input element or a live dim, and computed on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hightide.errors import InputError
from hightide.graph import symbols
from hightide.graph.symbols import SymExpr
from hightide.ops.contract import Context, Int, SymIntOp, Tensor, existing_dim, expr_of, normalize_dim, op, strides_of


@op("et_vk.select_as_symint.default", family="symints")
class SelectAsSymInt(SymIntOp):
    """The integer at [0, ..., index, ..., 0] of an input, `index` along `dim`."""

    x: Tensor
    dim: int = 0
    index: int = 0

    def symint(self, ctx: Context) -> SymExpr:
        position = ctx.input_positions.get(self.x.value.id)
        if position is None:
            raise InputError("a SymInt can be read from a graph input only, not from a computed tensor")
        return symbols.element(position, _element(self.x.dims, self.dim, self.index))

    @staticmethod
    def reference(x: np.ndarray, dim: int, index: int) -> int:
        return int(x.reshape(-1)[_element(x.shape, dim, index)])


def _element(dims: tuple[int, ...], dim: int, index: int) -> int:
    dim = normalize_dim(dim, len(dims))
    length = dims[dim] if dims else 1
    if not -length <= index < length or 0 in dims:
        raise InputError(f"element {index} is outside dim {dim} of an input of {list(dims)}")
    return index % length * (strides_of(dims)[dim] if dims else 1)


@op("sym_size.int", "aten.sym_size.int", family="symints")
class SymSize(SymIntOp):
    """The live dim of a tensor."""

    x: Tensor
    dim: int

    def symint(self, ctx: Context) -> SymExpr:
        return self.x.dims[existing_dim(self.dim, self.x.dims)]

    reference = staticmethod(lambda x, dim: x.shape[dim])


@op("aten.sym_numel.default", family="symints")
class SymNumel(SymIntOp):
    """How many live elements a tensor has."""

    x: Tensor

    def symint(self, ctx: Context) -> SymExpr:
        return self.x.numel

    reference = staticmethod(lambda x: x.size)


class Arithmetic(SymIntOp):
    left: Int
    right: Int

    def symint(self, ctx: Context) -> SymExpr:
        return self.evaluate({"left": expr_of(self.left), "right": expr_of(self.right)})


def _arithmetic(name: str, meaning: Callable[[SymExpr, SymExpr], SymExpr]) -> None:
    """Register an op on two integers, whether literal or live."""
    reference = staticmethod(lambda left, right: meaning(left, right))
    op(name, family="symints")(type(name, (Arithmetic,), {"__doc__": f"{name} of integers.", "reference": reference}))


_arithmetic("add", symbols.add)
_arithmetic("sub", lambda left, right: symbols.add(left, symbols.mul(right, -1)))
_arithmetic("mul", symbols.mul)
_arithmetic("floordiv", symbols.floordiv)  # Python's, as in the exporter


@op("neg", family="symints")
class Negated(SymIntOp):
    """-value: where a slice counts from the end by a live size."""

    value: Int

    def symint(self, ctx: Context) -> SymExpr:
        return symbols.mul(expr_of(self.value), -1)

    @staticmethod
    def reference(value: int) -> int:
        return -value
