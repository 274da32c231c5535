"""Ops that move elements without computing on them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hightide.errors import InputError
from hightide.graph.symbols import Sym, SymExpr
from hightide.graph.values import Dims
from hightide.ops.contract import (
    Context,
    Dispatch,
    Int,
    MovingOp,
    Tensor,
    existing_dim,
    expr_of,
    normalize_dim,
    op,
    strides_of,
)
from hightide.ops.cost import distinct
from hightide.ops.movement.strided import broadcast_strides, copy, move, moved_kind, place

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


@op("aten.slice_copy.Tensor", "aten.slice.Tensor", family="movement")
class Slice(MovingOp):
    """x[start:end:step] along `dim`; the bounds may be SymInts.

    A start that changes at every step (the position) stays out of the level: the kernel reads it.
    Literal bounds clamp as in Python; a live one outside the dim is an error.
    """

    x: Tensor
    dim: int = 0
    start: Int = 0
    end: Int = 2**63 - 1
    step: Int = 1

    def outputs(self, ctx: Context) -> list[Dims]:
        x, dim = self.x, existing_dim(self.dim, self.x.dims)
        size, step = x.dims[dim], ctx.pin(self.step)
        if step < 1:
            raise InputError(f"a slice with step {step}")
        first, end = _clamped(self.start, size), _clamped(self.end, size)
        length = max(0, ctx.pin(end - first))
        if isinstance(end, Sym) and not isinstance(first, Sym):
            ctx.require(end, 0, size, f"rows up to {{value}} of a dim of {size} are asked for")
        if isinstance(first, Sym):
            asks = f"rows {{value}} to +{length} of a dim of {size} are asked for: the position plus the tokens"
            ctx.require(first, 0, size - length, f"{asks} must stay within {size}")
        return [(*x.dims[:dim], -(-length // step), *x.dims[dim + 1 :])]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        x, dim = self.x, existing_dim(self.dim, self.x.dims)
        first, step = _clamped(self.start, x.dims[dim]), ctx.pin(self.step)
        strides = strides_of(x.dims)
        stepped = tuple(s * step if n == dim else s for n, s in enumerate(strides))
        start = self.start if isinstance(first, Sym) else first
        yield move(x, out, out.dims, stepped, strides_of(out.dims), live_start=(start, strides[dim]))

    @staticmethod
    def reference(x: np.ndarray, dim: int, start: int, end: int, step: int) -> np.ndarray:
        return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


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
        size, at = x.dims[dim], expr_of(self.index)
        low = 0 if isinstance(at, Sym) else -size
        ctx.require(at, low, size - 1, f"index {{value}} is outside dim {dim} of {size}")
        return [(*x.dims[:dim], *x.dims[dim + 1 :])]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        x, dim = self.x, existing_dim(self.dim, self.x.dims)
        strides, at = strides_of(x.dims), expr_of(self.index)
        start = self.index if isinstance(at, Sym) else at % x.dims[dim]
        others = (*strides[:dim], *strides[dim + 1 :])
        yield move(x, out, out.dims, others, strides_of(out.dims), live_start=(start, strides[dim]))

    @staticmethod
    def reference(x: np.ndarray, dim: int, index: int) -> np.ndarray:
        return np.take(x, index, axis=dim)


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


@op("aten.cat.default", family="movement")
class Cat(MovingOp):
    """Tensors one after the other along `dim`."""

    tensors: tuple[Tensor, ...]
    dim: int = 0

    def outputs(self, ctx: Context) -> list[Dims]:
        parts = self._parts()
        if not parts:
            raise InputError("no tensors to join")
        first = parts[0].dims
        dim = existing_dim(self.dim, first)
        for part in parts[1:]:
            if part.rank != len(first) or any(
                d != f for n, (d, f) in enumerate(zip(part.dims, first, strict=True)) if n != dim
            ):
                raise InputError(f"{list(first)} and {list(part.dims)} cannot be joined along dim {dim}")
        return [(*first[:dim], sum(part.dims[dim] for part in parts), *first[dim + 1 :])]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        dim = normalize_dim(self.dim, out.rank)
        to = strides_of(out.dims)
        at = 0
        for part in self._parts():
            if moved_kind(part, out) != "u8":
                yield move(part, out, part.dims, strides_of(part.dims), to, dst_start=at * to[dim])
            elif part.numel:  # parts may share words: one after the other fills in its bytes
                yield place(part, out, tuple(at if n == dim else 0 for n in range(out.rank)), None)
            at += part.dims[dim]

    def _parts(self) -> list[Tensor]:
        """torch lets an empty vector stand beside tensors of any rank."""
        return [t for t in self.tensors if t.dims != (0,)] or list(self.tensors[:1])

    def bytes_written(self, tensor: Tensor, dispatch: Dispatch) -> int:
        """A dispatch places one part."""
        return min(tensor.nbytes, sum(part.nbytes for part in distinct(dispatch.reads)))

    @staticmethod
    def reference(tensors: tuple[np.ndarray, ...], dim: int) -> np.ndarray:
        return np.concatenate([t for t in tensors if t.shape != (0,)] or list(tensors[:1]), axis=dim)


@op("aten.split_with_sizes_copy.default", "aten.split_with_sizes.default", family="movement")
class SplitWithSizes(MovingOp):
    """Consecutive pieces of the given sizes along `dim`."""

    x: Tensor
    sizes: tuple[Int, ...]
    dim: int = 0

    def outputs(self, ctx: Context) -> list[Dims]:
        x, dim = self.x, existing_dim(self.dim, self.x.dims)
        pieces = [ctx.pin(size) for size in self.sizes]
        if sum(pieces) != x.dims[dim] or min(pieces, default=0) < 0:
            raise InputError(f"pieces of {pieces} do not make up dim {dim} of {x.dims[dim]}")
        return [(*x.dims[:dim], piece, *x.dims[dim + 1 :]) for piece in pieces]

    def plan(self, ctx: Context, out: tuple[Tensor, ...]) -> Iterable[Dispatch]:
        x, dim = self.x, existing_dim(self.dim, self.x.dims)
        strides = strides_of(x.dims)
        at = 0
        for piece in out:
            yield move(x, piece, piece.dims, strides, strides_of(piece.dims), src_start=at * strides[dim])
            at += piece.dims[dim]

    @staticmethod
    def reference(x: np.ndarray, sizes: tuple[int, ...], dim: int) -> tuple[np.ndarray, ...]:
        ends = np.cumsum(sizes)[:-1].tolist()
        return tuple(np.split(x, ends, axis=dim))


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


__all__ = ["broadcast_strides", "expanded"]


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
