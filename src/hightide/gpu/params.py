"""The parameters of all dispatches: blocks of 256 bytes in one buffer, written once, equal ones shared."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np

from hightide.gpu.device import Device
from hightide.gpu.pipelines import PARAMS_SIZE
from hightide.ops.contract import Kernel

ParamValues: TypeAlias = tuple[int | float | tuple[int, ...], ...]


class ParamsFull(Exception):
    """The buffer has no place left."""


class Params:
    """`place` gives a dispatch's parameters their offset, `write` sends the blocks that are new."""

    def __init__(self, device: Device, blocks: int) -> None:
        self.device = device
        self.buffer = device.buffer(blocks * PARAMS_SIZE, "UNIFORM|COPY_DST", "parameters")
        self._data = np.zeros((blocks, PARAMS_SIZE), np.uint8)  # what the buffer holds, or will
        self._places: dict[tuple[Kernel, ParamValues], int] = {}
        self._written = 0  # blocks

    def place(self, kernel: Kernel, params: ParamValues) -> int:
        # Layers share their parameters. A kernel's parameters have fixed types, so equal ones are the same bytes.
        offset = self._places.get((kernel, params))
        if offset is None:
            block = len(self._places)
            if block == len(self._data):
                raise ParamsFull
            self._data[block] = np.frombuffer(pack_params(params), np.uint8)
            offset = self._places[kernel, params] = block * PARAMS_SIZE
        return offset

    def write(self) -> int:
        """Sends new blocks, which are neighbours, in one write; how many bytes."""
        new = self._data[self._written : len(self._places)]
        if new.size:
            self.device.write(self.buffer, self._written * PARAMS_SIZE, new)
            self._written = len(self._places)
        return new.size

    def clear(self) -> None:
        self._places.clear()
        self._written = 0

    @contextmanager
    def blank(self) -> Iterator[None]:
        """All zeros for what is submitted meanwhile: a kernel that is told of no elements returns at once."""
        held = self._data[: self._written]
        if held.size:
            self.device.write(self.buffer, 0, np.zeros_like(held))
        yield
        if held.size:
            self.device.write(self.buffer, 0, held)


def pack_params(params: Sequence[int | float | tuple[int, ...]]) -> bytes:
    """Parameters as a 256-byte block: 32-bit words; a tuple takes two `vec4`s, aligned to 16 bytes."""
    words = b""
    for param in params:
        if isinstance(param, tuple):
            words += b"\0" * (-len(words) % 16)
            words += struct.pack("<8I", *(p & 0xFFFFFFFF for p in param), *(0,) * (8 - len(param)))
        elif isinstance(param, float):
            words += struct.pack("<f", param)
        else:
            words += struct.pack("<I", param & 0xFFFFFFFF)
    assert len(words) <= PARAMS_SIZE, "a kernel's parameters exceed their block"
    return words.ljust(PARAMS_SIZE, b"\0")
