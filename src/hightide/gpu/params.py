"""The parameters of all dispatches: 256-byte blocks in one buffer. Each is written once, equal ones are shared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from hightide.gpu.device import Device
from hightide.wgsl.shader import PARAMS_SIZE, Interface, ParamValues


class ParamsFull(Exception):
    """The buffer has no room left."""


class Params:
    """`place` gives a dispatch's parameters their offset, `write` sends the blocks that are new."""

    def __init__(self, device: Device, blocks: int) -> None:
        self.device = device
        self.buffer = device.buffer(blocks * PARAMS_SIZE, "UNIFORM|COPY_DST", "parameters")
        self._data = np.zeros((blocks, PARAMS_SIZE), np.uint8)  # what the buffer holds, or will
        self._places: dict[tuple[Interface, ParamValues], int] = {}
        self._written = 0  # blocks
        self._blank = False  # the buffer holds zeros, or may

    def place(self, interface: Interface, params: ParamValues) -> int:
        # Layers share their parameters. A kernel's parameters have fixed types, so equal ones are the same bytes.
        offset = self._places.get((interface, params))
        if offset is None:
            block = len(self._places)
            if block == len(self._data):
                raise ParamsFull
            self._data[block] = np.frombuffer(interface.pack(params), np.uint8)
            offset = self._places[interface, params] = block * PARAMS_SIZE
        return offset

    def write(self) -> int:
        """Send the new blocks, which are neighbours, in one write. Returns the number of bytes."""
        self.restore()
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
        """Set all parameters to zero for what is submitted meanwhile: a kernel without elements returns at once."""
        self._blank = True
        if self._written:
            self.device.write(self.buffer, 0, np.zeros_like(self._data[: self._written]))
        yield
        self.restore()

    def restore(self) -> None:
        """Write again what was blanked: also after an exception that a signal raised in between."""
        if self._blank:
            if self._written:
                self.device.write(self.buffer, 0, self._data[: self._written])
            self._blank = False
