"""Ops that move elements without computing on them. Parts of tensors are in `slices.py` and `pieces.py`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import ClassVar

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import (
    Context,
    Dispatch,
    Int,
    Kernel,
    LiveInt,
    MovingOp,
    Op,
    Tensor,
    ceil_div,
    existing_dim,
    kernel,
    normalize_dim,
    op,
    strides_of,
)
from hightide.ops.fill.fill import fill
from hightide.ops.movement import pieces, slices
from hightide.ops.movement.strided import broadcast_strides, continue_edges, copy, move, moved_kind, place, rotate

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


@op("aten.transpose_copy.int", "aten.transpose.int", family="movement")
class Transpose(MovingOp):
    """Two dims swapped."""

    x: Tensor
    dim0: int
    dim1: int

    def outputs(self, ctx: Context) -> list[Dims]:
        return [tuple(self.x.dims[d] for d in _swapped(self.x.rank, self.dim0, self.dim1))]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        strides = strides_of(self.x.dims)
        order = _swapped(self.x.rank, self.dim0, self.dim1)
        yield move(self.x, out, out.dims, tuple(strides[d] for d in order), strides_of(out.dims))

    @staticmethod
    def reference(x: np.ndarray, dim0: int, dim1: int) -> np.ndarray:
        return np.transpose(x, _swapped(x.ndim, dim0, dim1))


def _swapped(rank: int, dim0: int, dim1: int) -> list[int]:
    order = list(range(rank))
    first, second = normalize_dim(dim0, rank), normalize_dim(dim1, rank)
    if rank:
        order[first], order[second] = second, first
    return order


@op("aten.diagonal_copy.default", "aten.diagonal.default", family="movement")
class Diagonal(MovingOp):
    """The diagonal `offset` columns right of the main one, of the matrices that two dims make; it is the last dim."""

    x: Tensor
    offset: int = 0
    dim1: int = 0
    dim2: int = 1

    def outputs(self, ctx: Context) -> list[Dims]:
        row, column = self._matrix()
        rows, columns = self.x.dims[row], self.x.dims[column]
        length = max(min(rows, columns - self.offset) if self.offset > 0 else min(rows + self.offset, columns), 0)
        return [(*(d for n, d in enumerate(self.x.dims) if n not in (row, column)), length)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        if not out.numel:
            return
        (row, column), strides = self._matrix(), strides_of(self.x.dims)
        others = tuple(s for n, s in enumerate(strides) if n not in (row, column))
        start = self.offset * strides[column] if self.offset > 0 else -self.offset * strides[row]
        source = (*others, strides[row] + strides[column])
        yield move(self.x, out, out.dims, source, strides_of(out.dims), src_start=start)

    def _matrix(self) -> tuple[int, int]:
        row, column = existing_dim(self.dim1, self.x.dims), existing_dim(self.dim2, self.x.dims)
        if row == column:
            raise InputError(f"the diagonal of dim {row} and itself")
        return row, column

    @staticmethod
    def reference(x: np.ndarray, offset: int, dim1: int, dim2: int) -> np.ndarray:
        most = max(x.shape)  # NumPy cuts a larger offset to 32 bits
        return np.diagonal(x, min(max(offset, -most), most), dim1, dim2)


@op("aten.as_strided_copy.default", family="movement")
class AsStrided(MovingOp):
    """Elements of x, as it lies in memory, at any strides."""

    x: Tensor
    sizes: tuple[Int, ...]
    strides: tuple[Int, ...]
    offset: Int = 0

    def outputs(self, ctx: Context) -> list[Dims]:
        sizes, strides, offset = self._box(ctx)
        _check_box(sizes, strides, offset, self.x.numel)
        return [sizes]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        sizes, strides, offset = self._box(ctx)
        if out.numel:
            yield move(self.x, out, sizes, strides, strides_of(sizes), src_start=offset)

    def _box(self, ctx: Context) -> tuple[Dims, Dims, int]:
        return tuple(map(ctx.pin, self.sizes)), tuple(map(ctx.pin, self.strides)), ctx.pin(self.offset)

    @staticmethod
    def reference(x: np.ndarray, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> np.ndarray:
        _check_box(sizes, strides, offset, x.size)
        places = np.full(sizes, offset)
        for index, stride in zip(np.indices(sizes, sparse=True), strides, strict=True):
            places = places + index * stride
        return x.reshape(-1)[places]


def _check_box(sizes: Dims, strides: Dims, offset: int, count: int) -> None:
    """All of a box lies within `count` elements."""
    if len(sizes) != len(strides) or min((*sizes, *strides, offset)) < 0:
        raise InputError(f"a box of {list(sizes)} at strides {list(strides)} from {offset}")
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if 0 not in sizes and last >= count:
        raise InputError(f"{list(sizes)} at strides {list(strides)} from {offset} is beyond {count} elements")


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


class EdgePad(MovingOp):
    """x continued beyond its edges by its own elements. Negative pads cut."""

    x: Tensor
    pads: tuple[Int, ...]
    continued: ClassVar[str]  # "mirror" or "edge"

    def outputs(self, ctx: Context) -> list[Dims]:
        sizes = _pads(tuple(ctx.pin(p) for p in self.pads), self.x.rank)
        for size, (before, after) in zip(self.x.dims, sizes, strict=True):
            if (before or after) and not _continues(self.continued, size, before, after):
                raise InputError(f"padding {list(self.x.dims)} with {sizes} by its own elements")
        return [tuple(d + before + after for d, (before, after) in zip(self.x.dims, sizes, strict=True))]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        sizes = _pads(tuple(ctx.pin(p) for p in self.pads), self.x.rank)
        yield continue_edges(self.x, out, tuple(before for before, _ in sizes), self.continued)

    @classmethod
    def reference(cls, x: np.ndarray, pads: tuple[int, ...]) -> np.ndarray:
        for dim, (before, after) in enumerate(_pads(pads, x.ndim)):
            last = x.shape[dim] - 1
            index = np.arange(-before, x.shape[dim] + after)
            mirrored = last - np.abs(last - np.abs(index))
            if before or after:
                x = np.take(x, mirrored if cls.continued == "mirror" else np.clip(index, 0, last), axis=dim)
        return x


def _continues(continued: str, size: int, before: int, after: int) -> bool:
    """Whether a dim can be padded so; a mirror shows each element once."""
    most = size - 1 if continued == "mirror" else 2**31
    return size > 0 and max(before, after) <= most and size + before + after > 0 and min(before, after) > -size


@op(*(f"aten.reflection_pad{rank}d.default" for rank in (1, 2, 3)), family="movement")
class ReflectionPad(EdgePad):
    """x mirrored at its edges: (before, after) of the last dim, then of the one before it."""

    continued = "mirror"


@op(*(f"aten.replication_pad{rank}d.default" for rank in (1, 2, 3)), family="movement")
class ReplicationPad(EdgePad):
    """The elements at the edges of x repeated: (before, after) of the last dim, then of the one before it."""

    continued = "edge"


@op("aten.native_dropout.default", family="movement")
class Dropout(Op):
    """x, and a mask of all that is kept: everything, since nothing is dropped at inference."""

    x: Tensor
    p: float
    train: bool | None = None

    def outputs(self, ctx: Context) -> list[Dims]:
        _check_dropout(self.p, self.train)
        return [self.x.dims, self.x.dims]

    def plan(self, ctx: Context, out: tuple[Tensor, Tensor]) -> Iterable[Dispatch]:
        yield copy(self.x, out[0])
        yield fill(out[1], 1)

    @staticmethod
    def reference(x: np.ndarray, p: float, train: bool | None) -> tuple[np.ndarray, np.ndarray]:
        _check_dropout(p, train)
        return x, np.ones(x.shape, bool)


def _check_dropout(p: float, train: bool | None) -> None:
    if p and train is not False:  # torch: None is training
        raise UnsupportedError(f"dropping {p:g} of the elements is for training; export the model with .eval()")


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
