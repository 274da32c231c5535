"""Rows of a table by index, in float, in 4 bits and in 8."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

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


class CodeTable(Op):
    """Rows of a table of codes: bytes [V, K / codes per byte], with a scale per group [V, K/group] or per row [V].

    Each is one tensor, or its rows in several, each within the binding limit.
    """

    weight: Tensor | tuple[Tensor, ...]
    scales: Tensor | tuple[Tensor, ...]
    per_byte: ClassVar[int] = 2  # codes

    @property
    def tables(self) -> tuple[Tensor, ...]:
        return _parts(self.weight)

    @property
    def rows(self) -> int:
        return sum(part.dims[0] for part in self.tables)

    @property
    def width(self) -> int:
        """Codes of a row."""
        return self.tables[0].width * self.per_byte

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
        width, groups = self.width, groups_of(_parts(self.scales)[0].dims)
        if group < 1 or groups * group != width:
            raise InputError(f"rows of {width} do not divide into {groups} groups of {group}")
        ctx.require_indices(indices, 0, self.rows - 1, "token id")
        return [(*indices.dims, width)]

    def pick(
        self, group: int, indices: Tensor, zeros: Tensor | tuple[Tensor, ...] | None, code: str, out: Tensor
    ) -> Iterator[Dispatch]:
        """Each part writes the rows that it has; `code` says how a code lies in its byte, as the kernel has it."""
        first = 0
        name = {1: "embedding_byte", 2: "embedding_q4", 4: "embedding_2bit"}[self.per_byte]
        zero_parts = (None,) * len(self.tables) if zeros is None else _parts(zeros)
        for weight, scales, zero in zip(self.tables, _parts(self.scales), zero_parts, strict=True):
            rows, row_bytes = weight.dims
            yield kernel("embedding/code_rows.wgsl", name, CODE=code, ZEROS=zeros is not None).over(
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
class EmbeddingQ4(CodeTable):
    """Tied to a linear's weight, the low nibble comes first; a table of its own has the high one first."""

    group: int
    indices: Tensor
    tied: bool = False

    def outputs(self, ctx: Context) -> list[Dims]:
        return self.check(ctx, self.group, self.indices)

    def bytes_read(self, tensor: Tensor, dispatch: Dispatch) -> int:
        return picked_bytes(tensor, self.indices, self.rows)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return self.pick(self.group, self.indices, None, "low_first" if self.tied else "high_first", out)

    @staticmethod
    def reference(weight: Rows, scales: Rows, group: int, indices: np.ndarray, tied: bool) -> np.ndarray:
        return codes(_whole(weight)[indices], tied) * spread(_whole(scales), indices, group)


class GroupedTable(CodeTable):
    """A table as exporters quantize it, with a zero point per group or none; how long groups are, the scales say."""

    zeros: Tensor | tuple[Tensor, ...] | None
    low: int
    high: int
    indices: Tensor
    dtype: int | None = None
    bounds: ClassVar[tuple[int, int] | None] = None  # of codes, where the kernel knows no others

    @property
    def group(self) -> int:
        return self.width // groups_of(_parts(self.scales)[0].dims)

    def outputs(self, ctx: Context) -> list[Dims]:
        if self.bounds is not None and self.bounds != (self.low, self.high):
            low, high = self.bounds
            raise UnsupportedError(f"codes from {self.low} to {self.high}; such tables have {low} to {high}")
        self.check_table()
        zeros, scales = [p.dims for p in _parts(self.zeros or ())], [p.dims for p in _parts(self.scales)]
        if self.zeros is not None and zeros != scales:
            raise InputError(f"zero points of {list(map(list, zeros))} for scales of {list(map(list, scales))}")
        return self.check(ctx, self.group, self.indices)

    def bytes_read(self, tensor: Tensor, dispatch: Dispatch) -> int:
        return picked_bytes(tensor, self.indices, self.rows)


@op("quantized_decomposed.embedding_4bit.dtype", "quantized_decomposed.embedding_4bit.default", family="embedding")
class EmbeddingFourBit(GroupedTable):
    """As above before the exporter repacks it, high nibble first: rows that are no multiple of 32, or zero points."""

    bounds = (-8, 7)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return self.pick(self.group, self.indices, self.zeros, "high_first", out)

    @staticmethod
    def reference(weight: Rows, scales: Rows, zeros: Rows | None, indices: np.ndarray) -> np.ndarray:
        return dequantized(codes(_whole(weight)[indices], False), scales, zeros, indices)


