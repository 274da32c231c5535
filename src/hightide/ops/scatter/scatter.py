"""Values put, or added, where index tensors say.

Each place that is named becomes a pair (place, number of its value). These are put in order, so that those of one place
stand together: nothing is written twice, and sums are made in the same order in every run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import (
    Context,
    Dispatch,
    Int,
    LiveInt,
    Op,
    Tensor,
    ceil_div,
    kernel,
    normalize_dim,
    op,
    strides_of,
)
from hightide.ops.elementwise.template import broadcast
from hightide.ops.gather.gather import Pick, around, every_dim, own_places, picked, require_picks
from hightide.ops.movement.strided import MAX_RANK, bits_of, broadcast_strides, copy, moved_kind, padded
from hightide.ops.sort.pair_order import make_pairs, order_pairs, power_of_two


@dataclass(frozen=True)
class Points:
    """The places that index tensors name in a tensor, as many as `dims` have elements."""

    dims: Dims
    own: Dims  # strides: where a point lies before its index tensors say
    picks: list[Pick]
    named: Collection[int]  # the dims of the tensor that a place is in; it stands for all elements of the others


@dataclass(frozen=True)
class Values:
    """What is put there: a tensor, by strides over the dims of the other and over the points, or one number."""

    source: Tensor | float
    own_strides: Dims
    point_strides: Dims


@dataclass(frozen=True)
class Join:
    """How values at one place become one."""

    how: str  # "sum", "prod", "mean", "amax" or "amin"
    include_self: bool = True  # with what is there already


SUM = Join("sum")
JOINS = {name: getattr(np, f) for name, f in [("sum", "add"), ("prod", "multiply"), ("mean", "add")]}
JOINS |= {"amax": np.maximum, "amin": np.minimum}  # in NumPy


def put(ctx: Context, x: Tensor, points: Points, values: Values, join: Join | None, out: Tensor) -> Iterator[Dispatch]:
    """x with values at points; the last of those that share a place, or all of them joined."""
    source = values.source
    kind = moved_kind(x, out)
    if isinstance(source, Tensor):
        moved_kind(source, out)
    if join and kind == "u8":
        raise UnsupportedError(f"joining {x.dtype} by index has no kernel")
    count = math.prod(points.dims)
    if kind != "u8" or not count:
        yield copy(x, out)
    if not count or not out.numel:
        return
    pairs = make_pairs(ctx, 1, power_of_two(count))
    yield kernel("scatter/points.wgsl", "scatter_points", COUNT=len(points.picks)).over(
        ceil_div(count, 64), pairs=pairs.scratch, **picked(points.dims, points.own, points.picks)
    )
    yield from order_pairs(ctx, pairs, count)
    what = {"values": source} if isinstance(source, Tensor) else {"value": bits_of(out.dtype, source)}
    given = {
        "pairs": pairs.scratch,
        "out": out,
        "points": count,
        "first_point": MAX_RANK - len(points.dims),
        "point_dims": padded(points.dims, 1),
        "point_strides": padded(values.point_strides, 0),
        **what,
    }
    if kind == "u8":
        yield _put_bytes(x, out, points, values, given)
    else:
        yield _put_words(out, points, values, kind, join, given)


def _put_words(
    out: Tensor, points: Points, values: Values, kind: str, join: Join | None, given: dict[str, Any]
) -> Dispatch:
    """Values put into out, or joined with it in their type."""
    others = [d for d in range(out.rank) if d not in points.named]
    strides, dims = strides_of(out.dims), tuple(out.dims[d] for d in others)
    parts = math.prod(dims)
    if given["points"] * parts >= 2**32:  # more than values: they are broadcast
        raise UnsupportedError(f"{given['points']} places of {parts} elements are more than kernels count")
    name = f"scatter_{join.how}" if join else "scatter"
    constants = {"T": kind if join else "word", "JOIN": join.how if join else ""}
    include = join is not None and join.include_self
    return kernel("scatter/put.wgsl", name, VALUES="values" in given, INCLUDE=include, **constants).over(
        ceil_div(given["points"] * parts, 64),
        parts=parts,
        first=MAX_RANK - len(dims),
        dims=padded(dims, 1),
        strides=padded(tuple(strides[d] for d in others), 0),
        value_strides=padded(tuple(values.own_strides[d] for d in others), 0),
        **given,
    )


def _put_bytes(x: Tensor, out: Tensor, points: Points, values: Values, given: dict[str, Any]) -> Dispatch:
    """x with values put into it, by words of four bytes."""
    places = tuple(s if d in points.named else 0 for d, s in enumerate(strides_of(out.dims)))
    return kernel("scatter/put_bytes.wgsl", "scatter_bytes", T="u32", VALUES="values" in given).over(
        ceil_div(out.numel, 256),
        x=x,
        numel=out.numel,
        first=MAX_RANK - out.rank,
        dims=padded(out.dims, 1),
        place_strides=padded(places, 0),
        value_strides=padded(values.own_strides, 0),
        **given,
    )


@op("aten.index_put.default", family="scatter")
class IndexPut(Op):
    """x with x[indices] = values, or += (`accumulate`): index tensors, broadcast together, and None for other dims.

    A mask as index is for NumPy only.
    """

    x: Tensor
    indices: tuple[Tensor | None, ...]
    values: Tensor
    accumulate: bool = False

    def outputs(self, ctx: Context) -> list[Dims]:
        x, given = self.x, self._given()
        if not given or len(self.indices) > x.rank:
            raise InputError(f"{len(given)} index tensors for a tensor of rank {x.rank}")
        if not self._masks():
            for dim, index in given.items():
                require_picks(ctx, index, dim, x.dims[dim], low=-x.dims[dim])
            named = self._named()
            if broadcast(self.values.dims, named) != named:
                raise InputError(f"values of {list(self.values.dims)} for indices that name {list(named)}")
        return [x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        if masks := self._masks():
            raise UnsupportedError(f"an index of {masks[0].dtype}: a mask has no kernel")
        x, given, strides = self.x, self._given(), strides_of(self.x.dims)
        before, after = around(x.rank, list(given))
        named = self._named()
        together = named[len(before) : len(named) - len(after)]
        over = broadcast_strides(self.values.dims, named)
        own = dict(zip((*before, *after), (*over[: len(before)], *over[len(named) - len(after) :]), strict=True))
        picks = [
            Pick(index, broadcast_strides(index.dims, together), x.dims[dim], strides[dim])
            for dim, index in given.items()
        ]
        points = Points(together, (0,) * len(together), picks, given)
        values = Values(
            self.values,
            tuple(own.get(d, 0) for d in range(x.rank)),
            over[len(before) : len(named) - len(after)],
        )
        return put(ctx, x, points, values, SUM if self.accumulate else None, out)

    def _given(self) -> dict[int, Tensor]:
        """The index tensors by dim."""
        return {dim: index for dim, index in enumerate(self.indices) if index is not None}

    def _masks(self) -> list[Tensor]:
        return [index for index in self._given().values() if index.dtype not in ("int32", "int64")]

    def _named(self) -> Dims:
        """The dims of x[indices]."""
        given = self._given()
        before, after = around(self.x.rank, list(given))
        together = broadcast(*(index.dims for index in given.values()))
        return (*(self.x.dims[d] for d in before), *together, *(self.x.dims[d] for d in after))

    @staticmethod
    def reference(
        x: np.ndarray, indices: tuple[np.ndarray | None, ...], values: np.ndarray, accumulate: bool
    ) -> np.ndarray:
        return _assigned(x, every_dim(indices), values, SUM if accumulate else None)


class Scattering(Op):
    """x with the elements of a source at their own places, but at `index` along `dim`."""

    x: Tensor
    dim: int
    index: Tensor

    @property
    def join(self) -> Join | None:
        """How values at one place are joined; None: the last is taken."""
        return None

    def outputs(self, ctx: Context) -> list[Dims]:
        x, dim = self.x, normalize_dim(self.dim, self.x.rank)
        to, index = x.dims or (1,), self.index.dims or (1,)
        if self.index.numel:
            if len(to) != len(index) or any(i > t for n, (i, t) in enumerate(zip(index, to, strict=True)) if n != dim):
                raise InputError(f"indices of {list(index)} do not fit {list(x.dims)} along dim {dim}")
            require_picks(ctx, self.index, dim, to[dim])
        return [x.dims]

    def scatter(self, ctx: Context, values: Values, out: Tensor) -> Iterable[Dispatch]:
        to, index, dim = self.x.dims or (1,), self.index.dims or (1,), normalize_dim(self.dim, self.x.rank)
        strides = strides_of(to)
        own = tuple(0 if n == dim else strides[n] for n in range(len(to)))
        pick = Pick(self.index, strides_of(index), to[dim], strides[dim])
        return put(ctx, self.x, Points(index, own, [pick], range(out.rank)), values, self.join, out)


class FromSource(Scattering):
    """Elements of a tensor."""

    source: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        index, source = self.index.dims or (1,), self.source.dims or (1,)
        if self.index.numel and (len(index) != len(source) or any(i > s for i, s in zip(index, source, strict=True))):
            raise InputError(f"indices of {list(index)} for a source of {list(source)}")
        return super().outputs(ctx)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        strides = strides_of(self.source.dims or (1,))
        return self.scatter(ctx, Values(self.source, (0,) * out.rank, strides), out)


@op("aten.scatter.src", family="scatter")
class Scatter(FromSource):
    """Elements of a tensor at their own places, but at `index` along `dim`; of several at one place the last."""

    @staticmethod
    def reference(x: np.ndarray, dim: int, index: np.ndarray, source: np.ndarray) -> np.ndarray:
        return _scattered(x, dim, index, source, None)


@op("aten.scatter_add.default", family="scatter")
class ScatterAdd(FromSource):
    """Elements of a tensor added at their own places, but at `index` along `dim`."""

    @property
    def join(self) -> Join:
        return SUM

    @staticmethod
    def reference(x: np.ndarray, dim: int, index: np.ndarray, source: np.ndarray) -> np.ndarray:
        return _scattered(x, dim, index, source, SUM)


@op("aten.scatter_reduce.two", family="scatter")
class ScatterReduce(FromSource):
    """Elements of a tensor joined at their own places, but at `index` along `dim`, with or without what is there."""

    reduce: str
    include_self: bool = True

    def outputs(self, ctx: Context) -> list[Dims]:
        _named_join(self.reduce)
        return super().outputs(ctx)

    @property
    def join(self) -> Join:
        return _named_join(self.reduce, self.include_self)

    @staticmethod
    def reference(
        x: np.ndarray, dim: int, index: np.ndarray, source: np.ndarray, reduce: str, include_self: bool
    ) -> np.ndarray:
        return _scattered(x, dim, index, source, _named_join(reduce, include_self))


@op("aten.scatter.reduce", family="scatter")
class ScatterBy(FromSource):
    """Elements of a tensor added ("add") or multiplied in at their own places, but at `index` along `dim`."""

    reduce: str

    @property
    def join(self) -> Join:
        return _named_join(self.reduce)

    @staticmethod
    def reference(x: np.ndarray, dim: int, index: np.ndarray, source: np.ndarray, reduce: str) -> np.ndarray:
        return _scattered(x, dim, index, source, _named_join(reduce))


def _named_join(reduce: str, include_self: bool = True) -> Join:
    name = {"add": "sum", "multiply": "prod"}.get(reduce, reduce)
    if name not in JOINS:
        raise InputError(f"values cannot be joined by {reduce!r}, only by {', '.join(JOINS)}")
    return Join(name, include_self)


class OfValue(Scattering):
    """One number."""

    value: float | Int

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        value = ctx.pin(self.value) if isinstance(self.value, LiveInt) else self.value
        dims = self.index.dims or (1,)
        return self.scatter(ctx, Values(value, (0,) * out.rank, (0,) * len(dims)), out)


@op("aten.scatter.value", family="scatter")
class ScatterValue(OfValue):
    """One number at `index` along `dim`."""

    @staticmethod
    def reference(x: np.ndarray, dim: int, index: np.ndarray, value: float) -> np.ndarray:
        return _scattered(x, dim, index, np.broadcast_to(value, index.shape), None)


@op("aten.scatter.value_reduce", family="scatter")
class ScatterValueBy(OfValue):
    """One number added ("add") or multiplied in at `index` along `dim`."""

    reduce: str

    @property
    def join(self) -> Join:
        return _named_join(self.reduce)

    @staticmethod
    def reference(x: np.ndarray, dim: int, index: np.ndarray, value: float, reduce: str) -> np.ndarray:
        return _scattered(x, dim, index, np.broadcast_to(value, index.shape), _named_join(reduce))


def _scattered(x: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray, join: Join | None) -> np.ndarray:
    if not index.size:
        return x
    part = np.atleast_1d(values)[tuple(slice(n) for n in np.atleast_1d(index).shape)]
    places = own_places(np.atleast_1d(index), dim)
    return _assigned(np.atleast_1d(x), places, part, join).reshape(x.shape)


def _assigned(x: np.ndarray, at: tuple[Any, ...], values: Any, join: Join | None) -> np.ndarray:
    result = np.array(x)
    if join is None or not join.include_self:
        result[at] = values if join is None else _nothing(join.how, x.dtype)
    if join is not None:
        JOINS[join.how].at(result, at, np.asarray(values).astype(x.dtype))
    if join is not None and join.how == "mean":
        count = np.zeros(x.shape, int)
        np.add.at(count, at, 1)
        count = np.maximum(count + join.include_self, 1)
        result = result // count if x.dtype.kind in "iu" else result / count
    return result


def _nothing(how: str, dtype: np.dtype[Any]) -> Any:
    """What joining begins with."""
    if how not in ("amax", "amin"):
        return 1 if how == "prod" else 0
    if dtype.kind == "b":
        return how == "amin"
    limits = np.iinfo(dtype) if dtype.kind in "iu" else np.array([-np.inf, np.inf])
    low, high = (limits.min, limits.max) if isinstance(limits, np.iinfo) else limits
    return low if how == "amax" else high
