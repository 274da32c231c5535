"""The checks that every reader makes before it believes a number in a file, and the names that it may have meant."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

from hightide.errors import ProgramError
from hightide.graph.blob import Blob
from hightide.graph.values import ITEM_SIZE, Dims

MAX_NAME, MAX_NAMES = 80, 5000  # among which a similar name is looked for: 0.1 s
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


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that says what is missing: the closest name that is there, if one is close."""
    some = [one for one in islice(known, MAX_NAMES) if len(one) < MAX_NAME]
    found = get_close_matches(name[:MAX_NAME], some, n=1, cutoff=0.75)
    return f"; the nearest is {found[0]}" if found else ""
