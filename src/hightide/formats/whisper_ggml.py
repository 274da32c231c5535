"""Whisper models as whisper.cpp keeps them: sizes, mel filters, a vocabulary and tensors, every length checked.

The file is little-endian and has no index: int32 sizes, then the filters, then tokens with their lengths, then tensors
to the end of the file, each with its rank, the length of its name, its type, its dims (innermost first) and its name.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np

from hightide.errors import ProgramError, UnsupportedError, reading
from hightide.formats.source_file import SourceFile, starts_with

MAGIC = b"lmgg"  # 0x67676d6c
TYPES = {0: "<f4", 1: "<f2"}
MAX_SIZE = 1 << 20  # of anything in the header
MAX_NAME = 256  # bytes


@dataclass(frozen=True)
class WhisperSizes:
    """In the order of the file's header."""

    vocabulary: int
    audio_context: int  # rows that the encoder gives: half as many as it takes
    audio_width: int
    audio_heads: int
    audio_layers: int
    text_context: int
    text_width: int
    text_heads: int
    text_layers: int
    mels: int


@dataclass(frozen=True)
class WhisperFile:
    path: Path
    sizes: WhisperSizes
    tokens: list[bytes]  # by id; the special ones behind them have no spelling in the file
    tensors: dict[str, np.ndarray]  # float32


def is_whisper(path: str | os.PathLike[str]) -> bool:
    return starts_with(path, MAGIC)


def read_whisper(path: str | os.PathLike[str]) -> WhisperFile:
    """All of the file, its weights as float32."""
    path = Path(path)
    with reading(path):
        reader = _WhisperReader(SourceFile(path))
        if bytes(reader.take(4)) != MAGIC:
            raise ProgramError(f"{path} is not a Whisper model of whisper.cpp")
        sizes = WhisperSizes(*reader.ints(len(fields(WhisperSizes))))
        if not all(0 < size <= MAX_SIZE for size in astuple(sizes)):
            raise ProgramError(f"{path} has sizes that no model has: {sizes}")
        reader.ints(1)  # the type of most tensors; each of them says its own
        filters, bins = reader.ints(2)
        reader.take(4 * filters * bins)  # the filters are those of `media.log_mel`
        (count,) = reader.ints(1)
        tokens = [bytes(reader.take(reader.ints(1)[0])) for _ in range(reader.at_most(count, MAX_SIZE, "tokens"))]
        return WhisperFile(path, sizes, tokens, dict(reader.tensors()))


class _WhisperReader:
    def __init__(self, source: SourceFile) -> None:
        self.source, self.at = source, 0

    def take(self, length: int) -> memoryview:
        """The next bytes."""
        if length < 0 or self.at + length > self.source.length:
            raise ProgramError(f"{self.source.path} is truncated or damaged at byte {self.at}")
        self.at += length
        return self.source.read(self.at - length, length)

    def ints(self, count: int) -> list[int]:
        return [int(n) for n in np.frombuffer(self.take(4 * count), "<i4")]

    def at_most(self, count: int, most: int, what: str) -> int:
        if not 0 <= count <= most:
            raise ProgramError(f"{self.source.path} claims {count} {what}")
        return count

    def tensors(self) -> Iterator[tuple[str, np.ndarray]]:
        while self.at < self.source.length:
            rank, length, kind = self.ints(3)
            dims = self.ints(self.at_most(rank, 4, "dims of a tensor"))[::-1]
            name = bytes(self.take(self.at_most(length, MAX_NAME, "bytes of a name"))).decode("utf-8", "replace")
            if kind not in TYPES:
                raise UnsupportedError(
                    f"{self.source.path}: tensor {name} is of ggml type {kind}; only f32 and f16 can be read"
                )
            size = np.dtype(TYPES[kind]).itemsize * math.prod(
                self.at_most(dim, MAX_SIZE, "items in a row") for dim in dims
            )
            yield name, np.frombuffer(self.take(size), TYPES[kind]).reshape(dims).astype(np.float32)
