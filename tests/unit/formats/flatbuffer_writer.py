"""Writes FlatBuffers for the tests, hostile ones included: what a file must not say, an exporter cannot write."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flatbuffers

PROGRAMS = Path(__file__).parents[2] / "conformance"  # programs made by ExecuTorch's exporter


@dataclass(frozen=True)
class Number:
    kind: Any  # of flatbuffers.number_types
    value: float


@dataclass(frozen=True)
class Numbers:
    kind: Any
    values: Sequence[float]


class TableSpec:
    """A table to write: scalars as Number, vectors as Numbers, bytes or lists of tables, strings, tables.

    A table object used twice is written once and referred to twice.
    """

    def __init__(self, fields: Sequence[str], **values: Any) -> None:
        self.fields = fields
        self.values = values


def encode(root: TableSpec, identifier: bytes) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(_write(builder, root, {}), identifier)
    return bytes(builder.Output())


def delegate_data(root: TableSpec, magics: tuple[bytes, bytes], raw: bytes = b"") -> bytes:
    """The data of a delegate, with the magics of its header and its FlatBuffer."""
    flatbuffer = encode(root, magics[1])
    header = struct.pack("<4s4sHIIIQ", b"", magics[0], 30, 32, len(flatbuffer), 32 + len(flatbuffer), len(raw))
    return header + b"\0\0" + flatbuffer + raw


def _write(builder: Any, item: Any, written: dict[int, int]) -> int:
    """The offset of an item that is not inline."""
    if id(item) not in written:
        written[id(item)] = _write_new(builder, item, written)
    return written[id(item)]


def _write_new(builder: Any, item: Any, written: dict[int, int]) -> int:
    if isinstance(item, str):
        return int(builder.CreateString(item))
    if isinstance(item, bytes):
        return int(builder.CreateByteVector(item))
    if isinstance(item, Numbers):
        builder.StartVector(item.kind.bytewidth, len(item.values), item.kind.bytewidth)
        for value in reversed(item.values):
            builder.Prepend(item.kind, value)
        return int(builder.EndVector())
    if isinstance(item, list):
        offsets = [_write(builder, entry, written) for entry in item]
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())
    offsets_by_field = {
        field: _write(builder, value, written) for field, value in item.values.items() if not isinstance(value, Number)
    }
    builder.StartObject(len(item.fields))
    for field, value in item.values.items():
        if isinstance(value, Number):
            builder.Prepend(value.kind, value.value)
        else:
            builder.PrependUOffsetTRelative(offsets_by_field[field])
        builder.Slot(item.fields.index(field))
    return int(builder.EndObject())
