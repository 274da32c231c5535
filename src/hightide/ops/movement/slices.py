"""Parts of tensors, taken out and put in: slices along a dim, and single rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.symbols import Sym, SymExpr
from hightide.graph.values import Dims
from hightide.ops.contract import (
    Context,
    Dispatch,
    Int,
    MovingOp,
    Tensor,
    ceil_div,
    existing_dim,
    expr_of,
    op,
    strides_of,
)
from hightide.ops.movement.strided import Along, move, place_along


@op("aten.slice_copy.Tensor", "aten.slice.Tensor", family="movement")
class Slice(MovingOp):
    """x[start:end:step] along `dim`; the bounds may be SymInts.

    A start that changes at every step (the position) stays out of the level: the kernel reads it.
    Literal bounds clamp as in Python. A live start below 0 counts from the end; one outside the dim is an error.
    """

    x: Tensor
    dim: int = 0
    start: Int = 0
    end: Int = 2**63 - 1
    step: Int = 1

    def outputs(self, ctx: Context) -> list[Dims]:
        return [_slice_dims(ctx, self.x.dims, self.dim, (self.start, self.end, self.step))]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        x, dim = self.x, existing_dim(self.dim, self.x.dims)
        first, _ = _ends(ctx, self.start, self.end, x.dims[dim])
        start, step = _kernel_start(self.start, first), ctx.pin(self.step)
        strides = strides_of(x.dims)
        stepped = tuple(s * step if n == dim else s for n, s in enumerate(strides))
        yield move(x, out, out.dims, stepped, strides_of(out.dims), live_start=(start, strides[dim]))

    @staticmethod
    def reference(x: np.ndarray, dim: int, start: int, end: int, step: int) -> np.ndarray:
        return x[_along(x, dim, slice(start, end, step))]


@op("aten.narrow_copy.default", "aten.narrow.default", family="movement")
class Narrow(MovingOp):
    """`length` rows along `dim` from `start` on, which may be a SymInt; a negative literal counts from the end."""

    x: Tensor
    dim: int
    start: Int
    length: Int

    def outputs(self, ctx: Context) -> list[Dims]:
        x, dim, length = self.x, existing_dim(self.dim, self.x.dims), ctx.pin(self.length)
        size, start = x.dims[dim], expr_of(self.start)
        if length < 0:
            raise InputError(f"{length} rows of a dim")
        low = 0 if isinstance(start, Sym) else -size
        ctx.require(start, low, size, f"row {{value}} of a dim of {size} is asked for")
        first = start if isinstance(start, Sym) or start >= 0 else start + size
        asks = f"rows {{value}} to +{length} of a dim of {size} are asked for"
        ctx.require(first, 0, size - length, f"{asks}: they must stay within {size}")
        return [(*x.dims[:dim], length, *x.dims[dim + 1 :])]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        dim, strides = existing_dim(self.dim, self.x.dims), strides_of(self.x.dims)
        start = _kernel_start(self.start, _clamped(self.start, self.x.dims[dim]))
        yield move(self.x, out, out.dims, strides, strides_of(out.dims), live_start=(start, strides[dim]))

    @staticmethod
    def reference(x: np.ndarray, dim: int, start: int, length: int) -> np.ndarray:
        first = start % x.shape[dim] if start < 0 else start
        return x[_along(x, dim, slice(first, first + length))]


def _slice_dims(ctx: Context, dims: Dims, dim: int, bounds: tuple[Int, Int, Int]) -> Dims:
    """The dims of a slice by (start, end, step); all rows that a live one asks for must be there."""
    at, (start, end, step) = existing_dim(dim, dims), bounds
    size, by = dims[at], ctx.pin(step)
    if by < 1:
        raise InputError(f"a slice with step {by}")
    first, last = _ends(ctx, start, end, size)
    span = ctx.pin(last - first)
    length = max(0, span)
    if isinstance(last, Sym) and (span < 0 or not isinstance(first, Sym)):
        ctx.require(last, 0, size, f"rows up to {{value}} of a dim of {size} are asked for")
    if isinstance(first, Sym):
        asks = f"rows {{value}} to +{length} of a dim of {size} are asked for: the position plus the tokens"
        ctx.require(first, 0, size - length, f"{asks} must stay within {size}")
    return (*dims[:at], ceil_div(length, by), *dims[at + 1 :])


def _ends(ctx: Context, start: Int, end: Int, size: int) -> tuple[SymExpr, SymExpr]:
    """Where a slice in a dim of `size` starts and ends."""
    first, last = _clamped(start, size), _clamped(end, size)
    if isinstance(first, Sym) and size < ctx.pin(last - first) <= 2 * size:  # only from below 0 it is so far
        first = _clamped(ctx.pin(first), size)  # so it counts from the end
    return first, last


def _kernel_start(start: Int, first: SymExpr) -> Int:
    """Where a slice starts, as kernels take it: the number, or what is live."""
    return start if isinstance(first, Sym) else first


def _along(x: np.ndarray, dim: int, at: Any) -> tuple[Any, ...]:
    return (slice(None),) * (dim % x.ndim) + (at,)


def _clamped(bound: Int, size: int) -> SymExpr:
    """A slice's bound in a dim of `size`: a negative one counts from the end; a live one stays as it is."""
    value = expr_of(bound)
    if isinstance(value, Sym):
        return value
    return min(max(value + size if value < 0 else value, 0), size)


