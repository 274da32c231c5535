"""Rows of a table by index, in float and in 4 bits."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.blocks.dispatch import block_rows
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.contract import Context, Dispatch, Int, Op, Tensor, ceil_div, kernel, op
from hightide.ops.cost import same, share_of


@op("aten.embedding.default", family="embedding")
class Embedding(Op):
    """Rows of a table by token id; the table is in float or in GGUF blocks, in one tensor or its rows in several."""

    weight: Tensor | tuple[Tensor, ...]
    indices: Tensor
    padding_idx: Int = -1  # this and the rest are for training
    scale_grad_by_freq: bool = False
    sparse: bool = False

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return self.weight if isinstance(self.weight, tuple) else (self.weight,)

    def outputs(self, ctx: Context) -> list[Dims]:
        if not self.parts or any(part.rank != 2 or part.width != self.parts[0].width for part in self.parts):
            raise InputError(f"tables of {[list(part.dims) for part in self.parts]} are not rows of one width")
        ctx.require_indices(self.indices, 0, sum(part.dims[0] for part in self.parts) - 1, "token id")
        return [(*self.indices.dims, self.parts[0].width)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        weight, indices = self.weight, self.indices
        if isinstance(weight, tuple) or weight.dtype in BLOCK_TYPES:
            yield from block_rows(self.parts, indices, out)
        else:
            yield kernel("embedding/rows.wgsl", "gather_rows").over(
                ceil_div(out.numel, 64),
                x=weight,
                indices=indices,
                out=out,
                count=indices.numel,
                rows=weight.dims[0],
                width=weight.width,
            )

    def bytes_read(self, tensor: Tensor, dispatch: Dispatch) -> int:
        return picked_bytes(tensor, self.indices, sum(part.dims[0] for part in self.parts))

    @staticmethod
    def reference(weight: np.ndarray | tuple[np.ndarray, ...], indices: np.ndarray) -> np.ndarray:
        return (np.concatenate(weight) if isinstance(weight, tuple) else weight)[indices]


def picked_bytes(tensor: Tensor, indices: Tensor, rows: int) -> int:
    """The bytes of a table, or of its scales, that are read for these indices."""
    return tensor.nbytes if same(tensor, indices) else share_of(tensor, indices.numel, rows)


class FourBitTable(Op):
    """Rows of a 4-bit table: bytes [V, K/2] of two codes, with a scale per group [V, K/group] or per row [V]."""

    weight: Tensor
    scales: Tensor

    def check_table(self) -> None:
        weight, scales = self.weight.dims, self.scales.dims
        if len(weight) != 2 or len(scales) not in (1, 2) or scales[0] != weight[0] or 0 in scales:
            raise InputError(f"scales of {list(scales)} do not fit a table of {list(weight)}")

    def check(self, ctx: Context, group: int, indices: Tensor) -> list[Dims]:
        self.check_table()
        rows, width, groups = self.weight.dims[0], self.weight.dims[1] * 2, groups_of(self.scales.dims)
        if group < 1 or groups * group != width:
            raise InputError(f"rows of {width} do not divide into {groups} groups of {group}")
        ctx.require_indices(indices, 0, rows - 1, "token id")
        return [(*indices.dims, width)]

    def pick(self, group: int, indices: Tensor, zeros: Tensor | None, low_first: bool, out: Tensor) -> Dispatch:
        rows, row_bytes = self.weight.dims
        return kernel("embedding/embedding_q4.wgsl", LOW_FIRST=low_first, ZEROS=zeros is not None).over(
            ceil_div(out.numel, 64),
            weight=self.weight,
            scales=self.scales,
            indices=indices,
            zeros=zeros,
            out=out,
            count=indices.numel,
            width=out.width,
            row_bytes=row_bytes,
            rows=rows,
            group=group,
            groups_per_row=groups_of(self.scales.dims),
        )


@op("et_vk.embedding_q4gsw.default", family="embedding")
class EmbeddingQ4(FourBitTable):
    """Tied to a linear's weight, the low nibble comes first; a table of its own has the high one first."""

    group: int
    indices: Tensor
    tied: bool = False

    def outputs(self, ctx: Context) -> list[Dims]:
        return self.check(ctx, self.group, self.indices)

    def bytes_read(self, tensor: Tensor, dispatch: Dispatch) -> int:
        return picked_bytes(tensor, self.indices, self.weight.dims[0])

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield self.pick(self.group, self.indices, None, self.tied, out)

    @staticmethod
    def reference(weight: np.ndarray, scales: np.ndarray, group: int, indices: np.ndarray, tied: bool) -> np.ndarray:
        return codes(weight[indices], tied) * spread(scales, indices, group)


@op("quantized_decomposed.embedding_4bit.dtype", "quantized_decomposed.embedding_4bit.default", family="embedding")
class EmbeddingFourBit(FourBitTable):
    """As above before the exporter repacks it, high nibble first: rows that are no multiple of 32, or zero points."""

    zeros: Tensor | None
    low: int
    high: int
    indices: Tensor
    dtype: int | None = None

    @property
    def group(self) -> int:
        return self.weight.dims[1] * 2 // groups_of(self.scales.dims)

    def outputs(self, ctx: Context) -> list[Dims]:
        self.check_table()
        if (self.low, self.high) != (-8, 7):
            raise UnsupportedError(f"codes from {self.low} to {self.high}; 4-bit tables have -8 to 7")
        if self.zeros is not None and self.zeros.dims != self.scales.dims:
            raise InputError(f"zero points of {list(self.zeros.dims)} for scales of {list(self.scales.dims)}")
        return self.check(ctx, self.group, self.indices)

    def bytes_read(self, tensor: Tensor, dispatch: Dispatch) -> int:
        return picked_bytes(tensor, self.indices, self.weight.dims[0])

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield self.pick(self.group, self.indices, self.zeros, False, out)

    @staticmethod
    def reference(weight: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, indices: np.ndarray) -> np.ndarray:
        group = weight.shape[1] * 2 // groups_of(scales.shape)
        rows = codes(weight[indices], False) * spread(scales, indices, group)
        return rows if zeros is None else rows - spread(zeros * scales, indices, group)


def groups_of(scales: Dims) -> int:
    """Groups of a row that have a scale each."""
    return scales[1] if len(scales) > 1 else 1


def codes(rows: np.ndarray, low_first: bool) -> np.ndarray:
    """Rows of bytes [..., K/2] -> codes -8 .. 7 [..., K]"""
    nibbles = [rows & 15, rows >> 4] if low_first else [rows >> 4, rows & 15]
    return np.stack(nibbles, axis=-1).reshape(*rows.shape[:-1], rows.shape[-1] * 2).astype(np.int8) - 8


def spread(scales: np.ndarray, indices: np.ndarray, group: int) -> np.ndarray:
    """Each picked row's scales, one per element."""
    return np.repeat(scales[indices] if scales.ndim > 1 else scales[indices][..., None], group, axis=-1)
