"""Constants as a stream of bytes in the order that kernels read them, cut into files named by what is in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from hightide.graph.blob import Zeros
from hightide.graph.values import TensorValue
from hightide.ops.storage import gpu_bytes
from hightide.runtime.upload import pieces

SHARD = 16 << 20  # bytes, at most: what a tab that is closed has to download again


@dataclass
class WeightShards:
    """Where each constant is in the stream: `add` it, then `write` all."""

    shard: int = SHARD
    length: int = 0  # of the stream
    _places: dict[Any, int] = field(default_factory=dict)
    _values: list[tuple[int, TensorValue]] = field(default_factory=list)

    def add(self, value: TensorValue) -> list[int] | None:
        """[offset, bytes] in the stream; None for zeros, which a buffer has from the start."""
        if isinstance(value.constant, Zeros):
            return None
        size = gpu_bytes(value.dtype, value.dims)
        key = value.constant, value.stored_dtype, value.dtype, value.dims
        if key not in self._places:
            self._places[key] = self.length
            self._values.append((self.length, value))
            self.length += -(-size // 16) * 16
        return [self._places[key], size]

    def write(self, folder: Path) -> list[dict[str, Any]]:
        """The shards, in order: {"file", "bytes", "sha256"}."""
        made = []
        unnamed = folder / "unnamed.part"
        with open(unnamed, "w+b") as file:
            file.truncate(self.length)
            for at, value in self._values:
                for offset, data in pieces(value):
                    file.seek(at + offset)
                    file.write(data.tobytes())
            for first in range(0, self.length, self.shard):
                made.append(self._cut(file, first, min(self.shard, self.length - first), folder))
        os.unlink(unnamed)
        return made

    def _cut(self, file: IO[bytes], first: int, length: int, folder: Path) -> dict[str, Any]:
        digest = sha256()
        for data in _blocks(file, first, length):
            digest.update(data)
        name = f"weights-{digest.hexdigest()[:16]}.bin"
        with open(folder / name, "wb") as out:
            for data in _blocks(file, first, length):
                out.write(data)
        return {"file": name, "bytes": length, "sha256": digest.hexdigest()}


def _blocks(file: IO[bytes], first: int, length: int, step: int = 1 << 20) -> Iterator[bytes]:
    file.seek(first)
    for done in range(0, length, step):
        yield file.read(min(step, length - done))
