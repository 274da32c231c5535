"""Arrays as buffers hold them, and back."""

from __future__ import annotations

import math

import numpy as np

from hightide.graph.values import Dims

POISON = 0x7FC07FC0  # NaN as a float and as two halves; arithmetic never gives these very bits


def held_dtype(dtype: str) -> str:
    """What an element of a tensor is in a buffer, as NumPy calls it."""
    return "int32" if dtype == "int64" else dtype


def whole_words(array: np.ndarray) -> np.ndarray:
    """The elements, flat, and zeros up to a multiple of 4 bytes: writes have no other sizes."""
    flat = array.reshape(-1)
    return np.pad(flat, (0, -flat.nbytes % 4 // flat.itemsize)) if flat.nbytes % 4 else flat


def to_words(array: np.ndarray, dtype: str) -> np.ndarray:
    """A tensor's elements as whole 32-bit words."""
    with np.errstate(all="ignore"):
        held = np.ascontiguousarray(array).astype(held_dtype(dtype), copy=False)
    return whole_words(held).view(np.uint32)


def from_words(data: memoryview | bytes | np.ndarray, dtype: str, dims: Dims) -> np.ndarray:
    """The live elements at the start of a buffer."""
    return np.frombuffer(data, held_dtype(dtype), math.prod(dims)).reshape(dims)