@op("quantized_decomposed.embedding_2bit.dtype", "quantized_decomposed.embedding_2bit.default", family="embedding")
class EmbeddingTwoBit(GroupedTable):
    """Four codes to a byte, the lowest bits first."""

    per_byte, bounds = 4, (-2, 1)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return self.pick(self.group, self.indices, self.zeros, "two_bits", out)

    @staticmethod
    def reference(weight: Rows, scales: Rows, zeros: Rows | None, indices: np.ndarray) -> np.ndarray:
        rows = _whole(weight)[indices].astype(np.uint8)
        found = (rows[..., None] >> np.arange(0, 8, 2, dtype=np.uint8) & 3).astype(np.int32) - 2
        return dequantized(found.reshape(*rows.shape[:-1], 4 * rows.shape[-1]), scales, zeros, indices)


@op("quantized_decomposed.embedding_byte.dtype", "quantized_decomposed.embedding_byte.default", family="embedding")
class EmbeddingByte(GroupedTable):
    """Rows of an 8-bit table, of int8 or uint8, with a scale (and zero point) per group of a row."""

    per_byte = 1

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        kinds = {part.dtype for part in self.tables}
        if not kinds <= {"int8"} and not kinds <= {"uint8"}:
            raise UnsupportedError(f"a table of {', '.join(sorted(kinds))}; it has a kernel for int8 and for uint8")
        return self.pick(self.group, self.indices, self.zeros, "signed" if kinds == {"int8"} else "unsigned", out)

    @staticmethod
    def reference(weight: Rows, scales: Rows, zeros: Rows | None, indices: np.ndarray) -> np.ndarray:
        table = _whole(weight)
        outside = indices[(indices < 0) | (indices >= len(table))]
        if outside.size:
            raise InputError(f"token id {outside[0]} is not in 0..{len(table) - 1}")
        return dequantized(table[indices], scales, zeros, indices)


def dequantized(rows: np.ndarray, scales: Rows, zeros: Rows | None, indices: np.ndarray) -> np.ndarray:
    """Rows of codes, less their zero points and times their scales."""
    scales = _whole(scales)
    group = rows.shape[-1] // groups_of(scales.shape)
    shifted = rows if zeros is None else rows - spread(_whole(zeros), indices, group)
    return shifted * spread(scales, indices, group)


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


@op("hightide.media_rows.default", family="embedding")
class MediaRows(Op):
    """Embeddings [1, S, W] of tokens [1, S], where those of the tokens from `first` on are rows of `media` [M, W]."""

    x: Tensor
    tokens: Tensor
    media: Tensor
    first: int

    def outputs(self, ctx: Context) -> list[Dims]:
        if self.x.dims[:-1] != self.tokens.dims or self.media.rank != 2 or self.media.width != self.x.width:
            given = ", ".join(str(list(t.dims)) for t in (self.x, self.tokens, self.media))
            raise InputError(f"{given} are not embeddings by token, tokens, and rows of the same width")
        ctx.require_indices(self.tokens, 0, self.first + self.media.dims[0] - 1, "token id")
        return [self.x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield kernel("embedding/media_rows.wgsl").over(
            ceil_div(out.numel, 64),
            x=self.x,
            tokens=self.tokens,
            media=self.media,
            out=out,
            count=out.numel,
            rows=self.media.dims[0],
            width=out.width,
            first=self.first,
        )

    def bytes_read(self, tensor: Tensor, dispatch: Dispatch) -> int:
        """A row of x or of the media for each token; which of the two is not known here."""
        return 0 if same(tensor, self.media) else tensor.nbytes

    @staticmethod
    def reference(x: np.ndarray, tokens: np.ndarray, media: np.ndarray, first: int) -> np.ndarray:
        seen = media[np.clip(tokens - first, 0, len(media) - 1)].astype(x.dtype)
        return np.where(tokens[..., None] >= first, seen, x)
