"""Tensors made of several, and several made of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Int, MovingOp, Tensor, existing_dim, normalize_dim, op, strides_of
from hightide.ops.cost import distinct
from hightide.ops.movement.strided import move, moved_kind, place

MOST_PIECES = 1 << 16  # a damaged program may ask for any number


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


@op("aten.stack.default", family="movement")
class Stack(Cat):
    """Tensors of equal dims one after the other along a new dim."""

    def _parts(self) -> list[Tensor]:
        dims = [t.dims for t in self.tensors]
        at = normalize_dim(self.dim, len(dims[0]) + 1) if dims else 0
        return [Tensor(t.value, (*d[:at], 1, *d[at:])) for t, d in zip(self.tensors, dims, strict=True)]

    @staticmethod
    def reference(tensors: tuple[np.ndarray, ...], dim: int) -> np.ndarray:
        return np.stack(tensors, dim)


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
        return _split(self.x, existing_dim(self.dim, self.x.dims), out)

    @staticmethod
    def reference(x: np.ndarray, sizes: tuple[int, ...], dim: int) -> tuple[np.ndarray, ...]:
        ends = np.cumsum(sizes)[:-1].tolist()
        return tuple(np.split(x, ends, axis=dim))


@op("aten.split_copy.Tensor", family="movement")
class Split(MovingOp):
    """Consecutive pieces of one size along `dim`; the last may be smaller."""

    x: Tensor
    size: Int
    dim: int = 0

    def outputs(self, ctx: Context) -> list[Dims]:
        x, dim = self.x, existing_dim(self.dim, self.x.dims)
        pieces = _sizes(x.dims[dim], ctx.pin(self.size))
        return [(*x.dims[:dim], piece, *x.dims[dim + 1 :]) for piece in pieces]

    def plan(self, ctx: Context, out: tuple[Tensor, ...]) -> Iterable[Dispatch]:
        return _split(self.x, existing_dim(self.dim, self.x.dims), out)

    @staticmethod
    def reference(x: np.ndarray, size: int, dim: int) -> tuple[np.ndarray, ...]:
        ends = np.cumsum(_sizes(x.shape[dim], size))[:-1].tolist()
        return tuple(np.split(x, ends, axis=dim))


def _sizes(length: int, size: int) -> list[int]:
    """Of the pieces of a dim; an empty one is a piece, too."""
    if size < 1 and (size or length):
        raise InputError(f"pieces of {size} elements")
    starts = range(0, max(length, 1), max(size, 1))
    _require_few(len(starts))
    return [min(size, length - at) for at in starts]


def _require_few(pieces: int) -> None:
    if pieces > MOST_PIECES:
        raise InputError(f"{pieces} pieces of one tensor; at most {MOST_PIECES} are made")


def _split(x: Tensor, dim: int, out: Iterable[Tensor]) -> Iterator[Dispatch]:
    strides = strides_of(x.dims)
    at = 0
    for piece in out:
        yield move(x, piece, piece.dims, strides, strides_of(piece.dims), src_start=at * strides[dim])
        at += piece.dims[dim]


@op("aten.unbind_copy.int", family="movement")
class Unbind(MovingOp):
    """Every row along `dim`, which goes away."""

    x: Tensor
    dim: int = 0

    def outputs(self, ctx: Context) -> list[Dims]:
        x, dim = self.x, existing_dim(self.dim, self.x.dims)
        _require_few(x.dims[dim])
        return [(*x.dims[:dim], *x.dims[dim + 1 :])] * x.dims[dim]

    def plan(self, ctx: Context, out: tuple[Tensor, ...]) -> Iterable[Dispatch]:
        dim, strides = existing_dim(self.dim, self.x.dims), strides_of(self.x.dims)
        others = (*strides[:dim], *strides[dim + 1 :])
        for n, row in enumerate(out):
            yield move(self.x, row, row.dims, others, strides_of(row.dims), src_start=n * strides[dim])

    @staticmethod
    def reference(x: np.ndarray, dim: int) -> tuple[np.ndarray, ...]:
        return tuple(np.moveaxis(x, dim, 0))
