"""A GGUF file as its parts, to be changed and written again; nothing is checked."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass
class Field:
    key: bytes
    kind: int
    value: bytes  # as it is written

    @classmethod
    def of(cls, key: str, value: Any) -> Field:
        return cls(key.encode(), *_encoded(value))


@dataclass
class Info:
    name: bytes
    dims: tuple[int, ...]
    kind: int
    offset: int


@dataclass
class GgufParts:
    fields: list[Field]
    infos: list[Info]
    data: bytes

    def encoded(self) -> bytes:
        out = b"GGUF" + struct.pack("<IQQ", 3, len(self.infos), len(self.fields))
        for field in self.fields:
            out += _text(field.key) + struct.pack("<I", field.kind) + field.value
        for info in self.infos:
            dims = struct.pack(f"<{len(info.dims)}Q", *(dim % 2**64 for dim in info.dims))
            out += _text(info.name) + struct.pack("<I", len(info.dims)) + dims
            out += struct.pack("<IQ", info.kind % 2**32, info.offset % 2**64)
        return out + bytes(-len(out) % 32) + self.data


def decoded(data: bytes) -> GgufParts:
    """The parts of a file that `GgufParts.encoded` wrote; struct.error, KeyError of one that is damaged too much."""
    infos, fields = struct.unpack_from("<QQ", data, 8)
    at = 24
    parts = GgufParts([], [], b"")
    for _ in range(fields):
        key, at = _read_text(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        start = at + 4
        at = _end(data, start, kind)
        parts.fields.append(Field(key, kind, data[start:at]))
    for _ in range(infos):
        name, at = _read_text(data, at)
        (rank,) = struct.unpack_from("<I", data, at)
        dims = struct.unpack_from(f"<{rank}Q", data, at + 4)
        kind, offset = struct.unpack_from("<IQ", data, at + 4 + 8 * rank)
        at += 16 + 8 * rank
        parts.infos.append(Info(name, dims, kind, offset))
    parts.data = data[-(-at // 32) * 32 :]
    return parts


def _encoded(value: Any) -> tuple[int, bytes]:
    match value:
        case bool():
            return 7, struct.pack("<?", value)
        case int():
            return 4, struct.pack("<I", value)
        case float():
            return 6, struct.pack("<f", value)
        case str():
            return 8, _text(value.encode())
        case _:
            kinds = [_encoded(item) for item in value]
            return 9, struct.pack("<IQ", kinds[0][0], len(kinds)) + b"".join(data for _, data in kinds)


def _text(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _read_text(data: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    if at + 8 + length > len(data):
        raise struct.error("a string that is longer than the file")
    return data[at + 8 : at + 8 + length], at + 8 + length


def _end(data: bytes, at: int, kind: int) -> int:
    if kind == 8:
        return _read_text(data, at)[1]
    if kind != 9:
        return at + struct.calcsize(FORMATS[kind])
    item, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if item in FORMATS:
        return at + count * struct.calcsize(FORMATS[item])
    if item != 8:
        raise struct.error("an array of what is no scalar and no string")
    for _ in range(count):
        at = _read_text(data, at)[1]
    return at
