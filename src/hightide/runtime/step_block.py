"""What a run is given anew: SymInts and small inputs, in one buffer, so that a step has one write.

wgpu takes a staging buffer and a copy on the GPU for every write: five of them for each token, before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from hightide.gpu.device import Device, Region, buffer_size
from hightide.gpu.recorder import Recorder
from hightide.graph.aliases import Aliases
from hightide.graph.graph import Graph
from hightide.ops.binding import mutated_ids
from hightide.wgsl.shader import SYMINT_SLOTS

SMALL_INPUT = 1 << 16  # bytes; larger inputs have buffers of their own
SYMINTS = -1  # stands for the SymInts, beside the ids of inputs
ALIGNMENT = 256  # bytes: where a binding may begin within a buffer
GAP = 1 << 12  # bytes that are written again rather than have two writes


def small_inputs(
    graph: Graph, aliases: Aliases, sizes: Mapping[int, int], apart: Collection[int] = ()
) -> dict[int, int]:
    """The inputs, of tensors of these sizes in bytes, that share the block: none is `apart`.

    No op writes them. They are no outputs, since an output may be copied to another input.
    """
    written = (id for call in graph.calls for id in mutated_ids(call))
    apart = {*apart, *(aliases.root.get(id, id) for id in (*written, *graph.outputs))}
    return {id: sizes[id] for id in graph.inputs if id in sizes and id not in apart and sizes[id] <= SMALL_INPUT}


def block_places(inputs: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """(offset, bytes) of small inputs, by value id, and of the SymInts, which end the block."""
    at, places = 0, {}
    for id, size in {**inputs, SYMINTS: 4 * SYMINT_SLOTS}.items():
        places[id] = at, buffer_size(size)
        at += -(-buffer_size(size) // ALIGNMENT) * ALIGNMENT
    return places


class StepBlock:
    """Writes what changed since the last run. The host has a copy of what the buffer holds."""

    def __init__(self, device: Device, inputs: Mapping[int, int]) -> None:
        """`inputs`: bytes of each, by value id."""
        places = block_places(inputs)
        size = sum(places[SYMINTS])
        self.device = device
        self.buffer = device.buffer(size, "STORAGE|UNIFORM|COPY_DST|COPY_SRC", "step")
        self.regions = {id: Region(self.buffer, *place) for id, place in places.items()}
        self._sizes = {**inputs, SYMINTS: 4 * SYMINT_SLOTS}
        self._held = np.zeros(size, np.uint8)
        self._known: dict[int, int] = {}  # of which the buffer holds so many bytes for certain
        self._others: set[int] = set()  # those that have something of somebody else's

    def write(self, recorder: Recorder, given: Iterable[tuple[int, np.ndarray]]) -> dict[int, int]:
        """Write what changed of these; how many bytes each of them has."""
        known, self._known = self._known, {}  # a signal's handler may raise before all is written
        changed: dict[int, int] = {}
        parts: list[tuple[int, int]] = []
        for id, array in given:
            start, size = self.regions[id].offset, array.nbytes
            end = start + size
            held = self._held[start:end]
            data = array.tobytes()
            if known.get(id, 0) >= size and held.tobytes() == data:
                continue
            held[:] = np.frombuffer(data, np.uint8)
            known[id] = max(known.get(id, 0), size)
            changed[id] = size
            if size >= self._sizes[id]:
                self._others.discard(id)
            parts.append((start, end))
        for start, end in self._joined(parts):
            recorder.write(self.buffer, start, self._held[start:end])
        self._known = known
        return changed

    def _joined(self, parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Parts that lie close, with what is between them, unless that is somebody else's."""
        joined: list[tuple[int, int]] = []
        others = [self.regions[id] for id in self._others]
        for start, end in sorted(parts):
            last = joined[-1][1] if joined else -GAP - 1
            if start - last <= GAP and not any(at < start and last < at + size for _, at, size in others):
                start = joined.pop()[0]
            joined.append((start, end))
        return joined

    def forget(self, id: int) -> None:
        """Somebody else writes to this one, if it is in the block."""
        if id in self.regions:
            self._known.pop(id, None)
            self._others.add(id)

    def forget_all(self) -> None:
        """Somebody may have written to any of them."""
        self._known.clear()

    def fill(self, word: int, keep: Collection[int]) -> None:
        """All inputs with a word, but those to `keep`."""
        self.forget_all()
        for id, region in self.regions.items():
            if id not in keep and id != SYMINTS:
                words = self._held[region.offset : region.offset + region.size].view(np.uint32)
                words[:] = word
                self.device.write(self.buffer, region.offset, words)
