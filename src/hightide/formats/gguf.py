"""GGUF files: metadata and tensors, every length checked before use.

The `gguf` package names the types and unpacks them; its reader is not used, because it takes 2 s for
the metadata of a 49k-token vocabulary (this one 0.1 s) and trusts the lengths in the file.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.source_file import SourceFile, starts_with
from hightide.graph.blob import Blob

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32  # of tensor data, unless general.alignment says otherwise
MAX_DIMS = 4  # as in ggml
MAX_ITEMS = 1 << 24  # of all arrays in a header: vocabularies have up to a million tokens and as many merges
MAX_STRING = 256 << 20  # bytes; the longest known are tokenizer files of 30 MB
WINDOW = 1 << 20  # bytes of the header that are read at a time

# GGUF's value types, by code.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class GgufTensor:
    name: str
    type: str  # "Q4_1", "F32", ...
    dims: tuple[int, ...]  # outermost first, as NumPy has them
    data: Blob


@dataclass(frozen=True)
class GgufFile:
    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    def get(self, key: str, default: Any = None) -> Any:
        """A field of this architecture: `get("block_count")` is `llama.block_count` in a llama file."""
        return self.metadata.get(f"{self.architecture}.{key}", default)

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))


def is_gguf(path: str | os.PathLike[str]) -> bool:
    return starts_with(path, MAGIC)


def read_gguf(path: str | os.PathLike[str]) -> GgufFile:
    """Reads the metadata; tensor data stays in the file."""
    path = Path(path)
    source = SourceFile(path)
    reader = _Reader(source)
    if reader.take(4) != MAGIC:
        raise ProgramError(f"{path} is not a GGUF file")
    version = reader.scalar("I")
    if version not in VERSIONS:
        raise ProgramError(f"{path} is GGUF version {version}; versions {VERSIONS[0]} and {VERSIONS[-1]} are supported")
    tensor_count, field_count = reader.scalar("Q"), reader.scalar("Q")
    metadata: dict[str, Any] = {}
    for _ in range(reader.count(field_count, 13, "fields")):
        key = reader.string()
        metadata[key] = reader.value(reader.scalar("I"), key)
    infos = [reader.tensor_info() for _ in range(reader.count(tensor_count, 24, "tensors"))]
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment < 1:
        raise ProgramError(f"{path}: the alignment cannot be {alignment}")
    start = -(-reader.at // alignment) * alignment
    tensors = {}
    for name, kind, dims, offset in infos:
        if name in tensors:
            raise ProgramError(f"{path} has two tensors named {name}")
        tensors[name] = GgufTensor(name, kind, dims, _data(source, name, kind, dims, start + offset))
    return GgufFile(path, metadata, tensors)


def block_size(kind: str) -> tuple[int, int]:
    """(elements, bytes) of one block of a type."""
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    return int(elements), int(size)


def _data(source: SourceFile, name: str, kind: str, dims: tuple[int, ...], offset: int) -> Blob:
    elements, size = block_size(kind)
    width = dims[-1] if dims else 1
    if width % elements:
        rows = f"rows of {kind} tensor {name} have {width} elements, not a multiple of {elements}"
        raise ProgramError(f"{source.path}: {rows}")
    length = math.prod(dims) // elements * size
    end = offset + length
    if end > source.length:
        raise ProgramError(f"{source.path} is truncated: tensor {name} ends at {end}, the file at {source.length}")
    return Blob(source, offset, length)


class _Reader:
    """A cursor over the header, of which a window is in memory."""

    def __init__(self, source: SourceFile) -> None:
        self.source, self.path, self.at = source, source.path, 0
        self._window, self._start = memoryview(b""), 0
        self._items_left = MAX_ITEMS

    def take(self, length: int) -> memoryview:
        """The next bytes."""
        if self.at + length > self.source.length:
            raise ProgramError(f"{self.path} is truncated at byte {self.at}, in its header")
        if self.at + length > self._start + len(self._window):
            ahead = min(max(length, WINDOW), self.source.length - self.at)
            self._window, self._start = self.source.read(self.at, ahead), self.at
        first = self.at - self._start
        self.at += length
        return self._window[first : first + length]

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def count(self, count: int, least: int, what: str) -> int:
        """A count from the file, refused if so many items of at least `least` bytes cannot be in it."""
        if count * least > self.source.length - self.at:
            raise ProgramError(f"{self.path} claims {count} {what} in {self.source.length} bytes")
        self._items_left -= count
        if self._items_left < 0:
            raise ProgramError(f"{self.path} has more than {MAX_ITEMS} items in its header, too many for a model")
        return count

    def string(self) -> str:
        length = self.scalar("Q")
        if MAX_STRING < length <= self.source.length:
            raise ProgramError(
                f"{self.path} has a string of {length} bytes at byte {self.at}; {MAX_STRING} is the most"
            )
        return str(self.take(length), "utf-8", "replace")

    def value(self, kind: int, key: str) -> Any:
        if kind == STRING:
            return self.string()
        if kind in SCALARS:
            return self.scalar(SCALARS[kind])
        if kind != ARRAY:
            raise ProgramError(f"{self.path}: field {key} has the unknown type {kind}")
        kind, count = self.scalar("I"), self.scalar("Q")
        if kind in SCALARS:
            size = struct.calcsize("<" + SCALARS[kind])
            data = self.take(size * self.count(count, size, f"items of {key}"))
            return list(struct.unpack(f"<{count}{SCALARS[kind]}", data))
        if kind == STRING:
            return self._strings(self.count(count, 8, f"items of {key}"))
        raise ProgramError(f"{self.path}: field {key} is an array of the unknown type {kind}")

    def _strings(self, count: int) -> list[str]:
        """As `string`, written out: vocabularies have hundreds of thousands."""
        items: list[str] = []
        length_at = struct.Struct("<Q").unpack_from
        while len(items) < count:
            window, at = self._window, self.at - self._start
            for _ in range(count - len(items)):
                first = at + 8
                if first > len(window) or (end := first + length_at(window, at)[0]) > len(window):
                    break
                items.append(str(window[first:end], "utf-8", "replace"))
                at = end
            self.at = self._start + at
            if len(items) < count:  # it goes on behind the window, which moves
                items.append(self.string())
        return items

    def tensor_info(self) -> tuple[str, str, tuple[int, ...], int]:
        name = self.string()
        rank = self.scalar("I")
        if rank > MAX_DIMS:
            raise ProgramError(f"{self.path}: tensor {name} has {rank} dims")
        dims = tuple(reversed([self.scalar("Q") for _ in range(rank)]))
        if any(d > 8 * self.source.length for d in dims):  # an element has at least a bit
            raise ProgramError(f"{self.path}: tensor {name} has dims {list(dims)}, more than the file holds")
        code, offset = self.scalar("I"), self.scalar("Q")
        try:
            kind = GGMLQuantizationType(code).name
        except ValueError:
            raise UnsupportedError(f"{self.path}: tensor {name} has the unknown type {code}") from None
        return name, kind, dims, offset
