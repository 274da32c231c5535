"""Tables of a ragged batch that fit each other, for cases and checks of the ops on pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hightide.errors import InputError

TILE = 16  # rows of a tile, at most
EARLIER = 5  # keys before the first row


@dataclass(frozen=True)
class SequenceRows:
    """Rows of one sequence in a step."""

    rows: int
    position: int

    @property
    def keys(self) -> int:
        return self.position + self.rows


@dataclass(frozen=True)
class Ragged:
    """The tables of a step; see `hightide.ops.pages.paged_attention`."""

    singles: np.ndarray
    tiles: np.ndarray
    pages: np.ndarray
    positions: np.ndarray
    places: np.ndarray
    own: np.ndarray  # the rows of the pool that hold keys of some sequence


def ragged(pieces: Sequence[SequenceRows], page: int, capacity: int) -> Ragged:
    """Pieces end to end, each in pages of its own from anywhere in a pool of `capacity` rows."""
    needed = [-(-piece.keys // page) for piece in pieces]
    if sum(needed) * page > capacity:
        raise InputError(f"{sum(needed)} pages of {page} rows are more than {capacity} rows")
    pages = np.random.default_rng(capacity).permutation(capacity // page)[: sum(needed)]
    singles: list[tuple[int, ...]] = []
    tiles: list[tuple[int, ...]] = []
    positions, places, own = [], [], []
    row = table = 0
    for piece, count in zip(pieces, needed, strict=True):
        for done in range(0, piece.rows, TILE):
            rows = min(TILE, piece.rows - done)
            (singles if rows == 1 else tiles).append((row + done, rows, piece.position + done, table))
        at = (pages[table : table + count, None] * page + np.arange(page)).reshape(-1)[: piece.keys]
        positions.append(np.arange(piece.position, piece.keys))
        places.append(at[piece.position :])
        own.append(at)
        row, table = row + piece.rows, table + count
    return Ragged(
        _table(singles).reshape(-1, 4),
        _table(tiles).reshape(-1, 4),
        _table(pages),
        *map(_joined, (positions, places, own)),
    )


def one_sequence(rows: int, counts: tuple[int, int, int], page: int, capacity: int) -> dict[str, np.ndarray]:
    """Tables of given lengths (singles, tiles, pages) for rows of one sequence; some are listed twice if need be."""
    singles, tiles, pages = counts
    tokens = -(-max(rows - singles, 1) // max(tiles, 1))
    keys = rows + EARLIER
    if tokens > TILE or keys > min(pages * page, capacity) or rows > singles + tokens * tiles:
        raise InputError(f"{rows} rows do not fit tables of {singles}, {tiles} and {pages}")
    order = np.random.default_rng(rows).permutation(capacity // page)
    table = np.resize(order, pages)
    place = (table[:, None] * page + np.arange(page)).reshape(-1)[EARLIER:keys]
    first = [min(n, rows - 1) for n in range(singles)]
    starts = [max(0, min(singles + n * tokens, rows - tokens)) for n in range(tiles)]
    work = {
        "singles": [(n, 1, EARLIER + n, 0) for n in first],
        "tiles": [(n, min(tokens, rows), EARLIER + n, 0) for n in starts],
    }
    return {
        **{name: _table(tiles).reshape(-1, 4) for name, tiles in work.items()},
        "pages": _table(table),
        "places": _table(place),
    }


def each_alone(rows: int, counts: tuple[int, int, int], page: int, capacity: int) -> dict[str, np.ndarray]:
    """The same for rows of as many sequences, each in one page: all are singles."""
    pages, keys = counts[2], min(page - 1, EARLIER)  # before each row
    order = np.random.default_rng(rows).permutation(capacity // page)
    if rows > min(pages, len(order)):
        raise InputError(f"{rows} sequences do not fit a table of {pages} pages, in a pool of {len(order)}")
    table = np.resize(order, pages)
    return {
        "singles": _table([(n, 1, keys, n) for n in range(rows)]).reshape(-1, 4),
        "tiles": np.zeros((0, 4), np.int32),
        "pages": _table(table),
        "places": _table(table[:rows] * page + keys),
        "positions": _table([keys] * rows),
    }


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int32), *parts]).astype(np.int32)


def _table(numbers: object) -> np.ndarray:
    return np.array(numbers, np.int32)
