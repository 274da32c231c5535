"""GGUF's block types as the GPU holds them: the same bits, sorted into planes.

In a file, a block's scales and quants follow each other at odd addresses, and nibbles are interleaved.
On the GPU each kind of data has a plane of its own over all blocks, in element order, so that kernels
load whole `vec4<u32>`s. A plane starts at a multiple of 16 bytes; nothing grows, but types whose quants are rows of a
table have it as their last plane. A plane whose items are words may have them of four rows together, for kernels that
compute four columns; rows are filled up to four there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from gguf import GGMLQuantizationType, quants

from hightide.formats.gguf import block_size
from hightide.graph.blob import AnyBlob
from hightide.graph.values import Dims

Pack = Callable[[np.ndarray], tuple[np.ndarray, ...]]  # [blocks, bytes] -> a plane's bytes for each


@dataclass(frozen=True)
class BlockType:
    """`planes` are bytes per block, in the order that `pack` gives them."""

    name: str
    planes: tuple[int, ...]
    pack: Pack
    elements: int
    bytes: int
    together: int | None = None  # the plane that has four rows together

    def offsets(self, dims: Dims) -> list[int]:
        """Where each plane of a tensor starts, in bytes; one more for the end."""
        rows, row_blocks = math.prod(dims[:-1]), dims[-1] // self.elements
        starts = [0]
        for n, plane in enumerate(self.planes):
            blocks = row_blocks * (-(-rows // 4) * 4 if n == self.together else rows)
            starts.append(starts[-1] + -(-blocks * plane // 16) * 16)
        return [*starts, starts[-1] + len(table)] if (table := table_of(self.name)) else starts

    def pack_rows(self, data: np.ndarray, row_blocks: int) -> list[np.ndarray]:
        """The planes of some rows' blocks; where four rows are together, of a multiple of four or of the last rows."""
        planes = [np.ascontiguousarray(plane) for plane in self.pack(data)]
        if self.together is not None:
            words = planes[self.together].reshape(-1, row_blocks, 4)
            filled = np.pad(words, ((0, -len(words) % 4), (0, 0), (0, 0)))
            planes[self.together] = np.ascontiguousarray(filled.reshape(-1, 4, row_blocks, 4).transpose(0, 2, 1, 3))
        return planes


def _sequential_nibbles(values: np.ndarray) -> np.ndarray:
    """[blocks, n] values below 16, two to a byte, the first in the low half."""
    return values[:, 0::2] | values[:, 1::2] << 4


def _halves(data: np.ndarray) -> np.ndarray:
    """Bytes whose low nibbles come first, then their high nibbles, in runs along the last axis."""
    split = np.concatenate([data & 15, data >> 4], axis=-1)
    return _sequential_nibbles(split.reshape(len(data), -1))


def _q4_k_nibbles(data: np.ndarray) -> np.ndarray:
    return _halves(data.reshape(len(data), 4, 32))


def _q5_k_bits(data: np.ndarray) -> np.ndarray:
    """Bit n of byte l belongs to element 32 n + l."""
    bits = data[:, None, :] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    return np.packbits(bits.reshape(len(data), 256), axis=1, bitorder="little")


def _pairs(data: np.ndarray) -> np.ndarray:
    """Bits 2n, 2n+1 of byte l (of 32) belong to element 32 n + l of its half."""
    pairs = data.reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    pairs = pairs.reshape(len(data), 64, 4)
    return pairs[..., 0] | pairs[..., 1] << 2 | pairs[..., 2] << 4 | pairs[..., 3] << 6


def _q6_k(b: np.ndarray) -> tuple[np.ndarray, ...]:
    return _halves(b[:, :128].reshape(-1, 2, 64)), _pairs(b[:, 128:192]), b[:, 192:208], b[:, 208:]


def _cut(*ends: int) -> Pack:
    """Planes as they follow each other in a block, up to these bytes of it; the d that it starts with comes last."""

    def pack(b: np.ndarray) -> tuple[np.ndarray, ...]:
        return *(b[:, start:end] for start, end in pairwise((2, *ends))), b[:, :2]

    return pack


