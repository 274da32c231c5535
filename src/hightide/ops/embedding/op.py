"""Rows of a table by index, in float and in 4 bits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.blocks.dispatch import block_rows
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.contract import (
    GPU_TYPE,
    Context,
    Dispatch,
    Op,
    Tensor,
    ceil_div,
    kernel,
    normalize_dim,
    op,
    require_dtype,
)
from hightide.ops.linear.op import Weight, parts_of

ROWS = kernel("embedding/rows.wgsl", "gather_rows")
EMBEDDING_Q4 = {low: kernel("embedding/embedding_q4.wgsl", LOW_FIRST=str(low).lower()) for low in (False, True)}


def gather_rows(x: Tensor, dim: int, indices: Tensor, out: Tensor) -> Dispatch:
    """x[..., indices, ...] with `indices` (of any rank) in the place of `dim`."""
    require_dtype("i32", indices)
    if {GPU_TYPE.get(x.dtype), GPU_TYPE.get(out.dtype)} not in ({"f32"}, {"i32"}):
        raise UnsupportedError(f"picking rows of {x.dtype} has no kernel")
    return Dispatch(
        ROWS,
        groups=ceil_div(out.numel, 64),
        params=(math.prod(x.dims[:dim]), indices.numel, x.dims[dim], math.prod(x.dims[dim + 1 :])),
        reads=(x, indices),
        writes=(out,),
    )


def gathered_dims(ctx: Context, x: Tensor, dim: int, indices: Tensor, what: str, low: int = 0) -> Dims:
    ctx.require_indices(indices, low, x.dims[dim] - 1, what)
    if indices.numel and not x.dims[dim]:
        raise InputError(f"{what}s into dim {dim}, which is empty")
    return (*x.dims[:dim], *indices.dims, *x.dims[dim + 1 :])


@op("aten.embedding.default")
class Embedding(Op):
    """Rows of a table by token id; the table is in float or in GGUF blocks."""

    def outputs(self, ctx: Context, weight: Weight, indices: Tensor, *_: Any) -> list[Dims]:
        parts = parts_of(weight)
        ctx.require_indices(indices, 0, sum(part.dims[0] for part in parts) - 1, "token id")
        return [(*indices.dims, parts[0].width)]

    def plan(self, ctx: Context, weight: Weight, indices: Tensor, *_: Any, out: Tensor) -> Iterable[Dispatch]:
        if isinstance(weight, tuple) or weight.dtype in BLOCK_TYPES:
            yield from block_rows(parts_of(weight), indices, out)
        else:
            yield gather_rows(weight, 0, indices, out)

    def reference(self, weight: np.ndarray | tuple[np.ndarray, ...], indices: np.ndarray, *_: Any) -> np.ndarray:
        return (np.concatenate(weight) if isinstance(weight, tuple) else weight)[indices]


@op("aten.index_select.default")
class IndexSelect(Op):
    """Slices along `dim` by index."""

    def outputs(self, ctx: Context, x: Tensor, dim: int, indices: Tensor) -> list[Dims]:
        return [gathered_dims(ctx, x, normalize_dim(dim, x.rank), indices, "index")]

    def plan(self, ctx: Context, x: Tensor, dim: int, indices: Tensor, *, out: Tensor) -> Iterable[Dispatch]:
        yield gather_rows(x, normalize_dim(dim, x.rank), indices, out)

    def reference(self, x: np.ndarray, dim: int, indices: np.ndarray) -> np.ndarray:
        return np.take(x, indices, axis=dim)


@op("aten.index.Tensor")
class Index(Op):
    """x[indices]: an index tensor for some dims, None for the others. One index tensor has a kernel."""

    def outputs(self, ctx: Context, x: Tensor, indices: tuple[Tensor | None, ...]) -> list[Dims]:
        dim, index = _single(indices)
        return [gathered_dims(ctx, x, dim, index, "index", low=-x.dims[dim])]

    def plan(self, ctx: Context, x: Tensor, indices: tuple[Tensor | None, ...], *, out: Tensor) -> Iterable[Dispatch]:
        yield gather_rows(x, *_single(indices), out)

    def reference(self, x: np.ndarray, indices: tuple[np.ndarray | None, ...]) -> np.ndarray:
        return x[tuple(slice(None) if i is None else i for i in indices)]


def _single(indices: tuple[Tensor | None, ...]) -> tuple[int, Tensor]:
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(given) != 1:
        raise UnsupportedError(f"indexing with {len(given)} tensors at once has no kernel")
    return given[0]


@op("et_vk.embedding_q4gsw.default")
class EmbeddingQ4(Op):
    """Rows of a 4-bit table with a scale per group: bytes [V, K/2], scales [V, K/group].

    Tied to a linear's weight, the low nibble comes first; a table of its own has the high one first.
    """

    def outputs(
        self, ctx: Context, weight: Tensor, scales: Tensor, group: int, indices: Tensor, tied: bool = False
    ) -> list[Dims]:
        width = weight.dims[1] * 2
        groups = scales.dims[1] if scales.rank > 1 else 1
        if group < 1 or groups * group != width:
            raise InputError(f"rows of {width} do not divide into {groups} groups of {group}")
        ctx.require_indices(indices, 0, weight.dims[0] - 1, "token id")
        return [(*indices.dims, width)]

    def plan(
        self,
        ctx: Context,
        weight: Tensor,
        scales: Tensor,
        group: int,
        indices: Tensor,
        tied: bool = False,
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        require_dtype("u8", weight)
        require_dtype("f32", scales, out)
        require_dtype("i32", indices)
        rows, row_bytes = weight.dims
        yield Dispatch(
            EMBEDDING_Q4[bool(tied)],
            groups=ceil_div(out.numel, 64),
            params=(indices.numel, out.width, row_bytes, rows, group, scales.width if scales.rank > 1 else 1),
            reads=(weight, scales, indices),
            writes=(out,),
        )

    def reference(
        self, weight: np.ndarray, scales: np.ndarray, group: int, indices: np.ndarray, tied: bool = False
    ) -> np.ndarray:
        rows = weight[indices]  # [..., K/2]
        nibbles = [rows & 15, rows >> 4] if tied else [rows >> 4, rows & 15]
        values = np.stack(nibbles, axis=-1).reshape(*rows.shape[:-1], weight.shape[1] * 2).astype(np.int8) - 8
        scale = scales[indices] if scales.ndim > 1 else scales.reshape((1,) * (indices.ndim + 1))
        return values * np.repeat(scale, group, axis=-1)
