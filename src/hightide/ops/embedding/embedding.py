"""Rows of a table by index, in float and in 4 bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.blocks.dispatch import block_rows
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.contract import Context, Dispatch, Int, Op, Tensor, ceil_div, kernel, op
from hightide.ops.cost import same, share_of

Rows = np.ndarray | tuple[np.ndarray, ...]  # a table, or its rows in parts


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
        return _parts(self.weight)

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
    def reference(weight: Rows, indices: np.ndarray) -> np.ndarray:
        return _whole(weight)[indices]


def _parts(table: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return table if isinstance(table, tuple) else (table,)


def _whole(rows: Rows) -> np.ndarray:
    return np.concatenate(rows) if isinstance(rows, tuple) else rows


def picked_bytes(tensor: Tensor, indices: Tensor, rows: int) -> int:
    """The bytes of a table, or of its scales, that are read for these indices."""
    return tensor.nbytes if same(tensor, indices) else share_of(tensor, indices.numel, rows)


class FourBitTable(Op):
    """Rows of a 4-bit table: bytes [V, K/2] of two codes, with a scale per group [V, K/group] or per row [V].

    Each is one tensor, or its rows in several, each within the binding limit.
    """

    weight: Tensor | tuple[Tensor, ...]
    scales: Tensor | tuple[Tensor, ...]

    @property
    def tables(self) -> tuple[Tensor, ...]:
        return _parts(self.weight)

    @property
    def rows(self) -> int:
        return sum(part.dims[0] for part in self.tables)

    def check_table(self) -> None:
        weights, scales = self.tables, _parts(self.scales)
        if not weights or len(weights) != len(scales):
            raise InputError(f"scales in {len(scales)} parts for a table in {len(weights)}")
        for codes, scale in zip((part.dims for part in weights), (part.dims for part in scales), strict=True):
            if len(codes) != 2 or len(scale) not in (1, 2) or scale[0] != codes[0] or 0 in scale:
                raise InputError(f"scales of {list(scale)} do not fit a table of {list(codes)}")
            if codes[1] != weights[0].width or scale[1:] != scales[0].dims[1:]:
                raise InputError("the parts of a table have rows of different lengths")

    def check(self, ctx: Context, group: int, indices: Tensor) -> list[Dims]:
        self.check_table()
        width, groups = self.tables[0].width * 2, groups_of(_parts(self.scales)[0].dims)
        if group < 1 or groups * group != width:
            raise InputError(f"rows of {width} do not divide into {groups} groups of {group}")
        ctx.require_indices(indices, 0, self.rows - 1, "token id")
        return [(*indices.dims, width)]

    def pick(
        self, group: int, indices: Tensor, zeros: Tensor | tuple[Tensor, ...] | None, low_first: bool, out: Tensor
    ) -> Iterator[Dispatch]:
        """Each part writes the rows that it has."""
        first = 0
        zero_parts = (None,) * len(self.tables) if zeros is None else _parts(zeros)
        for weight, scales, zero in zip(self.tables, _parts(self.scales), zero_parts, strict=True):
            rows, row_bytes = weight.dims
            yield kernel("embedding/embedding_q4.wgsl", LOW_FIRST=low_first, ZEROS=zeros is not None).over(
                ceil_div(out.numel, 64),
                weight=weight,
                scales=scales,
                indices=indices,
                zeros=zero,
                out=out,
                count=indices.numel,
                width=out.width,
                row_bytes=row_bytes,
                first=first,
                rows=rows,
                all_rows=self.rows,
                group=group,
                groups_per_row=groups_of(scales.dims),
            )
            first += rows


@op("et_vk.embedding_q4gsw.default", family="embedding")
class EmbeddingQ4(FourBitTable):
    """Tied to a linear's weight, the low nibble comes first; a table of its own has the high one first."""

    group: int
    indices: Tensor
    tied: bool = False

    def outputs(self, ctx: Context) -> list[Dims]:
        return self.check(ctx, self.group, self.indices)

    def bytes_read(self, tensor: Tensor, dispatch: Dispatch) -> int:
        return picked_bytes(tensor, self.indices, self.rows)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return self.pick(self.group, self.indices, None, self.tied, out)

    @staticmethod
    def reference(weight: Rows, scales: Rows, group: int, indices: np.ndarray, tied: bool) -> np.ndarray:
        return codes(_whole(weight)[indices], tied) * spread(_whole(scales), indices, group)


@op("quantized_decomposed.embedding_4bit.dtype", "quantized_decomposed.embedding_4bit.default", family="embedding")
class EmbeddingFourBit(FourBitTable):
    """As above before the exporter repacks it, high nibble first: rows that are no multiple of 32, or zero points."""

    zeros: Tensor | tuple[Tensor, ...] | None
    low: int
    high: int
    indices: Tensor
    dtype: int | None = None

    @property
    def group(self) -> int:
        return self.tables[0].width * 2 // groups_of(_parts(self.scales)[0].dims)

    def outputs(self, ctx: Context) -> list[Dims]:
        self.check_table()
        if (self.low, self.high) != (-8, 7):
            raise UnsupportedError(f"codes from {self.low} to {self.high}; 4-bit tables have -8 to 7")
        zeros, scales = [p.dims for p in _parts(self.zeros or ())], [p.dims for p in _parts(self.scales)]
        if self.zeros is not None and zeros != scales:
            raise InputError(f"zero points of {list(map(list, zeros))} for scales of {list(map(list, scales))}")
        return self.check(ctx, self.group, self.indices)

    def bytes_read(self, tensor: Tensor, dispatch: Dispatch) -> int:
        return picked_bytes(tensor, self.indices, self.rows)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return self.pick(self.group, self.indices, self.zeros, False, out)

    @staticmethod
    def reference(weight: Rows, scales: Rows, zeros: Rows | None, indices: np.ndarray) -> np.ndarray:
        weight, scales, zeros = _whole(weight), _whole(scales), None if zeros is None else _whole(zeros)
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
