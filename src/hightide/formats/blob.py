"""A region of bytes inside a memory-mapped file (or of a bytes object), read without copying."""

from __future__ import annotations

import mmap
from dataclasses import dataclass


@dataclass(frozen=True)
class Blob:
    """`length` bytes at `offset` of `source`. Bounds are checked where the blob is made."""

    source: mmap.mmap | bytes
    offset: int
    length: int

    def view(self) -> memoryview:
        return memoryview(self.source)[self.offset : self.offset + self.length]

    def forget(self) -> None:
        """Let the system drop the pages read so far: they count as this process's memory otherwise."""
        if isinstance(self.source, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            start = self.offset - self.offset % mmap.PAGESIZE
            self.source.madvise(mmap.MADV_DONTNEED, start, self.offset + self.length - start)
