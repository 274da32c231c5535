"""How the data of a delegate is laid out, Vulkan's and XNNPACK's: a header, a FlatBuffer, then inline constants."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from hightide.errors import ProgramError
from hightide.formats.checks import part
from hightide.formats.flatbuffer import FlatTable, Uint64
from hightide.graph.blob import Blob

NAMED = 2**64 - 1  # as an offset: the constant is in the named data

# Four zero bytes, magic, header length, FlatBuffer offset and size, constants offset and size.
_HEADER = struct.Struct("<4s4sHIIIQ")


@dataclass(frozen=True)
class DelegateData:
    flatbuffer: Blob
    inline: Blob  # constants
    named: Mapping[str, Blob]  # constants of the program and its data files

    def constant(self, table: FlatTable, size: int) -> Blob:
        """The constant of `size` bytes whose offset, or name, the table has."""
        offset, key, place = table.integer("offset", Uint64), table.string("named_key"), table.place
        if not key and offset != NAMED:
            return part(self.inline, offset, size, place)
        if key not in self.named:
            raise ProgramError(f"{place}: there is no data named {key!r} in the program or its data files")
        return part(self.named[key], 0, size, f"{place} ({key!r})")


def read_delegate_data(processed: Blob, named: Mapping[str, Blob], magic: bytes, backend: str) -> DelegateData:
    place = "delegate header"
    header = part(processed, 0, _HEADER.size, place)
    _, found, length, flatbuffer_offset, flatbuffer_size, data_offset, data_size = _HEADER.unpack(header.view())
    if found != magic or length != _HEADER.size:
        raise ProgramError(f"{place}: {found!r} of {length} bytes is not the header of {backend} delegate")
    flatbuffer = part(processed, flatbuffer_offset, flatbuffer_size, place)
    return DelegateData(flatbuffer, part(processed, data_offset, data_size, place), named)
