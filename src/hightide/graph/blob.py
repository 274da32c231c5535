"""Regions of bytes inside a file (or of a bytes object), read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias


class ByteSource(Protocol):
    """What blobs are regions of, where that is not in memory: a file that stays open."""

    def read(self, offset: int, length: int) -> memoryview:
        """These bytes, which must be within it; ProgramError if they are no longer what they were."""

    def check(self) -> None:
        """ProgramError if its bytes are no longer what they were."""


@dataclass(frozen=True)
class Blob:
    """`length` bytes at `offset` of `source`. Bounds are checked where the blob is made."""

    source: ByteSource | bytes
    offset: int
    length: int

    def view(self) -> memoryview:
        return self.region(0, self.length)

    def region(self, start: int, length: int) -> memoryview:
        if isinstance(self.source, bytes):
            return memoryview(self.source)[self.offset + start : self.offset + start + length]
        return self.source.read(self.offset + start, length)

    def check(self) -> None:
        """ProgramError if the file has changed, so that what is about to be read is not what it was."""
        if not isinstance(self.source, bytes):
            self.source.check()


@dataclass(frozen=True)
class Zeros:
    """`length` zeros that nobody has to hold: what a KV cache starts as."""

    length: int

    def view(self) -> memoryview:
        return self.region(0, self.length)

    def region(self, start: int, length: int) -> memoryview:
        return memoryview(bytes(length))

    def check(self) -> None:
        """They never change."""


@dataclass(frozen=True)
class Joined:
    """Matrices side by side: each part has `rows` rows, and what is joined are the same bytes of each row.

    With one row that is one part after the other. Nothing is copied before it is read.
    """

    parts: tuple[AnyBlob, ...]
    rows: int
    row_bytes: tuple[int, ...]  # taken of a row of each part
    row_start: int = 0  # where they begin in a row

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
                    joined[first - start : last - start] = part.region(
                        row * stride + self.row_start + first - at, last - first
                    )
                at += taken
        return memoryview(joined)

    def check(self) -> None:
        for part in self.parts:
            part.check()


@dataclass(frozen=True, eq=False)
class Computed:
    """Bytes that are computed when they are first read, and again once they were read to the end."""

    length: int
    parts: tuple[AnyBlob, ...]  # what they are computed from
    compute: Callable[[], bytes]
    _kept: list[bytes] = field(default_factory=list, repr=False)

    def view(self) -> memoryview:
        return self.region(0, self.length)

    def region(self, start: int, length: int) -> memoryview:
        data = self._kept[0] if self._kept else self.compute()
        self._kept[:] = [data] if start + length < self.length else []
        return memoryview(data)[start : start + length]

    def check(self) -> None:
        for part in self.parts:
            part.check()


@dataclass(frozen=True, eq=False)
class ComputedRows:
    """A matrix of which only the rows that are read are computed; blobs can be regions of it as of a file."""

    row_bytes: int
    parts: tuple[AnyBlob, ...]  # what they are computed from
    compute: Callable[[int, int], bytes]  # (first row, rows)

    def read(self, offset: int, length: int) -> memoryview:
        first, end = offset // self.row_bytes, -(-(offset + length) // self.row_bytes)
        start = offset - first * self.row_bytes
        return memoryview(self.compute(first, end - first))[start : start + length]

    def check(self) -> None:
        for part in self.parts:
            part.check()


AnyBlob: TypeAlias = Blob | Zeros | Joined | Computed


def join(parts: tuple[AnyBlob, ...]) -> Joined:
    """One part after the other."""
    return Joined(parts, 1, tuple(part.length for part in parts))
