"""Ops that have a reference only: what exporters leave outside a delegate, one line or one function per op.

An op's arguments are the parameters of its reference, with their names, types and defaults. References may return
another float or integer type than torch does: the result always takes the type that the program declares.
"""

from __future__ import annotations

import inspect
import math
import operator
import typing
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Int, LiveInt, Op, Tensor, op

Array: TypeAlias = np.ndarray
Reference: TypeAlias = Callable[..., Any]


class ReferenceOp(Op):
    """An op without a GPU kernel."""

    def outputs(self, ctx: Context) -> list[Dims]:
        """Asks the reference itself, with zeros: in a delegate, such an op only ever runs on the CPU."""
        result = self.evaluate({name: _zeros(ctx, arg) for name, arg in self.arguments().items()})
        return [np.shape(r) for r in (result if isinstance(result, tuple) else (result,))]


def _zeros(ctx: Context, arg: Any) -> Any:
    if isinstance(arg, Tensor):
        return np.zeros(arg.dims, "float32" if arg.dtype == "bfloat16" else arg.dtype)
    if isinstance(arg, tuple):
        return tuple(_zeros(ctx, item) for item in arg)
    return ctx.pin(arg) if isinstance(arg, LiveInt) else arg


def register(name: str, reference: Reference) -> None:
    """An op with the parameters of `reference`: an Array is a tensor of the graph, an int may be a SymInt."""
    types = typing.get_type_hints(reference, localns={"Array": Tensor, "int": Int})
    parameters = inspect.signature(reference).parameters.values()
    members = {
        "__doc__": reference.__doc__,
        "__annotations__": {p.name: types.get(p.name, Any) for p in parameters},
        "reference": staticmethod(reference),
        **{p.name: p.default for p in parameters if p.default is not p.empty},
    }
    op(name, family="portable")(type(name, (ReferenceOp,), members))


def _unary(function: Reference) -> Reference:
    return lambda x: function(x)


def _binary(function: Reference) -> Reference:
    return lambda a, b: function(a, b)


# ---- elementwise

_erf = np.vectorize(math.erf, otypes=[np.float64])  # NumPy has none

ELEMENTWISE: dict[str, Reference] = {
    **{f"aten.{name}.default": _unary(getattr(np, name)) for name in ("cosh", "sinh", "expm1", "log1p")},
    **{f"aten.{name}.default": _unary(getattr(np, name)) for name in ("exp2", "isnan", "isinf")},
    **{f"aten.a{name}.default": _unary(getattr(np, f"arc{name}")) for name in ("sin", "cos", "sinh", "cosh", "tanh")},
    "aten.atan2.default": _binary(np.arctan2),
    "aten.erf.default": _unary(_erf),
    "aten.elu.default": lambda x, alpha=1, scale=1, input_scale=1: np.where(
        x > 0, scale * x, scale * alpha * np.expm1(np.minimum(x, 0) * input_scale)
    ),
    "aten.clamp.Tensor": lambda x, low=None, high=None: np.clip(x, low, high),
    "aten.remainder.Tensor": _binary(np.remainder),  # the sign of the divisor, as in Python
    "aten.remainder.Scalar": _binary(np.remainder),
    "aten.fmod.Tensor": _binary(np.fmod),  # the sign of the dividend, as in C
    "aten.fmod.Scalar": _binary(np.fmod),
    "aten.bitwise_left_shift.Tensor": _binary(np.left_shift),
    "aten.bitwise_right_shift.Tensor": _binary(np.right_shift),
    "aten.masked_fill.Scalar": lambda x, mask, value: np.where(mask, value, x),
    "aten.masked_fill.Tensor": lambda x, mask, value: np.where(mask, value, x),
}

# ---- indexing and making


def _assign(x: Array, at: tuple[Any, ...], values: Any) -> Array:
    result = np.array(x)
    result[at] = values
    return result


def _along(x: Array, dim: int, at: Any) -> tuple[Any, ...]:
    return (slice(None),) * (dim % x.ndim) + (at,)


def _split(x: Array, size: int, dim: int = 0) -> tuple[Array, ...]:
    if size < 1:
        raise InputError(f"pieces of {size} elements")
    return tuple(x[_along(x, dim, slice(at, at + size))] for at in range(0, max(x.shape[dim], 1), size))


INDEXING: dict[str, Reference] = {
    "aten.select_scatter.default": lambda x, source, dim, index: _assign(x, _along(x, dim, index), source),
    "aten.slice_scatter.default": lambda x, source, dim=0, start=None, end=None, step=1: _assign(
        x, _along(x, dim, slice(start, end, step)), source
    ),
    "aten.nonzero.default": lambda x: np.stack(np.nonzero(np.atleast_1d(x)), axis=-1)[:, : x.ndim],
    "aten.masked_select.default": lambda x, mask: np.extract(*np.broadcast_arrays(mask, x)),
    "aten.tril.default": lambda x, diagonal=0: np.tril(x, diagonal),
    "aten.triu.default": lambda x, diagonal=0: np.triu(x, diagonal),
    "aten.roll.default": lambda x, shifts, dims=(): np.roll(x, shifts, dims or None),
    "aten.stack.default": lambda tensors, dim=0: np.stack(tensors, dim),
    "aten.split_copy.Tensor": _split,
    "aten.unbind_copy.int": lambda x, dim=0: tuple(np.moveaxis(x, dim, 0)),
    "aten.fill.Scalar": lambda x, value: np.full(x.shape, value),
    "aten.fill.Tensor": lambda x, value: np.full(x.shape, value),
}

# ---- numbers: what a method computes between delegates

_TWO = ("add", "sub", "mul", "truediv", "floordiv", "eq", "gt", "lt", "ge", "le")
NUMBERS: dict[str, Reference] = {
    "aten._local_scalar_dense.default": lambda x: x.item(),
    "aten.sym_numel.default": lambda x: int(x.size),
    **{f"executorch_prim.{name}.Scalar": _binary(getattr(operator, name)) for name in _TWO},
    **{f"executorch_prim.{name}.Scalar": _unary(getattr(math, name)) for name in ("ceil", "floor", "trunc")},
    "executorch_prim.neg.Scalar": _unary(operator.neg),
    "executorch_prim.round.Scalar": _unary(round),
    "executorch_prim.mod.int": lambda a, b: int(math.fmod(a, b)),
    "executorch_prim.mod.Scalar": lambda a, b: int(math.fmod(a, b)),
    "executorch_prim.sym_float.Scalar": _unary(float),
    "executorch_prim.sym_max.Scalar": _binary(max),
    "executorch_prim.sym_min.Scalar": _binary(min),
    # torch.map writes its results one by one: `to` grows
    "executorch_prim.et_copy_index.tensor": lambda to, source, index: np.concatenate([to[:index], source[None]]),
}

for _name, _reference in {**ELEMENTWISE, **INDEXING, **NUMBERS}.items():
    register(_name, _reference)
