"""Reads `.ptd` files: named data kept outside a program (a FlatTensor FlatBuffer, then its segments)."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.checks import part
from hightide.formats.container import read_named_data, read_segments
from hightide.formats.flatbuffer import Uint32, root_table
from hightide.formats.source_file import SourceFile
from hightide.graph.blob import Blob

FLAT_TENSOR = ("version", "segments", "named_data")
NAMED_DATA = ("key", "segment_index", "tensor_layout")

# Magic, header length, flatbuffer offset and size, segment base offset, segment data size.
_HEADER = struct.Struct("<4sIQQQQ")
_HEADER_OFFSET = 8  # after the FlatBuffer's root offset and identifier


def read_data_file(path: str | os.PathLike[str]) -> dict[str, Blob]:
    """The data in a `.ptd` file, by name."""
    path = Path(path)
    file = SourceFile(path).whole()
    flatbuffer, segment_region = _read_header(file, path.name)
    root = root_table(flatbuffer, b"FT01", FLAT_TENSOR, f"{path.name}: FlatTensor", "an ExecuTorch data file (.ptd)")
    version = root.integer("version", Uint32)
    if version > 0:
        raise UnsupportedError(f"{path.name}: FlatTensor version {version} is newer than version 0")
    return read_named_data(root.tables("named_data", NAMED_DATA), read_segments(root, segment_region))


def _read_header(file: Blob, name: str) -> tuple[Blob, Blob]:
    """The FlatBuffer and the region of the segments."""
    place = f"{name}: header"
    header = part(file, _HEADER_OFFSET, _HEADER.size, place)
    magic, length, flatbuffer_offset, flatbuffer_size, base, size = _HEADER.unpack(header.view())
    if magic != b"FH01" or length < _HEADER.size:
        raise ProgramError(f"{place}: {magic!r} of {length} bytes is not the header of a .ptd file")
    # The header sits inside the FlatBuffer, so its "offset" only says how much longer that has become.
    return part(file, 0, flatbuffer_offset + flatbuffer_size, place), part(file, base, size, place)
