"""How tensors are held on the GPU: the type that kernels see, and the bytes they take."""

from __future__ import annotations

import math

from hightide.graph.values import Dims
from hightide.ops.blocks.layout import BLOCK_TYPES

# The types that kernels compute in: int64 is narrowed with a range check, halves are f32 once they are loaded,
# bytes are packed four to a word; GGUF's types stay in their blocks.
GPU_TYPE = {
    "float32": "f32",
    "float16": "f32",
    "int32": "i32",
    "int64": "i32",
    "uint8": "u8",
    "int8": "u8",
    "bool": "u8",
    **dict.fromkeys(BLOCK_TYPES, "blocks"),
}


def gpu_bytes(dtype: str, dims: Dims) -> int:
    """Bytes of a tensor on the GPU, in whole 32-bit words."""
    if dtype in BLOCK_TYPES:
        return BLOCK_TYPES[dtype].offsets(dims)[-1]
    each = 2 if dtype == "float16" else 1 if GPU_TYPE[dtype] == "u8" else 4
    return -(-math.prod(dims) * each // 4) * 4
