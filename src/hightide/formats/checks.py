"""The checks that every reader makes before it believes a number in a file."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hightide.errors import ProgramError
from hightide.graph.blob import Blob
from hightide.graph.values import ITEM_SIZE, Dims

MAX_RANK = 16  # ExecuTorch's own limit; it also bounds the cost of multiplying hostile dims


def part(blob: Blob, offset: int, length: int, place: str) -> Blob:
    """`length` bytes at `offset` of `blob`, which must hold them."""
    if offset < 0 or length < 0 or offset + length > blob.length:
        raise ProgramError(f"{place}: needs {length} bytes at offset {offset}, but there are only {blob.length}")
    return Blob(blob.source, blob.offset + offset, length)


def check_index(index: int, count: int, what: str, place: str) -> int:
    if not 0 <= index < count:
        raise ProgramError(f"{place}: {what} {index} does not exist; there are {count}")
    return index


def check_indices(indices: Iterable[int], count: int, what: str, place: str) -> tuple[int, ...]:
    return tuple(check_index(index, count, what, place) for index in indices)


def tensor_bytes(dims: Dims, dtype: str, place: str) -> int:
    """How many bytes a tensor takes at its max dims."""
    if len(dims) > MAX_RANK:
        raise ProgramError(f"{place}: rank {len(dims)} is more than {MAX_RANK}")
    if any(dim < 0 for dim in dims):
        raise ProgramError(f"{place}: dims {list(dims)} contain a negative size")
    count = math.prod(dims) * ITEM_SIZE[dtype]
    if count >= 2**63:
        raise ProgramError(f"{place}: dims {list(dims)} of {dtype} take more bytes than 63 bits can count")
    return count
