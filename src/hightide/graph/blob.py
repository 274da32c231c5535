"""Regions of bytes inside a memory-mapped file (or of a bytes object), read without copying."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class Blob:
    """`length` bytes at `offset` of `source`. Bounds are checked where the blob is made."""

    source: mmap.mmap | bytes
    offset: int
    length: int

    def view(self) -> memoryview:
        return memoryview(self.source)[self.offset : self.offset + self.length]

    def region(self, start: int, length: int) -> memoryview:
        return memoryview(self.source)[self.offset + start : self.offset + start + length]

    def forget(self) -> None:
        """Let the system drop the pages read so far: they count as this process's memory otherwise."""
        if isinstance(self.source, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            start = self.offset - self.offset % mmap.PAGESIZE
            self.source.madvise(mmap.MADV_DONTNEED, start, self.offset + self.length - start)


@dataclass(frozen=True)
class Joined:
    """Matrices side by side: each part has `rows` rows, and what is joined is the first bytes of each row.

    With one row that is one part after the other. Nothing is copied before it is read.
    """

    parts: tuple[AnyBlob, ...]
    rows: int
    row_bytes: tuple[int, ...]  # taken of a row of each part

    @property
    def length(self) -> int:
        return self.rows * sum(self.row_bytes)

    def view(self) -> memoryview:
        return self.region(0, self.length)

    def region(self, start: int, length: int) -> memoryview:
        joined = bytearray(length)
        row_length, strides = sum(self.row_bytes), [part.length // self.rows for part in self.parts]
        for row in range(start // row_length, -(-(start + length) // row_length)):
            at = row * row_length
            for part, stride, taken in zip(self.parts, strides, self.row_bytes, strict=True):
                first, last = max(start, at), min(start + length, at + taken)
                if first < last:
                    joined[first - start : last - start] = part.region(row * stride + first - at, last - first)
                at += taken
        return memoryview(joined)

    def forget(self) -> None:
        for part in self.parts:
            part.forget()


@dataclass(frozen=True, eq=False)
class Computed:
    """Bytes that are computed when they are first read, and again once they were forgotten."""

    length: int
    parts: tuple[AnyBlob, ...]  # what they are computed from
    compute: Callable[[], bytes]
    _kept: list[bytes] = field(default_factory=list, repr=False)

    def view(self) -> memoryview:
        if not self._kept:
            self._kept.append(self.compute())
        return memoryview(self._kept[0])

    def region(self, start: int, length: int) -> memoryview:
        return self.view()[start : start + length]

    def forget(self) -> None:
        self._kept.clear()
        for part in self.parts:
            part.forget()


AnyBlob: TypeAlias = Blob | Joined | Computed


def join(parts: tuple[AnyBlob, ...]) -> Joined:
    """One part after the other."""
    return Joined(parts, 1, tuple(part.length for part in parts))
