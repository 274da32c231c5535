"""One step's rows of all sequences, as the tables that kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hightide.ops.pages.work_lists import TILE
from hightide.ops.sampling.sampling import SETTINGS

GREEDY = np.zeros(SETTINGS, np.float32)


@dataclass
class Rows:
    """What one sequence brings to a step: tokens that follow each other, from a position on."""

    tokens: Sequence[int]  # -1 - n: the n-th id that the step before chose
    position: int
    pages: Sequence[int]
    wanted: int = 1  # how many of the last rows the next ids are wanted of
    settings: Sequence[np.ndarray] = (GREEDY,)  # how each of these is chosen
    masks: Sequence[np.ndarray] = ()  # the tokens that each of these may be, a bit per token; none: any
    owner: Any = None
    strengths: np.ndarray | None = None  # how much of each adapter its rows have; None: nothing of any
    types: Sequence[int] = ()  # for an encoder: of which of two texts each row is; () for one text


@dataclass(frozen=True)
class Batch:
    """The rows of a step, in order."""

    rows: Sequence[Rows]
    logits: bool = False  # bring back logits as well

    @property
    def count(self) -> int:
        return sum(len(rows.tokens) for rows in self.rows)

    @property
    def wanted(self) -> int:
        return sum(rows.wanted for rows in self.rows)


@dataclass
class Tables:
    """The inputs of a ragged graph but for `chosen`, which stays on the device. `masks` are those that some row has."""

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    settings: list[np.ndarray] = field(default_factory=list)
    masks: list[np.ndarray] = field(default_factory=list)
    masked: list[int] = field(default_factory=list)
    singles: list[tuple[int, int, int, int]] = field(default_factory=list)
    tiles: list[tuple[int, int, int, int]] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    longest: int = 1
    adapted: list[int] = field(default_factory=list)
    strengths: list[np.ndarray] = field(default_factory=list)

    def add(self, rows: Rows, page: int, alike: bool) -> None:
        """`alike`: every row is a tile of its own, so that one kernel computes all."""
        first, count, table = len(self.tokens), len(rows.tokens), len(self.pages)
        position, end = rows.position, rows.position + count
        self.tokens += rows.tokens
        self.positions += range(position, end)
        self.places += [rows.pages[at // page] * page + at % page for at in range(position, end)]
        self.pages += rows.pages[: -(-end // page)]
        self.wanted += range(first + count - rows.wanted, first + count)
        self.settings += rows.settings[: rows.wanted]
        own = rows.masks[: rows.wanted]
        self.masked += range(len(self.masks), len(self.masks) + len(own)) if own else [-1] * rows.wanted
        self.masks += own
        self.longest = max(self.longest, end)
        if rows.strengths is not None:
            self.adapted += range(first, first + count)
            self.strengths += [rows.strengths] * count
        if alike or count == 1:
            self.singles += [(first + n, 1, position + n, table) for n in range(count)]
        else:
            for at in range(0, count, TILE):
                self.tiles.append((first + at, min(TILE, count - at), position + at, table))

    def arrays(self, table: int) -> dict[str, np.ndarray]:
        """By the names of the inputs, but for `masks`; `table` is the length of `pages`."""
        pages = np.zeros(table, np.int32)
        pages[: len(self.pages)] = self.pages
        return {
            "tokens": np.array([self.tokens], np.int32),
            "positions": np.array(self.positions, np.int32),
            "places": np.array(self.places, np.int32),
            "wanted": np.array(self.wanted, np.int32),
            "settings": np.array(self.settings, np.float32).reshape(-1, SETTINGS),
            "masked": np.array(self.masked, np.int32),
            "singles": np.array(self.singles, np.int32).reshape(-1, 4),
            "tiles": np.array(self.tiles, np.int32).reshape(-1, 4),
            "pages": pages,
            "longest": np.array([self.longest], np.int32),
            "adapted": np.array(self.adapted, np.int32),
            "strengths": np.array(self.strengths, np.float32),
        }


def tables(batch: Batch, page: int, alike: bool) -> Tables:
    made = Tables()
    for rows in batch.rows:
        made.add(rows, page, alike)
    return made
