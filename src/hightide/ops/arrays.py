"""A tensor's bytes as NumPy has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hightide.errors import ProgramError


def numpy_dtype(dtype: str) -> str:
    """NumPy has no bfloat16: such tensors are held as float32."""
    return "float32" if dtype == "bfloat16" else dtype


def read_array(data: memoryview, dtype: str, dims: Sequence[int]) -> np.ndarray:
    """A tensor's bytes as an array, without a copy where NumPy knows the type."""
    if dtype == "bfloat16":  # the upper half of a float32
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(dims)
    try:
        return np.frombuffer(data, dtype).reshape(dims)
    except ValueError as error:  # no elements, but dims that NumPy cannot count
        raise ProgramError(f"{len(data)} bytes are no {dtype} tensor of dims {list(dims)}") from error
