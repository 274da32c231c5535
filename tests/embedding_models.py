"""GGUF files that say how the rows of a text are pooled, made of those that do not."""

from __future__ import annotations

import struct
from pathlib import Path


def with_pooling(source: Path, target: Path, architecture: str, pooling: int) -> Path:
    """A copy with the field `pooling_type`. What is put in is a multiple of the alignment of tensors."""
    data = source.read_bytes()
    (fields,) = struct.unpack_from("<Q", data, 16)
    added = _name(f"{architecture}.pooling_type") + struct.pack("<II", 4, pooling)
    note = _name("general.description") + struct.pack("<I", 8)
    note += _name("x" * (-(len(added) + len(note) + 8) % 32))
    target.write_bytes(data[:16] + struct.pack("<Q", fields + 2) + added + note + data[24:])
    return target


def _name(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
