"""A saved conversation state: an .npz archive of the model's fingerprint, the tokens, and their keys and values.

What is read is checked against what the model expects before anything is allocated for it.
"""

from __future__ import annotations

import math
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hightide.errors import HightideError, InputError, ProgramError
from hightide.folders import replacing
from hightide.formats.model_file import model_files
from hightide.graph.values import Dims, TensorValue
from hightide.runtime.session import Session

MAX_HEADER = 1 << 10  # of an array in the archive; NumPy writes 128 bytes
TYPES = {"f": np.float32, "i": np.int64}
_HEADER = re.compile(r"\{'descr': '[<|]([fi])([1248])', 'fortran_order': False, 'shape': \(([\d, ]*)\), \} *\n")


@dataclass(frozen=True)
class StateLayout:
    """A decoder's state for some number of tokens: arrays of these dims, each of floats ("f") or integers ("i")."""

    dims: tuple[Dims, ...]
    kinds: str

    @classmethod
    def of_caches(cls, session: Session, length: int) -> StateLayout:
        """Of a session whose state are caches [1, context, ...]."""
        values = [session.graph.values[id] for id in sorted(session.planner.aliases.state)]
        caches = [value for value in values if isinstance(value, TensorValue)]
        dims = tuple((*cache.dims[:1], length, *cache.dims[2:]) for cache in caches)
        return cls(dims, "".join("f" if cache.dtype.startswith("float") else "i" for cache in caches))

    def empty(self) -> list[np.ndarray]:
        return [np.zeros(dims, TYPES[kind]) for dims, kind in zip(self.dims, self.kinds, strict=True)]


def fingerprint(model: Path) -> list[int]:
    """Tells models of equal dims apart: the size of its files, and a checksum of their first and last megabytes."""
    total, checksum, part = 0, 0, 1 << 20
    for path in model_files(model):
        size = path.stat().st_size
        with path.open("rb") as file:
            checksum = zlib.crc32(file.read(part), checksum)
            file.seek(max(0, size - part))
            checksum = zlib.crc32(file.read(part), checksum)
        total += size
    return [total, checksum]


def write_state(
    path: str | os.PathLike[str], model: Sequence[int], tokens: Sequence[int], arrays: Sequence[np.ndarray]
) -> None:
    """Replaces a state that is there, once the new one is complete."""
    members = {"model": np.array(model, np.int64), "tokens": np.array(tokens, np.int64)}
    members |= {f"state{n}": np.ascontiguousarray(array) for n, array in enumerate(arrays)}
    try:
        with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, array in members.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
    except OSError as error:
        raise HightideError(f"the state could not be saved to {path}: {error.strerror or error}") from None


def read_state(
    path: str | os.PathLike[str], model: Sequence[int], context: int, layout: Callable[[int], StateLayout]
) -> tuple[list[int], list[np.ndarray]]:
    """The tokens and arrays of a state of this model. `layout` says what they are for a number of tokens."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            return _read(archive, path, model, context, layout)
    except ProgramError as error:
        raise ProgramError(f"{path} is not a saved state: {error}") from None
    except HightideError:
        raise
    except OSError as error:
        raise ProgramError(f"{path} is not a saved state: {error.strerror or error}") from None
    except Exception as error:  # a damaged archive can fail in every way that Python can
        raise ProgramError(f"{path} is not a saved state: {' '.join(str(error).split())[:200]}") from None


def _read(
    archive: zipfile.ZipFile,
    path: str | os.PathLike[str],
    model: Sequence[int],
    context: int,
    layout: Callable[[int], StateLayout],
) -> tuple[list[int], list[np.ndarray]]:
    other = InputError(f"{path} is the state of another model, or of a longer context")
    of = _Member.find(archive, "model", "i")
    if of.dims != (len(model),) or of.read(archive).tolist() != list(model):
        raise other
    tokens = _Member.find(archive, "tokens", "i")
    if len(tokens.dims) != 1 or tokens.dims[0] > context:
        raise other
    wanted = layout(tokens.dims[0])
    if {f"state{n}.npy" for n in range(len(wanted.dims))} != {*archive.namelist()} - {"model.npy", "tokens.npy"}:
        raise other
    arrays = [_Member.find(archive, f"state{n}", kind) for n, kind in enumerate(wanted.kinds)]
    if tuple(array.dims for array in arrays) != wanted.dims:
        raise other
    return tokens.read(archive).tolist(), [array.read(archive) for array in arrays]


@dataclass(frozen=True)
class _Member:
    """An array in an archive, of which only the header has been read."""

    info: zipfile.ZipInfo
    dtype: str
    dims: Dims
    start: int  # of its data

    @classmethod
    def find(cls, archive: zipfile.ZipFile, name: str, kind: str) -> _Member:
        """The array of this name; ProgramError unless it is stored as it is, in full, and of this kind."""
        info = archive.getinfo(f"{name}.npy")
        with archive.open(info) as file:
            magic, length = file.read(8), int.from_bytes(file.read(2), "little")
            header = _HEADER.fullmatch(file.read(min(length, MAX_HEADER)).decode("latin-1"))
        if info.compress_type != zipfile.ZIP_STORED or magic != b"\x93NUMPY\x01\x00" or header is None:
            raise ProgramError(f"the array {name} is not stored as NumPy stores it")
        dims = tuple(int(dim) for dim in header[3].split(",") if dim.strip())
        member = cls(info, f"<{header[1]}{header[2]}", dims, 10 + length)
        if header[1] != kind or info.file_size != member.start + math.prod(dims) * int(header[2]):
            raise ProgramError(f"the array {name} is of another type, or not complete")
        return member

    def read(self, archive: zipfile.ZipFile) -> np.ndarray:
        return np.frombuffer(archive.read(self.info), self.dtype, offset=self.start).reshape(self.dims)
