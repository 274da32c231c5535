"""Elements in order along a dim: all of them, or the first few."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Int, Op, Tensor, ceil_div, kernel, normalize_dim, op
from hightide.ops.kernel import LiveInt
from hightide.ops.movement.strided import moved_kind
from hightide.ops.sort.pair_order import ElementOrder
from hightide.ops.vectors import Vectors, vectors_along

Outputs = tuple[Tensor, Tensor]  # values, and their places along the dim


@op("aten.sort.default", family="sort")
class Sort(Op):
    """The elements along `dim` in order, and where each was: stable, and NaN is the largest."""

    x: Tensor
    dim: int = -1
    descending: bool = False

    def outputs(self, ctx: Context) -> list[Dims]:
        normalize_dim(self.dim, self.x.rank)
        return [self.x.dims, self.x.dims]

    def plan(self, ctx: Context, out: Outputs) -> Iterable[Dispatch]:
        return in_order(ctx, vectors_along(self.x, self.dim), self.descending, None, out)

    @staticmethod
    def reference(x: np.ndarray, dim: int, descending: bool) -> tuple[np.ndarray, np.ndarray]:
        order = _order(np.atleast_1d(x), dim, descending)
        return np.take_along_axis(np.atleast_1d(x), order, dim).reshape(x.shape), order.reshape(x.shape)


@op("aten.topk.default", family="sort")
class TopK(Op):
    """The k largest elements along `dim`, or smallest, in order, and where each was; of equals the first."""

    x: Tensor
    k: Int
    dim: int = -1
    largest: bool = True
    in_order: bool = True  # they are either way

    def outputs(self, ctx: Context) -> list[Dims]:
        x, k, dim = self.x, ctx.pin(self.k), normalize_dim(self.dim, self.x.rank)
        if not 0 <= k <= (x.dims[dim] if x.rank else 1):
            raise InputError(f"the {k} largest of a dim of {x.dims[dim] if x.rank else 1}")
        dims = (*x.dims[:dim], k, *x.dims[dim + 1 :]) if x.rank else ()
        return [dims, dims]

    def plan(self, ctx: Context, out: Outputs) -> Iterable[Dispatch]:
        first = None if isinstance(self.k, LiveInt) else self.k  # a k that changes takes as much scratch as any
        return in_order(ctx, vectors_along(self.x, self.dim), self.largest, first, out)

    @staticmethod
    def reference(x: np.ndarray, k: int, dim: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
        if not x.ndim:
            return x, np.zeros_like(x, int)
        if not 0 <= k <= x.shape[dim]:
            raise InputError(f"the {k} largest of a dim of {x.shape[dim]}")
        order = np.take(_order(x, dim, largest), range(k), axis=dim)
        return np.take_along_axis(x, order, dim), order


def in_order(ctx: Context, vectors: Vectors, descending: bool, first: int | None, out: Outputs) -> Iterable[Dispatch]:
    """Vectors in order; `out` has as many elements of each as it has room for."""
    values, indices = out
    packed = moved_kind(vectors.x, values) == "u8"
    order = ElementOrder(ctx, vectors, descending, first)
    if not values.numel:
        return
    yield from order.dispatches
    yield kernel("sort/take_ordered.wgsl", BYTES=packed).over(
        ceil_div(values.numel, 256 if packed else 64),
        x=vectors.x,
        pairs=order.pairs.scratch,
        values=values,
        indices=indices,
        numel=values.numel,
        taken=values.numel // vectors.rows,
        count=vectors.count,
        stride=vectors.stride,
        width=order.pairs.width,
    )


def _order(x: np.ndarray, dim: int, descending: bool) -> np.ndarray:
    """Stable order along `dim`; NaN is the largest."""
    if not descending:
        return np.argsort(x, axis=dim, kind="stable")
    reverse = np.argsort(np.flip(x, dim), axis=dim, kind="stable")
    return np.flip(x.shape[dim] - 1 - reverse, dim)
