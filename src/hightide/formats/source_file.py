"""Files as they are read from: kept open, and refused once they are no longer what they were.

Files are read, not mapped: a mapped file that somebody cuts short kills the process at the next look at it (SIGBUS),
and one that is written over gives other weights than those that were loaded.
"""

from __future__ import annotations

import os
import stat
import threading
import weakref
from pathlib import Path

import numpy as np

from hightide.errors import ProgramError
from hightide.graph.blob import Blob

_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class SourceFile:
    """A file that stays open. Replacing it by a rename leaves it alone; writing to it makes every later read fail."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self._number = os.open(self.path, _FLAGS)  # a pipe without a writer must not block
        except (OSError, ValueError) as error:
            raise ProgramError(f"cannot read {self.path}: {_reason(error)}") from error
        weakref.finalize(self, os.close, self._number)
        self._lock = threading.Lock()
        state = os.fstat(self._number)
        if not stat.S_ISREG(state.st_mode):
            what = "Is a directory" if stat.S_ISDIR(state.st_mode) else "it is not a regular file"
            raise ProgramError(f"cannot read {self.path}: {what}")
        if not state.st_size:
            raise ProgramError(f"{self.path} is empty")
        self.length = state.st_size
        self._modified = state.st_mtime_ns

    def whole(self) -> Blob:
        return Blob(self, 0, self.length)

    def read(self, offset: int, length: int) -> memoryview:
        """These bytes, as they were when the file was opened; else ProgramError."""
        data = np.empty(length, np.uint8).data  # not zeroed first
        done = 0
        try:
            while done < length and (count := self._read_into(data[done:], offset + done)):
                done += count
        except OSError as error:
            raise ProgramError(f"cannot read {self.path}: {_reason(error)}") from error
        self.check()
        if done < length:
            raise ProgramError(f"{self.path} ends at byte {offset + done}; {length} bytes were to be read at {offset}")
        return data

    def check(self) -> None:
        """ProgramError if the file was written to since it was opened."""
        try:
            state = os.fstat(self._number)
        except OSError as error:
            raise ProgramError(f"cannot read {self.path}: {_reason(error)}") from error
        if state.st_size != self.length:
            now = f"it has {state.st_size} bytes now, and had {self.length}"
            raise ProgramError(f"{self.path} was changed after it was opened ({now}); load it again")
        if state.st_mtime_ns != self._modified:
            raise ProgramError(f"{self.path} was written to after it was opened; load it again")

    def _read_into(self, data: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._number, [data], offset)
        with self._lock:  # Windows has one position for all readers
            os.lseek(self._number, offset, os.SEEK_SET)
            piece = os.read(self._number, len(data))
        data[: len(piece)] = piece
        return len(piece)


def starts_with(path: str | os.PathLike[str], magic: bytes) -> bool:
    """Whether a regular file begins with these bytes; what cannot be read does not."""
    try:
        source = SourceFile(path)
        return source.length >= len(magic) and bytes(source.read(0, len(magic))) == magic
    except ProgramError:
        return False


def plain_name(path: str | os.PathLike[str]) -> str:
    """What a file is called without its suffix; a folder's name has none, whatever points are in it."""
    path = Path(path).resolve()
    return path.name if path.is_dir() else path.stem


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
