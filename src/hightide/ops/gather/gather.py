"""Elements picked by index tensors: one kernel, of which select, gather and index are calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.elementwise.template import broadcast
from hightide.ops.legacy import (
    GPU_TYPE,
    Context,
    Dispatch,
    Kernel,
    Op,
    Tensor,
    ceil_div,
    kernel,
    normalize_dim,
    op,
    require_dtype,
    strides_of,
)
from hightide.ops.movement.strided import broadcast_strides


@dataclass(frozen=True)
class Pick:
    """An index tensor: how it is read at an output element, and the dim that it picks from."""

    indices: Tensor
    strides: Dims  # over the output's dims
    size: int
    stride: int  # in x


def pick(x: Tensor, x_strides: Dims, picks: list[Pick], out: Tensor) -> Dispatch:
    """out[o] = x[o * x_strides + sum of indices[o * strides] * stride]."""
    require_dtype("i32", *(p.indices for p in picks))
    kind = GPU_TYPE.get(x.dtype)
    if kind not in ("f32", "i32", "u8") or GPU_TYPE.get(out.dtype) != kind:
        raise UnsupportedError(f"picking {x.dtype} into {out.dtype} has no kernel")
    if not 1 <= len(picks) <= 4:
        raise UnsupportedError(f"indexing with {len(picks)} tensors has no kernel; one to four have")
    if out.rank > 8:
        raise UnsupportedError(f"a tensor of rank {out.rank} is over the 8 dims that kernels take")
    pad = 8 - out.rank
    lead, unused = (0,) * pad, (0,) * (4 - len(picks))
    sizes, steps = tuple(p.size for p in picks), tuple(p.stride for p in picks)
    return Dispatch(
        _route(len(picks), kind == "u8"),
        groups=ceil_div(out.numel, 256 if kind == "u8" else 64),
        params=(
            out.numel,
            pad,
            (1,) * pad + out.dims,
            lead + x_strides,
            sizes + unused + steps,
            *(lead + p.strides for p in picks),
        ),
        reads=(x, *(p.indices for p in picks)),
        writes=(out,),
    )


@cache
def _route(count: int, packed: bool) -> Kernel:
    declared = [f"@group(0) @binding({3 + n}) var<storage, read> index{n}: array<i32>;" for n in range(count)]
    return kernel(
        "gather/gather.wgsl",
        "gather_bytes" if packed else "gather",
        PER_WORD="4u" if packed else "1u",
        COUNT=count,
        INDICES="\n".join(declared),
        OUT=3 + count,
        PICKED=" + ".join(f"picked(index{n}[places[{n}]], {n}u)" for n in range(count)),
    )


def require_picks(ctx: Context, indices: Tensor, dim: int, size: int, low: int = 0) -> None:
    """The indices are within a dim of this size."""
    if indices.numel and not size:
        raise InputError(f"indices into dim {dim}, which is empty")
    ctx.require_indices(indices, low, size - 1, "index")


@op("aten.index_select.default")
class IndexSelect(Op):
    """Slices along `dim` by index."""

    def outputs(self, ctx: Context, x: Tensor, dim: int, indices: Tensor) -> list[Dims]:
        dim = normalize_dim(dim, x.rank)
        if indices.rank > 1:
            raise InputError(f"indices of {list(indices.dims)} are not a vector")
        require_picks(ctx, indices, dim, x.dims[dim] if x.rank else 1)
        return [(*x.dims[:dim], indices.numel, *x.dims[dim + 1 :]) if x.rank else ()]

    def plan(self, ctx: Context, x: Tensor, dim: int, indices: Tensor, *, out: Tensor) -> Iterable[Dispatch]:
        dim = normalize_dim(dim, x.rank)
        strides, along = strides_of(x.dims), tuple(int(n == dim) for n in range(x.rank))
        own = tuple(0 if n == dim else s for n, s in enumerate(strides))
        size, step = (x.dims[dim], strides[dim]) if x.rank else (1, 0)
        yield pick(x, own, [Pick(indices, along, size, step)], out)

    def reference(self, x: np.ndarray, dim: int, indices: np.ndarray) -> np.ndarray:
        return np.take(x, indices.reshape(-1), axis=dim) if x.ndim else x


@op("aten.gather.default")
class Gather(Op):
    """Each output element at its own place, but at `indices` along `dim`."""

    def outputs(self, ctx: Context, x: Tensor, dim: int, indices: Tensor, sparse: bool = False) -> list[Dims]:
        dim = normalize_dim(dim, x.rank)
        of, to = x.dims or (1,), indices.dims or (1,)
        if len(of) != len(to) or any(t > d for n, (t, d) in enumerate(zip(to, of, strict=True)) if n != dim):
            raise InputError(f"indices of {list(indices.dims)} do not fit {list(x.dims)} along dim {dim}")
        require_picks(ctx, indices, dim, of[dim])
        return [indices.dims]

    def plan(
        self, ctx: Context, x: Tensor, dim: int, indices: Tensor, sparse: bool = False, *, out: Tensor
    ) -> Iterable[Dispatch]:
        dim = normalize_dim(dim, x.rank)
        of = x.dims or (1,)
        strides = strides_of(of)
        own = tuple(0 if n == dim else strides[n] for n in range(out.rank))
        yield pick(x, own, [Pick(indices, strides_of(out.dims), of[dim], strides[dim])], out)

    def reference(self, x: np.ndarray, dim: int, indices: np.ndarray, sparse: bool = False) -> np.ndarray:
        if not x.ndim or not indices.ndim:
            return np.atleast_1d(x)[indices]
        grid: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
        grid[dim] = indices
        return x[tuple(grid)]


@op("aten.index.Tensor")
class Index(Op):
    """x[indices]: index tensors, broadcast together, for some dims; None for the others.

    Their dims stand where the first of them is, or in front if a None is between them.
    """

    def outputs(self, ctx: Context, x: Tensor, indices: tuple[Tensor | None, ...]) -> list[Dims]:
        given = {dim: index for dim, index in enumerate(indices) if index is not None}
        if len(indices) > x.rank or not given:
            raise InputError(f"{len(given)} index tensors for a tensor of rank {x.rank}")
        for dim, index in given.items():
            if GPU_TYPE.get(index.dtype) != "i32":
                raise UnsupportedError(f"an index of {index.dtype}: a mask gives dims that depend on its elements")
            require_picks(ctx, index, dim, x.dims[dim], low=-x.dims[dim])
        before, after = _around(x.rank, given)
        together = broadcast(*(index.dims for index in given.values()))
        return [(*(x.dims[d] for d in before), *together, *(x.dims[d] for d in after))]

    def plan(self, ctx: Context, x: Tensor, indices: tuple[Tensor | None, ...], *, out: Tensor) -> Iterable[Dispatch]:
        given = {dim: index for dim, index in enumerate(indices) if index is not None}
        before, after = _around(x.rank, given)
        strides = strides_of(x.dims)
        together = out.dims[len(before) : out.rank - len(after)]
        own = (*(strides[d] for d in before), *(0 for _ in together), *(strides[d] for d in after))
        lead, rest = (0,) * len(before), (0,) * len(after)
        picks = [
            Pick(index, (*lead, *broadcast_strides(index.dims, together), *rest), x.dims[dim], strides[dim])
            for dim, index in given.items()
        ]
        yield pick(x, own, picks, out)

    def reference(self, x: np.ndarray, indices: tuple[np.ndarray | None, ...]) -> np.ndarray:
        return x[tuple(slice(None) if i is None else i for i in indices)]


def _around(rank: int, given: dict[int, Tensor]) -> tuple[list[int], list[int]]:
    """The dims of x before and after those of the index tensors."""
    dims = list(given)
    others = [d for d in range(rank) if d not in given]
    if dims != list(range(dims[0], dims[-1] + 1)):
        return [], others
    return [d for d in others if d < dims[0]], [d for d in others if d > dims[0]]
