"""Whisper files in whisper.cpp's format, for tests."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import astuple

import numpy as np

from hightide.formats.whisper_ggml import WhisperSizes

TOKENS = [b"a", b"b", b" ", b"ab", "é".encode()]
SIZES = WhisperSizes(1608 + len(TOKENS), 10, 4, 2, 1, 8, 4, 2, 1, 3)  # behind the tokens come the special ones
HALF = 1  # ggml's number of the type


def whisper_bytes(
    tensors: Mapping[str, np.ndarray], tokens: Sequence[bytes] = TOKENS, kind: int = HALF, sizes: WhisperSizes = SIZES
) -> bytes:
    """A file with these tensors; those of more than two dims are of ggml type `kind`."""
    head = b"lmgg" + struct.pack("<11i", *astuple(sizes), 1) + struct.pack("<2i", 3, 2) + bytes(4 * 6)
    words = struct.pack("<i", len(tokens)) + b"".join(struct.pack("<i", len(t)) + t for t in tokens)
    return head + words + b"".join(_tensor(name, x, kind if x.ndim > 2 else 0) for name, x in tensors.items())


def _tensor(name: str, array: np.ndarray, kind: int) -> bytes:
    data = array.astype("<f2" if kind == HALF else "<f4").tobytes()
    dims = struct.pack(f"<{array.ndim}i", *array.shape[::-1])
    return struct.pack("<3i", array.ndim, len(name), kind) + dims + name.encode() + data
