"""gpt-oss's experts in 4 bits as GGUF's MXFP4, without a rounding: the same numbers and scales in another order.

A block is 32 numbers with a common exponent. Folders have all blocks of a tensor in one (`*_blocks`, of which a byte
holds two neighbours) and all exponents in another (`*_scales`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hightide.errors import ProgramError
from hightide.formats.gguf import GgufTensor
from hightide.formats.model_tensors import of_rows
from hightide.formats.safetensors import StoredTensor

BLOCKS, SCALES = "_blocks", "_scales"
BLOCK = 32  # numbers


def mxfp4_weights(
    folder: Path, settings: Mapping[str, Any], stored: Mapping[str, StoredTensor]
) -> tuple[dict[str, StoredTensor], dict[str, GgufTensor]]:
    """The tensors that are as they are, and those in blocks, by the name of the weight that they are."""
    plain = {name: tensor for name, tensor in stored.items() if not name.endswith((BLOCKS, SCALES))}
    packed = {}
    for name in stored.keys() - plain.keys():
        weight = name.removesuffix(BLOCKS).removesuffix(SCALES)
        blocks, scales = (stored.get(weight + end) for end in (BLOCKS, SCALES))
        if blocks is None or scales is None:
            raise ProgramError(f"{folder} has {name}, but not both {weight + BLOCKS} and {weight + SCALES}")
        packed[weight] = _in_blocks(folder, weight, blocks, scales)
    return plain, packed


def _in_blocks(folder: Path, name: str, blocks: StoredTensor, scales: StoredTensor) -> GgufTensor:
    """[..., groups, 16] bytes and [..., groups] exponents as [..., groups * 32] in MXFP4."""
    *outer, groups = scales.dims or (0,)
    if {blocks.type, scales.type} != {"U8"} or blocks.dims != (*scales.dims, BLOCK // 2):
        raise ProgramError(
            f"{folder}: {name} has blocks of {blocks.type} {list(blocks.dims)} and scales of {scales.type} "
            f"{list(scales.dims)}; they do not fit together"
        )

    def rows(first: int, count: int) -> np.ndarray:
        start, length = first * groups, count * groups
        pairs = np.frombuffer(blocks.data.region(start * BLOCK // 2, length * BLOCK // 2), np.uint8)
        numbers = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(length, BLOCK)
        exponents = np.frombuffer(scales.data.region(start, length), np.uint8).reshape(length, 1)
        return np.concatenate([exponents, numbers[:, : BLOCK // 2] | numbers[:, BLOCK // 2 :] << 4], axis=1)

    dims = (*outer, groups * BLOCK)
    return of_rows(GgufTensor(name, "MXFP4", dims, blocks.data), "MXFP4", dims, rows)
