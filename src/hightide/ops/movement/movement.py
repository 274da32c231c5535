"""Ops that move elements without computing on them. Parts of tensors are in `slices.py` and `pieces.py`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import ClassVar

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import (
    Context,
    Dispatch,
    Int,
    Kernel,
    LiveInt,
    MovingOp,
    Tensor,
    ceil_div,
    existing_dim,
    kernel,
    normalize_dim,
    op,
    strides_of,
)
from hightide.ops.movement import pieces, slices
from hightide.ops.movement.strided import broadcast_strides, copy, move, moved_kind, place, rotate

PERMUTES = ("aten.permute_copy.default", "aten.permute.default", "aten.t_copy.default", "aten.t.default")


@op(*PERMUTES, family="movement")
class Permute(MovingOp):
    """Dims in another order."""

    x: Tensor
    order: tuple[int, ...] | None = None  # for `t`: reversed

    def outputs(self, ctx: Context) -> list[Dims]:
        rank, order = self.x.rank, self._order()
        if sorted(normalize_dim(d, rank) for d in order) != list(range(rank)):
            raise InputError(f"{list(order)} does not order the dims of rank {rank}")
        return [tuple(self.x.dims[d] for d in order)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        strides = strides_of(self.x.dims)
        yield move(self.x, out, out.dims, tuple(strides[d] for d in self._order()), strides_of(out.dims))

    def _order(self) -> tuple[int, ...]:
        return tuple(reversed(range(self.x.rank))) if self.order is None else self.order

    @staticmethod
    def reference(x: np.ndarray, order: tuple[int, ...] | None) -> np.ndarray:
        return np.transpose(x, order)


@op("aten.expand_copy.default", "aten.expand.default", family="movement")
class Expand(MovingOp):
    """Dims of 1 repeated without limit; -1 keeps a dim."""

    x: Tensor
    sizes: tuple[Int, ...]
    implicit: bool = False  # of interest to torch's own passes

    def outputs(self, ctx: Context) -> list[Dims]:
        return [expanded(self.x.dims, tuple(ctx.pin(s) for s in self.sizes))]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield move(self.x, out, out.dims, broadcast_strides(self.x.dims, out.dims), strides_of(out.dims))

    @staticmethod
    def reference(x: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
        return np.broadcast_to(x, expanded(x.shape, sizes))


def expanded(dims: Dims, sizes: Dims) -> Dims:
    lead = len(sizes) - len(dims)
    full = (1,) * lead + dims
    result = tuple(d if s == -1 else s for d, s in zip(full, sizes, strict=False))
    if lead < 0 or any(d not in (1, r) for d, r in zip(full, result, strict=True)):
        raise InputError(f"{list(dims)} cannot be expanded to {list(sizes)}")
    return result


@op("aten.repeat.default", family="movement")
class Repeat(MovingOp):
    """Whole copies side by side along each dim."""

    x: Tensor
    repeats: tuple[Int, ...]

    def outputs(self, ctx: Context) -> list[Dims]:
        times = tuple(ctx.pin(r) for r in self.repeats)
        if len(times) < self.x.rank or min(times, default=0) < 0:
            raise InputError(f"{list(self.x.dims)} cannot be repeated {list(times)} times")
        full = (1,) * (len(times) - self.x.rank) + self.x.dims
        return [tuple(d * t for d, t in zip(full, times, strict=True))]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        if not out.numel or not self.x.numel:
            return
        full = (1,) * (out.rank - self.x.rank) + self.x.dims
        inner, to = strides_of(full), strides_of(out.dims)
        box, src, dst = [], [], []
        for n, (d, o) in enumerate(zip(full, out.dims, strict=True)):
            box += [o // d, d]
            src += [0, inner[n]]
            dst += [d * to[n], to[n]]
        yield move(self.x, out, tuple(box), tuple(src), tuple(dst))

    @staticmethod
    def reference(x: np.ndarray, repeats: tuple[int, ...]) -> np.ndarray:
        return np.tile(x, repeats)


@op("aten.flip.default", family="movement")
class Flip(MovingOp):
    """The order reversed along some dims."""

    x: Tensor
    dims: tuple[int, ...]

    def outputs(self, ctx: Context) -> list[Dims]:
        if len({normalize_dim(d, self.x.rank) for d in self.dims}) != len(self.dims):
            raise InputError(f"{list(self.dims)} names a dim twice")
        return [self.x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        x = self.x
        flipped = {normalize_dim(d, x.rank) for d in self.dims}
        strides = strides_of(x.dims)
        start = sum((x.dims[d] - 1) * strides[d] for d in flipped)
        signed = tuple(-s if n in flipped else s for n, s in enumerate(strides))
        yield move(x, out, x.dims, signed, strides, src_start=start)

    @staticmethod
    def reference(x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
        return np.flip(x, dims)


@op("aten.roll.default", family="movement")
class Roll(MovingOp):
    """Elements moved by `shifts` along `dims`, those at the end to the start; without dims as one long row."""

    x: Tensor
    shifts: tuple[Int, ...]
    dims: tuple[int, ...] = ()

    def outputs(self, ctx: Context) -> list[Dims]:
        if len(self.shifts) != (len(self.dims) or 1):
            raise InputError(f"{len(self.shifts)} shifts along {len(self.dims)} dims")
        for dim in self.dims:
            existing_dim(dim, self.x.dims)
        return [self.x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        x, by = self.x, [ctx.pin(shift) for shift in self.shifts]
        if not self.dims:
            yield rotate(Tensor(x.value, (x.numel,)), Tensor(out.value, (x.numel,)), tuple(by))
            return
        shifts = [0] * x.rank
        for dim, shift in zip(self.dims, by, strict=True):
            shifts[dim] += shift
        yield rotate(x, out, tuple(shifts))

    @staticmethod
    def reference(x: np.ndarray, shifts: tuple[int, ...], dims: tuple[int, ...]) -> np.ndarray:
        return np.roll(x, shifts, dims or None)


class Triangle(MovingOp):
    """One side of every matrix from a diagonal on, zeros on the other."""

    x: Tensor
    diagonal: Int = 0  # columns to the right of the main one
    upper: ClassVar[bool] = False

    def outputs(self, ctx: Context) -> list[Dims]:
        if self.x.rank < 2:
            raise InputError(f"{list(self.x.dims)} is no matrix")
        return [self.x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        packed = moved_kind(self.x, out) == "u8"
        yield _triangle(packed, self.upper).over(
            ceil_div(out.numel, 256 if packed else 64),
            x=self.x,
            out=out,
            numel=out.numel,
            rows=out.dims[-2],
            columns=out.dims[-1],
            diagonal=self.diagonal if isinstance(self.diagonal, LiveInt) else _clamped(self.diagonal),
        )


def _clamped(number: int) -> int:
    """As an i32; no dim is larger."""
    return min(max(number, -(2**31)), 2**31 - 1)


@cache
def _triangle(packed: bool, upper: bool) -> Kernel:
    name = "triangle_bytes" if packed else "triangle"
    return kernel("movement/triangle.wgsl", name, BYTES=packed, UPPER=upper)


@op("aten.tril.default", family="movement")
class Tril(Triangle):
    """What lies on the diagonal and below it, of every matrix."""

    reference = staticmethod(lambda x, diagonal: np.tril(x, diagonal))


@op("aten.triu.default", family="movement")
class Triu(Triangle):
    """What lies on the diagonal and above it, of every matrix."""

    upper = True
    reference = staticmethod(lambda x, diagonal: np.triu(x, diagonal))


@op("aten.constant_pad_nd.default", family="movement")
class Pad(MovingOp):
    """A constant around x: (before, after) of the last dim, then of the one before it. Negative ones cut."""

    x: Tensor
    pads: tuple[Int, ...]
    value: int | float = 0

    def outputs(self, ctx: Context) -> list[Dims]:
        sizes = _pads(tuple(ctx.pin(p) for p in self.pads), self.x.rank)
        dims = tuple(d + before + after for d, (before, after) in zip(self.x.dims, sizes, strict=True))
        cut = [max(-before, 0) + max(-after, 0) for before, after in sizes]
        if any(c > d for c, d in zip(cut, self.x.dims, strict=True)):
            raise InputError(f"padding {list(self.x.dims)} with {sizes} leaves less than nothing")
        return [dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        sizes = _pads(tuple(ctx.pin(p) for p in self.pads), self.x.rank)
        yield place(self.x, out, tuple(before for before, _ in sizes), self.value)

    @staticmethod
    def reference(x: np.ndarray, pads: tuple[int, ...], value: float) -> np.ndarray:
        sizes = _pads(pads, x.ndim)
        kept = tuple(slice(max(-b, 0), d - max(-a, 0)) for (b, a), d in zip(sizes, x.shape, strict=True))
        around = [(max(b, 0), max(a, 0)) for b, a in sizes]
        return np.pad(x[kept], around, constant_values=value) if sizes else x


def _pads(pads: tuple[int, ...], rank: int) -> list[tuple[int, int]]:
    """(before, after) of every dim, the first dim first."""
    if len(pads) % 2 or len(pads) > 2 * rank:
        raise InputError(f"{len(pads)} pads for a tensor of rank {rank}")
    given = [(pads[n], pads[n + 1]) for n in range(len(pads) - 2, -1, -2)]
    return [(0, 0)] * (rank - len(given)) + given


@op("aten.unfold_copy.default", "aten.unfold.default", family="movement")
class Unfold(MovingOp):
    """Windows of `size` elements, `step` apart, along `dim`; the elements of a window are a new last dim."""

    x: Tensor
    dim: int
    size: Int
    step: Int

    def outputs(self, ctx: Context) -> list[Dims]:
        x, dim = self.x, normalize_dim(self.dim, self.x.rank)
        length = x.dims[dim] if x.rank else 1
        size, step = ctx.pin(self.size), ctx.pin(self.step)
        if not 0 <= size <= length or step < 1:
            raise InputError(f"windows of {size}, {step} apart, of a dim of {length}")
        windows = ((length - size) // step + 1,) if x.rank else ()
        return [(*x.dims[:dim], *windows, *x.dims[dim + 1 :], size)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        x, dim = self.x, normalize_dim(self.dim, self.x.rank)
        strides, apart = strides_of(x.dims), ctx.pin(self.step)
        source = (*(s * apart if n == dim else s for n, s in enumerate(strides)), strides[dim] if x.rank else 0)
        yield move(x, out, out.dims, source, strides_of(out.dims))

    @staticmethod
    def reference(x: np.ndarray, dim: int, size: int, step: int) -> np.ndarray:
        if not x.ndim:
            return x.reshape(1)[:size]
        starts = range(0, x.shape[dim] - size + 1, step)
        windows = [np.take(x, range(at, at + size), axis=dim) for at in starts]
        return np.moveaxis(np.stack(windows, axis=dim % x.ndim), dim % x.ndim + 1, -1)


@op("hightide.store.default", family="movement")
class Store(MovingOp):
    """Writes x to a state, whole; the result is a placeholder that nobody reads."""

    x: Tensor
    state: Tensor
    mutates = ("state",)

    def outputs(self, ctx: Context) -> list[Dims]:
        if self.x.dims != self.state.dims:
            raise InputError(f"{list(self.x.dims)} does not fill a state of {list(self.state.dims)}")
        return [(1,)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield copy(self.x, self.state)

    @staticmethod
    def reference(x: np.ndarray, state: np.ndarray) -> np.ndarray:
        state[...] = x
        return np.zeros(1, np.float32)


__all__ = ["broadcast_strides", "expanded", "pieces", "slices"]
