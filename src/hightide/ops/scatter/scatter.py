"""Ops that put values, or join them, where index tensors say; `put.py` says how."""

from __future__ import annotations

import math
from collections.abc import Iterable
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
from hightide.ops.gather.gather import Pick, around, every_dim, own_places, require_picks
from hightide.ops.movement.strided import MAX_RANK, broadcast_strides, moved_kind, padded
from hightide.ops.scan.scan import running
from hightide.ops.scatter.put import JOINS, SUM, Join, Points, Values, put


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


class ByName(Scattering):
    """Joined as `reduce` says: "add" or "multiply"."""

    reduce: str

    @property
    def join(self) -> Join:
        return _named_join(self.reduce)


@op("aten.scatter.reduce", family="scatter")
class ScatterBy(ByName, FromSource):
    """Elements of a tensor added ("add") or multiplied in at their own places, but at `index` along `dim`."""

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
class ScatterValueBy(ByName, OfValue):
    """One number added ("add") or multiplied in at `index` along `dim`."""

    @staticmethod
    def reference(x: np.ndarray, dim: int, index: np.ndarray, value: float, reduce: str) -> np.ndarray:
        return _scattered(x, dim, index, np.broadcast_to(value, index.shape), _named_join(reduce))


@op("aten.max_pool2d_with_indices_backward.default", family="scatter")
class MaxPoolGradient(Op):
    """The gradient of every maximum of a pooling of x [.., H, W], at the pixel where it was found."""

    grad: Tensor
    x: Tensor
    size: tuple[Int, ...]
    stride: tuple[Int, ...]
    padding: tuple[Int, ...]
    dilation: tuple[Int, ...]
    ceil_mode: bool
    indices: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        x, grad = self.x, self.grad
        if x.rank not in (3, 4) or grad.dims != self.indices.dims or grad.dims[:-2] != x.dims[:-2]:
            raise InputError(
                f"gradients of {list(grad.dims)} at indices of {list(self.indices.dims)} for {list(x.dims)}"
            )
        require_picks(ctx, self.indices, x.rank - 1, x.dims[-2] * x.dims[-1])
        return [x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        pixels, planes = math.prod(out.dims[-2:]), math.prod(out.dims[:-2])
        points = (planes, math.prod(self.grad.dims[-2:]))
        pick = Pick(self.indices, strides_of(points), pixels, 1)
        values = Values(self.grad, (0,) * out.rank, strides_of(points))
        return put(ctx, None, Points(points, (pixels, 0), [pick], range(out.rank)), values, SUM, out)

    @staticmethod
    def reference(grad: np.ndarray, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        planes = math.prod(x.shape[:-2])
        flat = (planes, math.prod(grad.shape[-2:]))
        result = np.zeros((planes, math.prod(x.shape[-2:])), grad.dtype)
        np.add.at(result, (np.arange(planes)[:, None], indices.reshape(flat)), grad.reshape(flat))
        return result.reshape(x.shape)


@op("aten.masked_scatter.default", family="scatter")
class MaskedScatter(Op):
    """x, with the elements of a source, one after the other, where the mask is set.

    x and the mask are broadcast. The source must have an element for every place: on a GPU nobody counts the mask.
    """

    x: Tensor
    mask: Tensor
    source: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        dims = broadcast(self.x.dims, self.mask.dims)
        if self.source.numel < math.prod(dims):
            places = math.prod(dims)
            raise InputError(
                f"a source of {self.source.numel} elements is short of {places} places that a mask may name"
            )
        return [dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        x, mask, source = self.x, self.mask, self.source
        packed, nbytes = moved_kind(x, out) == "u8", 4 * max(out.numel, 1)
        moved_kind(source, out)
        if mask.dtype != "bool" or nbytes > ctx.scratch_limit:
            raise UnsupportedError(f"a {mask.dtype} mask for {out.numel} elements has no kernel")
        flags, counts = ctx.scratch(nbytes), ctx.scratch(nbytes)
        if not out.numel:
            return
        box = {"numel": out.numel, "box_first": MAX_RANK - out.rank, "box_dims": padded(out.dims, 1)}
        strides = padded(broadcast_strides(mask.dims, out.dims), 0)
        yield kernel("scatter/masked.wgsl", "masked_flags", PART="flags", BYTES=False).over(
            ceil_div(out.numel, 64), mask=mask, flags=flags, box_strides=strides, **box
        )
        yield running("+", "i32", "i32", flags, (1, out.numel, 1), counts)
        strides = padded(broadcast_strides(x.dims, out.dims), 0)
        yield kernel("scatter/masked.wgsl", "masked_scatter", PART="take", BYTES=packed).over(
            ceil_div(out.numel, 256 if packed else 64),
            x=x,
            source=source,
            counts=counts,
            out=out,
            most=source.numel,
            box_strides=strides,
            **box,
        )

    @staticmethod
    def reference(x: np.ndarray, mask: np.ndarray, source: np.ndarray) -> np.ndarray:
        result, where = (np.array(a) for a in np.broadcast_arrays(x, mask))
        count = np.count_nonzero(where)
        if count > source.size:
            raise InputError(f"a mask of {count} places for a source of {source.size} elements")
        result[where] = source.reshape(-1)[:count]
        return result


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
