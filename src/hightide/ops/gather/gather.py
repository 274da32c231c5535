"""Elements picked by index tensors: one kernel, of which select, gather and index are calls."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, MovingOp, Tensor, ceil_div, kernel, normalize_dim, op, strides_of
from hightide.ops.elementwise.template import broadcast
from hightide.ops.movement.strided import MAX_RANK, broadcast_strides, moved_kind, padded


@dataclass(frozen=True)
class Pick:
    """An index tensor: how it is read at an output element, and the dim that it picks from."""

    indices: Tensor
    strides: Dims  # over the output's dims
    size: int
    step: int  # in x


def pick(x: Tensor, x_strides: Dims, picks: list[Pick], out: Tensor) -> Dispatch:
    """out[o] = x[o * x_strides + sum of indices[o * strides] * step]."""
    packed = moved_kind(x, out) == "u8"
    name = "gather_bytes" if packed else "gather"
    return kernel("gather/gather.wgsl", name, COUNT=len(picks), BYTES=packed).over(
        ceil_div(out.numel, 256 if packed else 64), x=x, out=out, **picked(out.dims, x_strides, picks)
    )


def picked(dims: Dims, x_strides: Dims, picks: list[Pick]) -> dict[str, Any]:
    """What picked.wgsl declares: places in x for elements of these dims."""
    if not 1 <= len(picks) <= 4:
        raise UnsupportedError(f"indexing with {len(picks)} tensors has no kernel; one to four have")
    return {
        **{f"index{n}": p.indices for n, p in enumerate(picks)},
        "numel": math.prod(dims),
        "first": MAX_RANK - len(dims),
        "dims": padded(dims, 1),
        "x_strides": padded(x_strides, 0),
        "sizes": tuple(p.size for p in picks),
        "steps": tuple(p.step for p in picks),
        "strides": tuple(s for p in picks for s in padded(p.strides, 0)),
    }


def require_picks(ctx: Context, indices: Tensor, dim: int, size: int, low: int = 0) -> None:
    """The indices are within a dim of this size."""
    if indices.numel and not size:
        raise InputError(f"indices into dim {dim}, which is empty")
    ctx.require_indices(indices, low, size - 1, "index")


class Picking(MovingOp):
    """Base of ops that pick along one dim."""

    x: Tensor
    dim: int
    indices: Tensor


@op("aten.index_select.default", family="gather")
class IndexSelect(Picking):
    """Slices along `dim` by index."""

    def outputs(self, ctx: Context) -> list[Dims]:
        x, dim, indices = self.x, normalize_dim(self.dim, self.x.rank), self.indices
        if indices.rank > 1:
            raise InputError(f"indices of {list(indices.dims)} are not a vector")
        require_picks(ctx, indices, dim, x.dims[dim] if x.rank else 1)
        return [(*x.dims[:dim], indices.numel, *x.dims[dim + 1 :]) if x.rank else ()]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield pick_dims(self.x, {normalize_dim(self.dim, self.x.rank): self.indices}, out)

    @staticmethod
    def reference(x: np.ndarray, dim: int, indices: np.ndarray) -> np.ndarray:
        return np.take(x, indices.reshape(-1), axis=dim) if x.ndim else x


@op("aten.gather.default", family="gather")
class Gather(Picking):
    """Each output element at its own place, but at `indices` along `dim`."""

    sparse: bool = False  # how torch would hold a gradient

    def outputs(self, ctx: Context) -> list[Dims]:
        x, dim = self.x, normalize_dim(self.dim, self.x.rank)
        of, to = x.dims or (1,), self.indices.dims or (1,)
        if len(of) != len(to) or any(t > d for n, (t, d) in enumerate(zip(to, of, strict=True)) if n != dim):
            raise InputError(f"indices of {list(self.indices.dims)} do not fit {list(x.dims)} along dim {dim}")
        require_picks(ctx, self.indices, dim, of[dim])
        return [self.indices.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        dim, of = normalize_dim(self.dim, self.x.rank), self.x.dims or (1,)
        strides = strides_of(of)
        own = tuple(0 if n == dim else strides[n] for n in range(out.rank))
        yield pick(self.x, own, [Pick(self.indices, strides_of(out.dims), of[dim], strides[dim])], out)

    @staticmethod
    def reference(x: np.ndarray, dim: int, indices: np.ndarray) -> np.ndarray:
        if not x.ndim or not indices.ndim:
            return np.atleast_1d(x)[indices]
        return x[own_places(indices, dim)]


def own_places(indices: np.ndarray, dim: int) -> tuple[np.ndarray, ...]:
    """What gather and scatter index: each element at its own place, but at `indices` along `dim`."""
    grid: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
    grid[dim] = indices
    return tuple(grid)


@op("aten.index.Tensor", family="gather")
class Index(MovingOp):
    """x[indices]: index tensors, broadcast together, for some dims; None for the others.

    Their dims stand where the first of them is, or in front if a None is between them.
    """

    x: Tensor
    indices: tuple[Tensor | None, ...]

    def outputs(self, ctx: Context) -> list[Dims]:
        x, given = self.x, self._given()
        if len(self.indices) > x.rank or not given:
            raise InputError(f"{len(given)} index tensors for a tensor of rank {x.rank}")
        for dim, index in given.items():
            if index.dtype not in ("int32", "int64"):
                raise UnsupportedError(f"an index of {index.dtype}: a mask gives dims that depend on its elements")
            require_picks(ctx, index, dim, x.dims[dim], low=-x.dims[dim])
        before, after = around(x.rank, list(given))
        together = broadcast(*(index.dims for index in given.values()))
        return [(*(x.dims[d] for d in before), *together, *(x.dims[d] for d in after))]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield pick_dims(self.x, self._given(), out)

    def _given(self) -> dict[int, Tensor]:
        """The index tensors by dim."""
        return {dim: index for dim, index in enumerate(self.indices) if index is not None}

    @staticmethod
    def reference(x: np.ndarray, indices: tuple[np.ndarray | None, ...]) -> np.ndarray:
        return x[every_dim(indices)]


def every_dim(indices: tuple[np.ndarray | None, ...]) -> tuple[np.ndarray | slice, ...]:
    """torch's index as NumPy's: None stands for a whole dim."""
    return tuple(slice(None) if index is None else index for index in indices)


def pick_dims(x: Tensor, given: dict[int, Tensor], out: Tensor) -> Dispatch:
    """x indexed by tensors along these dims; in out, theirs stand together."""
    dims = x.dims or (1,)
    strides = strides_of(dims)
    before, after = around(x.rank, list(given))
    together = out.dims[len(before) : out.rank - len(after)]
    own = (*(strides[d] for d in before), *(0 for _ in together), *(strides[d] for d in after))
    lead, rest = (0,) * len(before), (0,) * len(after)
    picks = [
        Pick(index, (*lead, *broadcast_strides(index.dims, together), *rest), dims[dim], strides[dim])
        for dim, index in given.items()
    ]
    return pick(x, own, picks, out)


def around(rank: int, dims: list[int]) -> tuple[list[int], list[int]]:
    """The dims of x before and after those that are indexed."""
    others = [d for d in range(rank) if d not in dims]
    if dims != list(range(dims[0], dims[-1] + 1)):
        return [], others
    return [d for d in others if d < dims[0]], [d for d in others if d > dims[0]]
