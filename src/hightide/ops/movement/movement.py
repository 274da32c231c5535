"""Ops that move elements without computing on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.symbols import Sym
from hightide.graph.values import Dims
from hightide.ops.legacy import (
    GPU_TYPE,
    Context,
    Dispatch,
    LiveInt,
    Op,
    Tensor,
    expr_of,
    normalize_dim,
    op,
    strides_of,
)
from hightide.ops.movement.strided import broadcast_strides, move, place


@op("aten.permute_copy.default", "aten.permute.default")
class Permute(Op):
    """Dims in another order."""

    def outputs(self, ctx: Context, x: Tensor, order: tuple[int, ...]) -> list[Dims]:
        if sorted(d % max(x.rank, 1) for d in order) != list(range(x.rank)):
            raise InputError(f"{list(order)} does not order the dims of rank {x.rank}")
        return [tuple(x.dims[d] for d in order)]

    def plan(self, ctx: Context, x: Tensor, order: tuple[int, ...], *, out: Tensor) -> Iterable[Dispatch]:
        strides = strides_of(x.dims)
        yield move(x, out, out.dims, tuple(strides[d] for d in order), strides_of(out.dims))

    def reference(self, x: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
        return np.transpose(x, order)


@op("aten.t_copy.default", "aten.t.default")
class Transpose(Permute):
    """A matrix transposed; vectors stay."""

    def outputs(self, ctx: Context, x: Tensor, *_: Any) -> list[Dims]:
        return [x.dims[::-1]]

    def plan(self, ctx: Context, x: Tensor, *_: Any, out: Tensor) -> Iterable[Dispatch]:
        return super().plan(ctx, x, tuple(range(x.rank))[::-1], out=out)

    def reference(self, x: np.ndarray, *_: Any) -> np.ndarray:
        return x.T


@op("aten.slice_copy.Tensor", "aten.slice.Tensor")
class Slice(Op):
    """x[start:end:step] along `dim`; the bounds may be SymInts.

    A start that changes at every step (the position) stays out of the level: the kernel reads it.
    Literal bounds clamp as in Python; a live one outside the dim is an error.
    """

    def outputs(self, ctx: Context, x: Tensor, dim: int, start: Any, end: Any, step: Any = 1) -> list[Dims]:
        dim = normalize_dim(dim, x.rank)
        size = x.dims[dim]
        first, last = _bounds(start, end, size)
        step = ctx.pin(expr_of(step))
        if step < 1:
            raise InputError(f"a slice with step {step}")
        length = max(0, ctx.pin(last - first))
        if isinstance(first, Sym):
            asks = f"rows {{value}} to +{length} of a dim of {size} are asked for: the position plus the tokens"
            ctx.require(first, 0, size - length, f"{asks} must stay within {size}")
        return [(*x.dims[:dim], -(-length // step), *x.dims[dim + 1 :])]

    def plan(self, ctx: Context, x: Tensor, dim: int, start: Any, end: Any, step: Any = 1, *, out: Tensor) -> Any:
        dim = normalize_dim(dim, x.rank)
        first, _ = _bounds(start, end, x.dims[dim])
        strides = strides_of(x.dims)
        stepped = tuple(s * ctx.pin(expr_of(step)) if n == dim else s for n, s in enumerate(strides))
        live = start if isinstance(first, Sym) else first  # a literal start was resolved and clamped
        yield move(x, out, out.dims, stepped, strides_of(out.dims), live_start=(live, strides[dim]))

    def reference(self, x: np.ndarray, dim: int, start: int | None, end: int | None, step: int = 1) -> np.ndarray:
        return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def _bounds(start: int | LiveInt | None, end: int | LiveInt | None, size: int) -> tuple[Any, Any]:
    """(start, end) resolved against the live size: negative ones count from the end, known ones clamp."""

    def resolve(bound: int | LiveInt | None, default: int) -> Any:
        value = default if bound is None else expr_of(bound)
        if isinstance(value, Sym):
            return value
        return min(max(value + size if value < 0 else value, 0), size)

    return resolve(start, 0), resolve(end, size)


@op("aten.select_copy.int", "aten.select.int")
class Select(Op):
    """x[index] along `dim`, which goes away; a negative index counts from the live end."""

    def outputs(self, ctx: Context, x: Tensor, dim: int, index: int | LiveInt) -> list[Dims]:
        dim = normalize_dim(dim, x.rank)
        size = x.dims[dim]
        at = expr_of(index)
        low = 0 if isinstance(at, Sym) else -size
        ctx.require(at, low, size - 1, f"index {{value}} is outside dim {dim} of {size}")
        return [(*x.dims[:dim], *x.dims[dim + 1 :])]

    def plan(self, ctx: Context, x: Tensor, dim: int, index: int | LiveInt, *, out: Tensor) -> Iterable[Dispatch]:
        dim = normalize_dim(dim, x.rank)
        strides = strides_of(x.dims)
        at = expr_of(index)
        live = index if isinstance(at, Sym) else at % x.dims[dim]
        kept = (*strides[:dim], *strides[dim + 1 :])
        yield move(x, out, out.dims, kept, strides_of(out.dims), live_start=(live, strides[dim]))

    def reference(self, x: np.ndarray, dim: int, index: int) -> np.ndarray:
        return np.take(x, index, axis=dim)


@op("aten.expand_copy.default", "aten.expand.default")
class Expand(Op):
    """Dims of 1 repeated without limit; -1 keeps a dim."""

    def outputs(self, ctx: Context, x: Tensor, sizes: tuple[int | LiveInt, ...], *_: Any) -> list[Dims]:
        return [expanded(x.dims, tuple(ctx.pin(expr_of(s)) for s in sizes))]

    def plan(self, ctx: Context, x: Tensor, sizes: Any, *_: Any, out: Tensor) -> Iterable[Dispatch]:
        yield move(x, out, out.dims, broadcast_strides(x.dims, out.dims), strides_of(out.dims))

    def reference(self, x: np.ndarray, sizes: tuple[int, ...], *_: Any) -> np.ndarray:
        return np.broadcast_to(x, expanded(x.shape, sizes))


def expanded(dims: Dims, sizes: Dims) -> Dims:
    lead = len(sizes) - len(dims)
    full = (1,) * lead + dims
    result = tuple(d if s == -1 else s for d, s in zip(full, sizes, strict=False))
    if lead < 0 or any(d not in (1, r) for d, r in zip(full, result, strict=True)):
        raise InputError(f"{list(dims)} cannot be expanded to {list(sizes)}")
    return result


@op("aten.repeat.default")
class Repeat(Op):
    """Whole copies side by side along each dim."""

    def outputs(self, ctx: Context, x: Tensor, repeats: tuple[int | LiveInt, ...]) -> list[Dims]:
        times = tuple(ctx.pin(expr_of(r)) for r in repeats)
        if len(times) < x.rank or min(times, default=0) < 0:
            raise InputError(f"{list(x.dims)} cannot be repeated {list(times)} times")
        full = (1,) * (len(times) - x.rank) + x.dims
        return [tuple(d * t for d, t in zip(full, times, strict=True))]

    def plan(self, ctx: Context, x: Tensor, repeats: Any, *, out: Tensor) -> Iterable[Dispatch]:
        if not out.numel:
            return
        full = (1,) * (out.rank - x.rank) + x.dims
        inner, to = strides_of(full), strides_of(out.dims)
        box, src, dst = [], [], []
        for n, (d, o) in enumerate(zip(full, out.dims, strict=True)):
            box += [o // d, d]
            src += [0, inner[n]]
            dst += [d * to[n], to[n]]
        yield move(x, out, tuple(box), tuple(src), tuple(dst))

    def reference(self, x: np.ndarray, repeats: tuple[int, ...]) -> np.ndarray:
        return np.tile(x, repeats)


@op("aten.cat.default")
class Cat(Op):
    """Tensors one after the other along `dim`."""

    def outputs(self, ctx: Context, tensors: tuple[Tensor, ...], dim: int = 0) -> list[Dims]:
        parts = _parts(tensors)
        first = parts[0].dims
        dim = normalize_dim(dim, len(first))
        for part in parts[1:]:
            if part.rank != len(first) or any(
                d != f for n, (d, f) in enumerate(zip(part.dims, first, strict=True)) if n != dim
            ):
                raise InputError(f"{list(first)} and {list(part.dims)} cannot be joined along dim {dim}")
        return [(*first[:dim], sum(part.dims[dim] for part in parts), *first[dim + 1 :])]

    def plan(self, ctx: Context, tensors: tuple[Tensor, ...], dim: int = 0, *, out: Tensor) -> Iterable[Dispatch]:
        dim = normalize_dim(dim, out.rank)
        to = strides_of(out.dims)
        at = 0
        for part in _parts(tensors):
            if GPU_TYPE.get(out.dtype) == "u8":  # parts may share words: one after the other fills in its bytes
                if part.numel:
                    yield place(part, out, tuple(at if n == dim else 0 for n in range(out.rank)), None)
            else:
                yield move(part, out, part.dims, strides_of(part.dims), to, dst_start=at * to[dim])
            at += part.dims[dim]

    def reference(self, tensors: tuple[np.ndarray, ...], dim: int = 0) -> np.ndarray:
        return np.concatenate([t for t in tensors if t.shape != (0,)] or list(tensors[:1]), axis=dim)


def _parts(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """torch lets an empty vector stand beside tensors of any rank."""
    return [t for t in tensors if t.dims != (0,)] or list(tensors[:1])


@op("aten.split_with_sizes_copy.default", "aten.split_with_sizes.default")
class SplitWithSizes(Op):
    """Consecutive pieces of the given sizes along `dim`."""

    def outputs(self, ctx: Context, x: Tensor, sizes: tuple[int | LiveInt, ...], dim: int = 0) -> list[Dims]:
        dim = normalize_dim(dim, x.rank)
        pieces = [ctx.pin(expr_of(size)) for size in sizes]
        if sum(pieces) != x.dims[dim] or min(pieces, default=0) < 0:
            raise InputError(f"pieces of {pieces} do not make up dim {dim} of {x.dims[dim]}")
        return [(*x.dims[:dim], piece, *x.dims[dim + 1 :]) for piece in pieces]

    def plan(self, ctx: Context, x: Tensor, sizes: Any, dim: int = 0, *, out: tuple[Tensor, ...]) -> Iterable[Dispatch]:
        dim = normalize_dim(dim, x.rank)
        strides = strides_of(x.dims)
        at = 0
        for piece in out:
            yield move(x, piece, piece.dims, strides, strides_of(piece.dims), src_start=at * strides[dim])
            at += piece.dims[dim]

    def reference(self, x: np.ndarray, sizes: tuple[int, ...], dim: int = 0) -> tuple[np.ndarray, ...]:
        ends = np.cumsum(sizes)[:-1].tolist()
        return tuple(np.split(x, ends, axis=dim))


@op("aten.flip.default")
class Flip(Op):
    """The order reversed along some dims."""

    def outputs(self, ctx: Context, x: Tensor, dims: tuple[int, ...]) -> list[Dims]:
        return [x.dims]

    def plan(self, ctx: Context, x: Tensor, dims: tuple[int, ...], *, out: Tensor) -> Iterable[Dispatch]:
        flipped = {normalize_dim(d, x.rank) for d in dims}
        strides = strides_of(x.dims)
        start = sum((x.dims[d] - 1) * strides[d] for d in flipped)
        signed = tuple(-s if n in flipped else s for n, s in enumerate(strides))
        yield move(x, out, x.dims, signed, strides, src_start=start)

    def reference(self, x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
        return np.flip(x, dims)


@op("aten.constant_pad_nd.default")
class Pad(Op):
    """A constant around x: (before, after) of the last dim, then of the one before it. Negative ones cut."""

    def outputs(self, ctx: Context, x: Tensor, pads: tuple[int | LiveInt, ...], value: float = 0) -> list[Dims]:
        sizes = _pads(tuple(ctx.pin(expr_of(p)) for p in pads), x.rank)
        dims = tuple(d + before + after for d, (before, after) in zip(x.dims, sizes, strict=True))
        if min(dims, default=0) < 0:
            raise InputError(f"padding {list(x.dims)} with {sizes} leaves less than nothing")
        return [dims]

    def plan(
        self, ctx: Context, x: Tensor, pads: tuple[int | LiveInt, ...], value: float = 0, *, out: Tensor
    ) -> Iterable[Dispatch]:
        sizes = _pads(tuple(ctx.pin(expr_of(p)) for p in pads), x.rank)
        yield place(x, out, tuple(before for before, _ in sizes), value or 0)

    def reference(self, x: np.ndarray, pads: tuple[int, ...], value: float = 0) -> np.ndarray:
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


@op("aten.unfold_copy.default", "aten.unfold.default")
class Unfold(Op):
    """Windows of `size` elements, `step` apart, along `dim`; the elements of a window are a new last dim."""

    def outputs(self, ctx: Context, x: Tensor, dim: int, size: Any, step: Any) -> list[Dims]:
        dim = normalize_dim(dim, x.rank)
        length = x.dims[dim] if x.rank else 1
        size, step = ctx.pin(expr_of(size)), ctx.pin(expr_of(step))
        if not 0 <= size <= length or step < 1:
            raise InputError(f"windows of {size}, {step} apart, of a dim of {length}")
        windows = ((length - size) // step + 1,) if x.rank else ()
        return [(*x.dims[:dim], *windows, *x.dims[dim + 1 :], size)]

    def plan(self, ctx: Context, x: Tensor, dim: int, size: Any, step: Any, *, out: Tensor) -> Iterable[Dispatch]:
        strides, dim = strides_of(x.dims), normalize_dim(dim, x.rank)
        apart = ctx.pin(expr_of(step))
        source = (*(s * apart if n == dim else s for n, s in enumerate(strides)), strides[dim] if x.rank else 0)
        yield move(x, out, out.dims, source, strides_of(out.dims))

    def reference(self, x: np.ndarray, dim: int, size: int, step: int) -> np.ndarray:
        if not x.ndim:
            return x.reshape(1)[:size]
        starts = range(0, x.shape[dim] - size + 1, step)
        windows = [np.take(x, range(at, at + size), axis=dim) for at in starts]
        return np.moveaxis(np.stack(windows, axis=dim % x.ndim), dim % x.ndim + 1, -1)


__all__ = ["broadcast_strides", "expanded"]