@op("aten.select_copy.int", "aten.select.int", family="movement")
class Select(MovingOp):
    """x[index] along `dim`, which goes away; a negative index counts from the live end."""

    x: Tensor
    dim: int
    index: Int

    def outputs(self, ctx: Context) -> list[Dims]:
        x, dim = self.x, existing_dim(self.dim, self.x.dims)
        _require_row(ctx, self.index, dim, x.dims[dim])
        return [(*x.dims[:dim], *x.dims[dim + 1 :])]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        x, dim = self.x, existing_dim(self.dim, self.x.dims)
        strides, start = strides_of(x.dims), _row(self.index, x.dims[dim])
        others = (*strides[:dim], *strides[dim + 1 :])
        yield move(x, out, out.dims, others, strides_of(out.dims), live_start=(start, strides[dim]))

    @staticmethod
    def reference(x: np.ndarray, dim: int, index: int) -> np.ndarray:
        return np.take(x, index, axis=dim)


def _require_row(ctx: Context, index: Int, dim: int, size: int) -> None:
    at = expr_of(index)
    low = 0 if isinstance(at, Sym) else -size
    ctx.require(at, low, size - 1, f"index {{value}} is outside dim {dim} of {size}")


def _row(index: Int, size: int) -> Int:
    """The index as kernels take it."""
    at = expr_of(index)
    return index if isinstance(at, Sym) else at % size


@op("aten.slice_scatter.default", family="movement")
class SliceScatter(MovingOp):
    """x with `source` in place of x[start:end:step] along `dim`; bounds as those of a slice."""

    x: Tensor
    source: Tensor
    dim: int = 0
    start: Int = 0
    end: Int = 2**63 - 1
    step: Int = 1

    def outputs(self, ctx: Context) -> list[Dims]:
        _require_dims(self.source, _slice_dims(ctx, self.x.dims, self.dim, (self.start, self.end, self.step)))
        return [self.x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        dim = existing_dim(self.dim, out.dims)
        size = out.dims[dim]
        first, _ = _ends(ctx, self.start, self.end, size)
        step = min(ctx.pin(self.step), max(size, 1))  # a larger one leaves the dim, too
        yield _scattered(self.source, out, Along(dim, _kernel_start(self.start, first), step), self.x)

    @staticmethod
    def reference(x: np.ndarray, source: np.ndarray, dim: int, start: int, end: int, step: int) -> np.ndarray:
        result = np.array(x)
        result[_along(x, dim, slice(start, end, step))] = source
        return result


@op("aten.select_scatter.default", family="movement")
class SelectScatter(MovingOp):
    """x with `source` in place of x[index] along `dim`."""

    x: Tensor
    source: Tensor
    dim: int
    index: Int

    def outputs(self, ctx: Context) -> list[Dims]:
        x, dim = self.x, existing_dim(self.dim, self.x.dims)
        _require_row(ctx, self.index, dim, x.dims[dim])
        _require_dims(self.source, (*x.dims[:dim], *x.dims[dim + 1 :]))
        return [x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        dim = existing_dim(self.dim, out.dims)
        source = Tensor(self.source.value, (*out.dims[:dim], 1, *out.dims[dim + 1 :]))
        yield _scattered(source, out, Along(dim, _row(self.index, out.dims[dim])), self.x)

    @staticmethod
    def reference(x: np.ndarray, source: np.ndarray, dim: int, index: int) -> np.ndarray:
        result = np.array(x)
        result[_along(x, dim, index)] = source
        return result


def _require_dims(source: Tensor, dims: Dims) -> None:
    if source.dims != dims:
        raise InputError(f"{list(source.dims)} in place of a part of {list(dims)}")


def _scattered(source: Tensor, out: Tensor, along: Along, x: Tensor) -> Dispatch:
    if out.dtype == "bool" != source.dtype:  # bytes are moved as they are
        raise UnsupportedError(f"{source.dtype} as part of bools has no kernel")
    return place_along(source, out, along, x)
