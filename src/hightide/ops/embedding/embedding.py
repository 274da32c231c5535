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
from hightide.ops.legacy import (
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
from hightide.ops.linear.linear import Weight, parts_of

ROWS = kernel("embedding/rows.wgsl", "gather_rows")
EMBEDDING_Q4 = {  # by (the low nibble is first, there are zero points)
    (low, zeros): kernel(
        "embedding/embedding_q4.wgsl",
        LOW_FIRST=str(low).lower(),
        ZEROS="@group(0) @binding(5) var<storage, read> zeros: array<f32>;" if zeros else "",
        LESS_ZERO="- zeros[at]" if zeros else "",
        OUT=6 if zeros else 5,
    )
    for low in (False, True)
    for zeros in (False, True)
}


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
        yield q4_rows(weight, scales, None, group, indices, bool(tied), out)

    def reference(
        self, weight: np.ndarray, scales: np.ndarray, group: int, indices: np.ndarray, tied: bool = False
    ) -> np.ndarray:
        rows = weight[indices]  # [..., K/2]
        nibbles = [rows & 15, rows >> 4] if tied else [rows >> 4, rows & 15]
        values = np.stack(nibbles, axis=-1).reshape(*rows.shape[:-1], weight.shape[1] * 2).astype(np.int8) - 8
        return values * _spread(scales, indices, group)


@op("quantized_decomposed.embedding_4bit.dtype", "quantized_decomposed.embedding_4bit.default")
class EmbeddingFourBit(Op):
    """As above before the exporter repacks it, high nibble first: rows that are no multiple of 32, or zero points."""

    def outputs(
        self,
        ctx: Context,
        weight: Tensor,
        scales: Tensor,
        zeros: Tensor | None,
        low: int,
        high: int,
        indices: Tensor,
        *_: Any,
    ) -> list[Dims]:
        if (low, high) != (-8, 7):
            raise UnsupportedError(f"codes from {low} to {high}; 4-bit tables have -8 to 7")
        if zeros is not None and zeros.dims != scales.dims:
            raise InputError(f"zero points of {list(zeros.dims)} for scales of {list(scales.dims)}")
        return EmbeddingQ4().outputs(ctx, weight, scales, _group(weight, scales), indices)

    def plan(
        self,
        ctx: Context,
        weight: Tensor,
        scales: Tensor,
        zeros: Tensor | None,
        low: int,
        high: int,
        indices: Tensor,
        *_: Any,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        yield q4_rows(weight, scales, zeros, _group(weight, scales), indices, False, out)

    def reference(
        self,
        weight: np.ndarray,
        scales: np.ndarray,
        zeros: np.ndarray | None,
        low: int,
        high: int,
        indices: np.ndarray,
        *_: Any,
    ) -> np.ndarray:
        group = _group(weight, scales)
        rows = EmbeddingQ4().reference(weight, scales, group, indices)
        return rows if zeros is None else rows - _spread(zeros * scales, indices, group)


def q4_rows(
    weight: Tensor, scales: Tensor, zeros: Tensor | None, group: int, indices: Tensor, low_first: bool, out: Tensor
) -> Dispatch:
    """Rows of a 4-bit table [V, K/2] with scales, and zero points if there are any, [V, K/group] or [V]."""
    given = () if zeros is None else (zeros,)
    require_dtype("u8", weight)
    require_dtype("f32", scales, out, *given)
    require_dtype("i32", indices)
    rows, row_bytes = weight.dims
    return Dispatch(
        EMBEDDING_Q4[low_first, zeros is not None],
        groups=ceil_div(out.numel, 64),
        params=(indices.numel, out.width, row_bytes, rows, group, scales.width if scales.rank > 1 else 1),
        reads=(weight, scales, indices, *given),
        writes=(out,),
    )


def _group(weight: Tensor | np.ndarray, scales: Tensor | np.ndarray) -> int:
    """Elements of a row that share a scale."""
    row, of = (x.dims if isinstance(x, Tensor) else x.shape for x in (weight, scales))
    return row[1] * 2 // (of[1] if len(of) > 1 else 1)


def _spread(scales: np.ndarray, indices: np.ndarray, group: int) -> np.ndarray:
    """Each picked row's scales, one per element."""
    return np.repeat(scales[indices] if scales.ndim > 1 else scales[indices][..., None], group, axis=-1)
