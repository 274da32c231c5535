"""Ops that have a reference only: what exporters leave outside a delegate, one line per op.

A name that another family registered, with a GPU kernel, is left to it. References may return another
float or integer type than torch does: the result always takes the type that the program declares.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.legacy import REGISTRY, Context, LiveInt, Op, Tensor, add

Array = np.ndarray


@dataclass(frozen=True)
class ReferenceOp(Op):
    """An op without a GPU kernel."""

    meaning: Callable[..., Any]

    def outputs(self, ctx: Context, *args: Any) -> list[Dims]:
        """Asks the reference itself, with zeros: in a delegate, such an op only ever runs on the CPU."""
        result = self.meaning(*(_zeros(ctx, arg) for arg in args))
        return [np.shape(r) for r in (result if isinstance(result, tuple) else (result,))]

    def reference(self, *args: Any) -> Any:
        return self.meaning(*args)


def _zeros(ctx: Context, arg: Any) -> Any:
    if isinstance(arg, Tensor):
        return np.zeros(arg.dims, "float32" if arg.dtype == "bfloat16" else arg.dtype)
    if isinstance(arg, tuple):
        return tuple(_zeros(ctx, item) for item in arg)
    return ctx.pin(arg.expr) if isinstance(arg, LiveInt) else arg


# ---- reductions


def _axes(x: Array, dims: int | tuple[int, ...] | None) -> tuple[int, ...] | None:
    """torch's dims as NumPy's: none or an empty list reduces everything."""
    dims = (dims,) if isinstance(dims, int) else dims
    return tuple(dims) if dims and x.ndim else None


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Array, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        return function(x, axis=_axes(x, dims), keepdims=bool(keepdim))

    return reduce


def _arg_reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Array, dim: int | None = None, keepdim: bool = False) -> Any:
        return function(x, axis=dim if x.ndim else None, keepdims=bool(keepdim))

    return reduce


def _extreme(values: Callable[..., Any], indices: Callable[..., Any]) -> Callable[..., Any]:
    """max.dim and min.dim: (values, indices)."""
    return lambda x, dim, keepdim=False: (
        _reduction(values)(x, dim, keepdim),
        _arg_reduction(indices)(x, dim, keepdim),
    )


def _variance(x: Array, dims: Any, correction: float | None, keepdim: bool) -> Any:
    ddof = 1 if correction is None else correction
    return np.var(x, axis=_axes(x, dims), ddof=int(ddof), keepdims=bool(keepdim))


def _order(x: Array, dim: int, descending: bool) -> Array:
    """Stable order along `dim`; NaN is the largest."""
    if not descending:
        return np.argsort(x, axis=dim, kind="stable")
    reverse = np.argsort(np.flip(x, dim), axis=dim, kind="stable")
    return np.flip(x.shape[dim] - 1 - reverse, dim)


def _sort(x: Array, dim: int = -1, descending: bool = False) -> tuple[Array, Array]:
    order = _order(np.atleast_1d(x), dim, descending)
    return np.take_along_axis(np.atleast_1d(x), order, dim).reshape(x.shape), order.reshape(x.shape)


def _topk(x: Array, k: int, dim: int = -1, largest: bool = True, in_order: bool = True) -> tuple[Array, Array]:
    if not x.ndim:
        return _sort(x)
    order = np.take(_order(x, dim, largest), range(k), axis=dim)
    return np.take_along_axis(x, order, dim), order


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "aten.prod.default": lambda x, dtype=None: np.prod(x),
    "aten.prod.dim_int": _reduction(np.prod),
    "aten.max.dim": _extreme(np.amax, np.argmax),
    "aten.min.dim": _extreme(np.amin, np.argmin),
    "aten.any.default": np.any,
    "aten.any.dim": _reduction(np.any),
    "aten.any.dims": _reduction(np.any),
    "aten.all.default": np.all,
    "aten.all.dim": _reduction(np.all),
    "aten.var.correction": lambda x, dims=None, correction=1, keepdim=False: _variance(x, dims, correction, keepdim),
    "aten.var.dim": lambda x, dims, unbiased=True, keepdim=False: _variance(x, dims, int(unbiased), keepdim),
    "aten.cumsum.default": lambda x, dim, dtype=None: np.cumsum(x, dim).reshape(x.shape),
    "aten.sort.default": _sort,
    "aten.topk.default": _topk,
}

# ---- elementwise


_erf = np.vectorize(math.erf, otypes=[np.float64])  # NumPy has none

ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{f"aten.{name}.default": getattr(np, name) for name in ("cosh", "sinh", "expm1", "log1p")},
    **{f"aten.{name}.default": getattr(np, name) for name in ("exp2", "isnan", "isinf")},
    **{f"aten.a{name}.default": getattr(np, f"arc{name}") for name in ("sin", "cos", "sinh", "cosh", "tanh")},
    "aten.atan2.default": np.arctan2,
    "aten.erf.default": _erf,
    "aten.elu.default": lambda x, alpha=1, scale=1, input_scale=1: np.where(
        x > 0, scale * x, scale * alpha * np.expm1(np.minimum(x, 0) * input_scale)
    ),
    "aten.clamp.Tensor": lambda x, low=None, high=None: np.clip(x, low, high),
    "aten.remainder.Tensor": np.remainder,  # the sign of the divisor, as in Python
    "aten.remainder.Scalar": np.remainder,
    "aten.fmod.Tensor": np.fmod,  # the sign of the dividend, as in C
    "aten.fmod.Scalar": np.fmod,
    "aten.bitwise_left_shift.Tensor": np.left_shift,
    "aten.bitwise_right_shift.Tensor": np.right_shift,
    "aten.masked_fill.Scalar": lambda x, mask, value: np.where(mask, value, x),
    "aten.masked_fill.Tensor": lambda x, mask, value: np.where(mask, value, x),
}

# ---- indexing and making


def _index(indices: tuple[Array | None, ...]) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else i for i in indices)


def _index_put(x: Array, indices: tuple[Array | None, ...], values: Array, accumulate: bool = False) -> Array:
    result = np.array(x)
    if accumulate:
        np.add.at(result, _index(indices), values)
    else:
        result[_index(indices)] = values
    return result


def _grid(index: Array, dim: int) -> tuple[Any, ...]:
    """The elements that gather and scatter mean: each at its own place, but at `index` along `dim`."""
    grid: list[Any] = list(np.indices(index.shape, sparse=True))
    grid[dim] = index
    return tuple(grid)


def _scatter(x: Array, dim: int, index: Array, source: Any, *, accumulate: bool = False) -> Array:
    result = np.array(x)
    part = source[tuple(slice(n) for n in index.shape)] if np.ndim(source) else source
    if accumulate:
        np.add.at(result, _grid(index, dim), part)
    else:
        result[_grid(index, dim)] = part
    return result


def _along(x: Array, dim: int, at: Any) -> tuple[Any, ...]:
    return (slice(None),) * (dim % x.ndim) + (at,)


def _assign(x: Array, at: tuple[Any, ...], values: Any) -> Array:
    result = np.array(x)
    result[at] = values
    return result


def _split(x: Array, size: int, dim: int = 0) -> tuple[Array, ...]:
    return tuple(x[_along(x, dim, slice(at, at + size))] for at in range(0, max(x.shape[dim], 1), size))


def _embedding_byte(
    weight: Array, scales: Array, zeros: Array | None, low: int, high: int, ids: Array, *_: Any
) -> Array:
    """Rows of an 8-bit table, with a scale (and zero point) per group of a row."""
    outside = ids[(ids < 0) | (ids >= len(weight))]
    if outside.size:
        raise InputError(f"token id {outside[0]} is not in 0..{len(weight) - 1}")
    groups = scales.shape[1] if scales.ndim == 2 else 1
    rows = weight[ids].astype(scales.dtype).reshape(*ids.shape, groups, -1)
    if zeros is not None:
        rows = rows - zeros.reshape(-1, groups)[ids][..., None]
    return (rows * scales.reshape(-1, groups)[ids][..., None]).reshape(*ids.shape, weight.shape[1])


INDEXING: dict[str, Callable[..., Any]] = {
    "quantized_decomposed.embedding_byte.default": _embedding_byte,
    "quantized_decomposed.embedding_byte.dtype": _embedding_byte,
    "aten.index_put.default": _index_put,
    "aten.scatter.src": _scatter,
    "aten.scatter.value": _scatter,
    "aten.scatter_add.default": lambda x, dim, index, source: _scatter(x, dim, index, source, accumulate=True),
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

PRIMS: dict[str, Callable[..., Any]] = {
    "aten._local_scalar_dense.default": lambda x: x.item(),
    "aten.sym_numel.default": lambda x: int(x.size),
    **{f"executorch_prim.{name}.Scalar": getattr(operator, name) for name in ("add", "sub", "mul", "truediv")},
    **{f"executorch_prim.{name}.Scalar": getattr(operator, name) for name in ("floordiv", "neg")},
    **{f"executorch_prim.{name}.Scalar": getattr(operator, name) for name in ("eq", "gt", "lt", "ge", "le")},
    **{f"executorch_prim.{name}.Scalar": getattr(math, name) for name in ("ceil", "floor", "trunc")},
    "executorch_prim.round.Scalar": round,
    "executorch_prim.mod.int": lambda a, b: int(math.fmod(a, b)),
    "executorch_prim.mod.Scalar": lambda a, b: int(math.fmod(a, b)),
    "executorch_prim.sym_float.Scalar": float,
    "executorch_prim.sym_max.Scalar": max,
    "executorch_prim.sym_min.Scalar": min,
    # torch.map writes its results one by one: `to` grows
    "executorch_prim.et_copy_index.tensor": lambda to, source, index: np.concatenate([to[:index], source[None]]),
}

for _name, _meaning in {**REDUCTIONS, **ELEMENTWISE, **INDEXING, **PRIMS}.items():
    if _name not in REGISTRY:
        add(ReferenceOp(_meaning), _name)
