"""Layers: the part of a list that is one pattern many times over."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

LEAST = 2  # layers
LEAST_PERIOD = 4  # calls of a layer: fewer are not one
COVERED = 0.4  # of the list, at least: what repeats less is not what a model is made of
NEARLY = 0.9  # of the longest repetition: a shorter pattern is preferred


@dataclass(frozen=True)
class Repetition:
    """`count` times `period` items, from `start` on."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.count

    def layer(self, index: int) -> int | None:
        """The layer that an item is in."""
        return (index - self.start) // self.period if self.start <= index < self.end else None


def find_repeat(items: Sequence[Hashable]) -> Repetition | None:
    """The repetition that covers most of the list."""
    known: dict[Hashable, int] = {}
    keys = np.array([known.setdefault(item, len(known)) for item in items], np.int64)
    found: list[Repetition] = []
    for period in range(LEAST_PERIOD, len(keys) // LEAST + 1):
        start, length = _longest_run(keys[period:] == keys[:-period])
        count = length // period + 1
        if count >= LEAST:
            found.append(Repetition(start, period, count))
    found = [r for r in found if r.period * r.count >= COVERED * len(keys)]
    most = max((r.period * r.count for r in found), default=0)
    return next((r for r in found if r.period * r.count >= NEARLY * most), None)


def _longest_run(equal: np.ndarray) -> tuple[int, int]:
    """(start, length) of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], equal, [False]]).astype(np.int8)))
    if not edges.size:
        return 0, 0
    starts, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - starts))
    return int(starts[longest]), int(ends[longest] - starts[longest])