@cache
def table_of(kind: str) -> bytes:
    """Whole words behind the planes: the rows that a type's quants are places of, the same for every tensor."""
    if kind[:3] not in ("IQ1", "IQ2", "IQ3"):
        return b""
    quant = getattr(quants, kind)
    quant.init_grid()
    return np.asarray(quant.grid).astype(np.int8).tobytes()


def _whole(b: np.ndarray) -> tuple[np.ndarray, ...]:
    return (b,)


def _types() -> dict[str, BlockType]:
    forms: dict[str, tuple[tuple[int, ...], Pack]] = {
        "Q4_0": ((16, 2), lambda b: (_halves(b[:, 2:]), b[:, :2])),
        "Q4_1": ((16, 4), lambda b: (_halves(b[:, 4:]), b[:, :4])),
        "Q5_0": ((16, 4, 2), lambda b: (_halves(b[:, 6:]), b[:, 2:6], b[:, :2])),
        "Q5_1": ((16, 4, 4), lambda b: (_halves(b[:, 8:]), b[:, 4:8], b[:, :4])),
        "Q8_0": ((32, 2), lambda b: (b[:, 2:], b[:, :2])),
        "Q4_K": ((128, 16), lambda b: (_q4_k_nibbles(b[:, 16:]), b[:, :16])),
        "Q5_K": ((128, 32, 16), lambda b: (_q4_k_nibbles(b[:, 48:]), _q5_k_bits(b[:, 16:48]), b[:, :16])),
        "Q6_K": ((128, 64, 16, 2), _q6_k),
        "Q2_K": ((64, 16, 4), lambda b: (_pairs(b[:, 16:80]), b[:, :16], b[:, 80:])),
        "Q3_K": ((64, 32, 12, 2), lambda b: (_pairs(b[:, 32:96]), _q5_k_bits(b[:, :32]), b[:, 96:108], b[:, 108:])),
        "IQ4_NL": ((16, 2), lambda b: (_halves(b[:, 2:]), b[:, :2])),
        "IQ4_XS": ((128, 8), lambda b: (_halves(b[:, 8:].reshape(-1, 8, 16)), b[:, :8])),
        "MXFP4": ((16, 1), lambda b: (_halves(b[:, 1:]), b[:, :1])),
        "TQ1_0": ((52, 2), lambda b: (b[:, :52], b[:, 52:])),
        "TQ2_0": ((64, 2), lambda b: (_pairs(b[:, :64]), b[:, 64:])),
        "IQ2_XXS": ((64, 2), _cut(66)),
        "IQ2_XS": ((64, 8, 2), _cut(66, 74)),
        "IQ2_S": ((32, 32, 8, 8, 2), _cut(34, 66, 74, 82)),
        "IQ3_XXS": ((64, 32, 2), _cut(66, 98)),
        "IQ3_S": ((64, 8, 32, 4, 2), _cut(66, 74, 106, 110)),
        "IQ1_S": ((32, 16, 2), _cut(34, 50)),
        "IQ1_M": ((32, 16, 8), lambda b: (b[:, :32], b[:, 32:48], b[:, 48:])),
        "F32": ((4,), _whole),
        "F16": ((2,), _whole),
        "BF16": ((2,), _whole),
    }
    together = {"Q4_1": 1, "Q5_1": 2}
    return {
        name: BlockType(name, planes, pack, *block_size(name), together.get(name))
        for name, (planes, pack) in forms.items()
    }


BLOCK_TYPES = _types()


def dequantize(data: AnyBlob, kind: str, dims: Dims) -> np.ndarray:
    """The float32 weights that blocks stand for."""
    if 0 in dims:
        return np.zeros(dims, np.float32)
    elements, size = block_size(kind)
    rows = np.frombuffer(data.view(), np.uint8).reshape(*dims[:-1], dims[-1] // elements * size)
    return quants.dequantize(rows, GGMLQuantizationType[kind])
