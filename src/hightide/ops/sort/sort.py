"""Elements in order along a dim: all of them, or the first few."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Int, Kernel, Op, Tensor, ceil_div, kernel, normalize_dim, op
from hightide.ops.fill.fill import fill
from hightide.ops.kernel import LiveInt
from hightide.ops.movement.strided import moved_kind
from hightide.ops.sort import search
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


@op("aten.sort.stable", family="sort")
class StableSort(Op):
    """`sort`, as torch passes its arguments when it is asked for a stable order."""

    x: Tensor
    stable: bool | None = None  # it is either way
    dim: int = -1
    descending: bool = False

    def _sort(self) -> Op:
        return Sort.bound({"x": self.x, "dim": self.dim, "descending": self.descending})

    def outputs(self, ctx: Context) -> list[Dims]:
        return self._sort().outputs(ctx)

    def plan(self, ctx: Context, out: Outputs) -> Iterable[Dispatch]:
        return self._sort().plan(ctx, out)

    reference = staticmethod(Sort.reference)


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


class Middle(Op):
    """The element in the middle of the order, the lesser of two; NaN if there is one, or only without others."""

    x: Tensor
    skips_nan: ClassVar[bool] = False

    def take(self, ctx: Context, vectors: Vectors, values: Tensor, indices: Tensor | None) -> Iterable[Dispatch]:
        kind = moved_kind(self.x, values)
        nan = "" if kind != "f32" else "last" if self.skips_nan else "first"
        route = kernel("sort/take_middle.wgsl", NAN=nan, BYTES=kind == "u8", INDICES=indices is not None)
        return taken(route, vectors, ElementOrder(ctx, vectors, descending=False, first=None), values, indices)


@op("aten.median.default", family="sort")
class Median(Middle):
    """The element in the middle of all, the lesser of two; NaN if there is one, or nothing."""

    def outputs(self, ctx: Context) -> list[Dims]:
        return [()]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        if self.x.numel:
            return self.take(ctx, Vectors(self.x, 1, self.x.numel, 1), out, None)
        return [fill(out, math.nan)]

    @classmethod
    def reference(cls, x: np.ndarray) -> np.ndarray:
        return _middle(x.reshape(-1), 0, cls.skips_nan)[0].reshape(()) if x.size else np.full((), math.nan)


@op("aten.nanmedian.default", family="sort")
class NanMedian(Median):
    """The element in the middle of all that are not NaN, the lesser of two."""

    skips_nan = True


@op("aten.median.dim", family="sort")
class MedianAlong(Middle):
    """The element in the middle along `dim`, the lesser of two, and where it is; NaN, the first, if there is one."""

    dim: int
    keepdim: bool = False

    def outputs(self, ctx: Context) -> list[Dims]:
        x, dim = self.x, normalize_dim(self.dim, self.x.rank)
        if x.rank and not x.dims[dim]:
            raise InputError(f"the median of dim {dim} of {list(x.dims)}, which is empty")
        kept = (1,) if self.keepdim and x.rank else ()
        dims = (*x.dims[:dim], *kept, *x.dims[dim + 1 :])
        return [dims, dims]

    def plan(self, ctx: Context, out: Outputs) -> Iterable[Dispatch]:
        return self.take(ctx, vectors_along(self.x, self.dim), *out)

    @classmethod
    def reference(cls, x: np.ndarray, dim: int, keepdim: bool) -> tuple[np.ndarray, ...]:
        middle = _middle(np.atleast_1d(x), dim, cls.skips_nan)
        return tuple(a if keepdim and x.ndim else np.squeeze(a, dim) for a in middle)


@op("aten.nanmedian.dim", family="sort")
class NanMedianAlong(MedianAlong):
    """The element in the middle along `dim` of those that are not NaN, the lesser of two, and where it is."""

    skips_nan = True


def _middle(x: np.ndarray, dim: int, skips_nan: bool) -> tuple[np.ndarray, np.ndarray]:
    """The median along a dim, which stays as 1, and where it is."""
    numbers = np.sum(x == x, axis=dim, keepdims=True)
    place = np.maximum(numbers - 1, 0) // 2
    if not skips_nan:
        place = np.where(numbers < x.shape[dim], numbers, place)
    order = np.take_along_axis(_order(x, dim, False), place, dim)
    return np.take_along_axis(x, order, dim), order


def in_order(ctx: Context, vectors: Vectors, descending: bool, first: int | None, out: Outputs) -> Iterable[Dispatch]:
    """Vectors in order; `out` has as many elements of each as it has room for."""
    route = kernel("sort/take_ordered.wgsl", BYTES=moved_kind(vectors.x, out[0]) == "u8")
    order = ElementOrder(ctx, vectors, descending, first)
    return taken(route, vectors, order, out[0], out[1], taken=out[0].numel // max(vectors.rows, 1))


def taken(
    route: Kernel, vectors: Vectors, order: ElementOrder, values: Tensor, indices: Tensor | None, **counts: int
) -> Iterable[Dispatch]:
    """What `route` takes of vectors that are put in order."""
    if not values.numel or not vectors.rows:
        return
    yield from order.dispatches
    yield route.over(
        ceil_div(values.numel, 256 if moved_kind(vectors.x, values) == "u8" else 64),
        x=vectors.x,
        pairs=order.pairs.scratch,
        out=values,
        indices=indices,
        numel=values.numel,
        count=vectors.count,
        stride=vectors.stride,
        width=order.pairs.width,
        **counts,
    )


def _order(x: np.ndarray, dim: int, descending: bool) -> np.ndarray:
    """Stable order along `dim`; NaN is the largest."""
    if not descending:
        return np.argsort(x, axis=dim, kind="stable")
    reverse = np.argsort(np.flip(x, dim), axis=dim, kind="stable")
    return np.flip(x.shape[dim] - 1 - reverse, dim)


__all__ = ["in_order", "search"]
