"""A checked reader of FlatBuffers: tables, scalars, strings, vectors and unions, by field name.

The `flatbuffers` package decodes numbers but trusts every offset. Here each offset and length is
checked against the buffer before it is used, and every failure is a `ProgramError` that says where:
"Program.execution_plan[0].values[7]: ...". Offsets only ever point forward, so a buffer cannot hold a
cycle; a budget on the bytes read stops the other attack, many references to one large object.

A table type is given as the tuple of its field names in schema order; a union takes two fields, its
type and its value, and `union()` is given the member types in schema order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from flatbuffers import number_types as N

from hightide.errors import ProgramError
from hightide.graph.blob import Blob

Fields: TypeAlias = tuple[str, ...]
Kind: TypeAlias = Any  # a scalar type of flatbuffers.number_types, such as Int32Flags

Int8, Uint8, Uint16, Int32, Uint32 = N.Int8Flags, N.Uint8Flags, N.Uint16Flags, N.Int32Flags, N.Uint32Flags
Int64, Uint64, Float64 = N.Int64Flags, N.Uint64Flags, N.Float64Flags
Int16, Float32 = N.Int16Flags, N.Float32Flags

# How often the whole buffer may be read over: exporters share strings and vtables, little else.
_BUDGET_FACTOR = 2
_PAGE = 1 << 16  # bytes read at a time


def root_table(blob: Blob, identifier: bytes, fields: Fields, place: str, what: str) -> FlatTable:
    """The root table of the FlatBuffer in `blob`: `what`, which has this file identifier."""
    if blob.length < 8:
        raise ProgramError(f"{place}: {blob.length} bytes are too few for {what}")
    buffer = _Buffer(blob, bytes_left=_BUDGET_FACTOR * blob.length)
    found = bytes(buffer.read(4, 4))
    if found != identifier:
        raise ProgramError(f"{place}: this is not {what}: its file identifier is {found!r}, not {identifier!r}")
    return _table_at(buffer, buffer.follow(0, place), fields, place)


@dataclass(frozen=True, slots=True)
class FlatTable:
    """One table. A field that is absent reads as its default: 0, "", an empty tuple or None."""

    fields: Fields
    place: str
    buffer: _Buffer
    position: int
    size: int  # inline bytes, the 4-byte vtable offset included
    vtable: int
    vtable_size: int

    def integer(self, field: str, kind: Kind, default: int = 0) -> int:
        position = self.locate(field, kind.bytewidth)
        return default if position is None else int(self.buffer.number(position, kind))

    def boolean(self, field: str) -> bool:
        return self.integer(field, Uint8) != 0

    def double(self, field: str) -> float:
        position = self.locate(field, 8)
        return 0.0 if position is None else float(self.buffer.number(position, Float64))

    def single(self, field: str) -> float:
        """A float32."""
        position = self.locate(field, 4)
        return 0.0 if position is None else float(self.buffer.number(position, Float32))

    def string(self, field: str) -> str:
        start, length = self._vector(field, 1)
        self.buffer.spend(length, self.place)
        try:
            return str(self.buffer.read(start, length), "utf-8")
        except UnicodeDecodeError as error:
            raise ProgramError(f"{self.place}.{field}: the string is not UTF-8 ({error.reason})") from None

    def integers(self, field: str, kind: Kind) -> tuple[int, ...]:
        return tuple(self._numbers(field, kind))

    def doubles(self, field: str) -> tuple[float, ...]:
        return tuple(self._numbers(field, Float64))

    def singles(self, field: str) -> tuple[float, ...]:
        return tuple(self._numbers(field, Float32))

    def booleans(self, field: str) -> tuple[bool, ...]:
        return tuple(number != 0 for number in self._numbers(field, Uint8))

    def blob(self, field: str) -> Blob:
        """A vector of bytes, in place: neither read nor counted against the budget."""
        start, length = self._vector(field, 1)
        return Blob(self.buffer.blob.source, self.buffer.blob.offset + start, length)

    def octets(self, field: str) -> bytes:
        """A short vector of bytes, copied."""
        start, length = self._vector(field, 1)
        self.buffer.spend(length, self.place)
        return bytes(self.buffer.read(start, length))

    def table(self, field: str, fields: Fields) -> FlatTable | None:
        position = self.locate(field, 4)
        if position is None:
            return None
        place = f"{self.place}.{field}"
        return _table_at(self.buffer, self.buffer.follow(position, place), fields, place)

    def tables(self, field: str, fields: Fields) -> list[FlatTable]:
        start, length = self._vector(field, 4)
        tables = []
        for index in range(length):
            place = f"{self.place}.{field}[{index}]"
            target = self.buffer.follow(start + 4 * index, place)
            tables.append(_table_at(self.buffer, target, fields, place))
        return tables

    def union(self, field: str, members: Mapping[str, Fields]) -> tuple[str, FlatTable]:
        """The name of the member that the union holds, and its table."""
        place = f"{self.place}.{field}"
        tag = self.integer(f"{field}_type", Uint8)
        position = self.locate(field, 4)
        if not 1 <= tag <= len(members):
            raise ProgramError(f"{place}: type {tag} of the union is not one of 1..{len(members)}")
        if position is None:
            raise ProgramError(f"{place}: the union has a type but no value")
        name = list(members)[tag - 1]
        return name, _table_at(self.buffer, self.buffer.follow(position, place), members[name], place)

    def locate(self, field: str, width: int) -> int | None:
        """Where the `width` inline bytes of a field are, or None if it is absent."""
        entry = 4 + 2 * self.fields.index(field)
        if entry + 2 > self.vtable_size:  # written by an older exporter, which had no such field
            return None
        offset = int(self.buffer.number(self.vtable + entry, Uint16))
        if offset == 0:
            return None
        if offset < 4 or offset + width > self.size:
            raise ProgramError(f"{self.place}.{field}: offset {offset} is outside the table's {self.size} bytes")
        return self.position + offset

    def _vector(self, field: str, width: int) -> tuple[int, int]:
        """The start and length of a vector of items of `width` bytes; (0, 0) if absent."""
        position = self.locate(field, 4)
        if position is None:
            return 0, 0
        place = f"{self.place}.{field}"
        start = self.buffer.follow(position, place) + 4
        length = int(self.buffer.number(start - 4, Uint32))
        if length * width > self.buffer.blob.length - start:
            raise ProgramError(f"{place}: {length} items of {width} bytes run past the end of the buffer")
        return start, length

    def _numbers(self, field: str, kind: Kind) -> list[Any]:
        start, length = self._vector(field, kind.bytewidth)
        if length == 0:
            return []
        self.buffer.spend(length * kind.bytewidth, self.place)
        data, numpy_type = self.buffer.read(start, length * kind.bytewidth), np.dtype(N.to_numpy_type(kind))
        numbers: list[Any] = np.frombuffer(data, numpy_type.newbyteorder("<")).tolist()
        return numbers


@dataclass(slots=True)
class _Buffer:
    """The bytes of one FlatBuffer, and how many of them may still be read.

    They are read from the file in pages: the tables of a file with inline weights are a small part of it.
    """

    blob: Blob
    bytes_left: int
    pages: dict[int, memoryview] = field(default_factory=dict)

    def number(self, position: int, kind: Kind) -> Any:
        """The number at a position that has been checked."""
        within = position % _PAGE
        if within + kind.bytewidth > _PAGE:
            return kind.packer_type.unpack(self.read(position, kind.bytewidth))[0]
        return kind.packer_type.unpack_from(self._page(position // _PAGE), within)[0]

    def read(self, position: int, length: int) -> memoryview:
        """Bytes that have been checked to be there."""
        within = position % _PAGE
        if within + length > _PAGE:
            return self.blob.region(position, length)
        return self._page(position // _PAGE)[within : within + length]

    def _page(self, number: int) -> memoryview:
        page = self.pages.get(number)
        if page is None:
            start = number * _PAGE
            page = self.pages[number] = self.blob.region(start, min(_PAGE, self.blob.length - start))
        return page

    def follow(self, position: int, place: str) -> int:
        """What the offset at a checked `position` points at: a place with room for at least 4 bytes."""
        offset = int(self.number(position, Uint32))
        if offset == 0 or position + offset > self.blob.length - 4:
            raise ProgramError(f"{place}: offset {offset} at byte {position} does not point into the buffer")
        return position + offset

    def spend(self, count: int, place: str) -> None:
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise ProgramError(f"{place}: the file refers to the same data too often to be a real program")


def _table_at(buffer: _Buffer, position: int, fields: Fields, place: str) -> FlatTable:
    """The table at a position that `follow` has checked."""
    buffer.spend(4, place)
    vtable = position - int(buffer.number(position, Int32))
    if not 0 <= vtable <= buffer.blob.length - 4:
        raise ProgramError(f"{place}: the vtable at byte {vtable} is outside the buffer")
    vtable_size = int(buffer.number(vtable, Uint16))
    size = int(buffer.number(vtable + 2, Uint16))
    if vtable_size < 4 or vtable_size % 2 or vtable + vtable_size > buffer.blob.length:
        raise ProgramError(f"{place}: a vtable of {vtable_size} bytes at byte {vtable} is not possible")
    if size < 4 or position + size > buffer.blob.length:
        raise ProgramError(f"{place}: a table of {size} bytes at byte {position} is not possible")
    return FlatTable(fields, place, buffer, position, size, vtable, vtable_size)
