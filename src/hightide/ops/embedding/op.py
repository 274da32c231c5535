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
    op,
    require_dtype,
)
from hightide.ops.linear.op import Weight, parts_of

ROWS = kernel("embedding/rows.wgsl", "gather_rows")
EMBEDDING_Q4 = {low: kernel("embedding/embedding_q4.wgsl", LOW_FIRST=str(low).lower()) for low in (False, True)}


def gather_rows(x: Tensor, indices: Tensor, out: Tensor) -> Dispatch:
    """x[indices], for indices of any rank."""
    require_dtype("i32", indices)
    if {GPU_TYPE.get(x.dtype), GPU_TYPE.get(out.dtype)} not in ({"f32"}, {"i32"}):
        raise UnsupportedError(f"picking rows of {x.dtype} has no kernel")
    return Dispatch(
        ROWS,
        groups=ceil_div(out.numel, 64),
        params=(indices.numel, x.dims[0], math.prod(x.dims[1:])),
        reads=(x, indices),
        writes=(out,),
    )


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
            yield gather_rows(weight, indices, out)

    def reference(self, weight: np.ndarray | tuple[np.ndarray, ...], indices: np.ndarray, *_: Any) -> np.ndarray:
        return (np.concatenate(weight) if isinstance(weight, tuple) else weight)[indices]


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
