"""Compares two arrays: statistics of the error, and which elements are beyond a tolerance.

Floats are judged row by row: an error is relative to the largest value of its row, so that one large row (the first
token of a language model) does not hide errors in the others. Integers must be equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

ROW = 16  # elements that a row has at least, unless the array is smaller: single elements cancel to anything
DENORMAL = 2.0**-126  # GPUs may take what is smaller for 0


@dataclass(frozen=True)
class Errors:
    """What a comparison found; relative errors are of a row's largest value."""

    count: int  # elements compared
    bad: int  # of them beyond the tolerance
    max_abs: float
    max_rel: float  # inf where one side is not finite and the other is
    rms: float  # of the difference, relative to that of what was expected
    worst: tuple[int, ...] | None  # index of the largest relative error
    got: float  # there
    want: float
    nan: tuple[int, int]  # NaNs got, expected
    inf: tuple[int, int]
    box: tuple[tuple[int, int], ...] = ()  # the range of the bad elements in each dim, ends included

    @property
    def exact(self) -> bool:
        return self.max_rel == 0 and not self.bad


def compare(got: np.ndarray, want: np.ndarray, tolerance: float, allowed: np.ndarray | None = None) -> Errors:
    """`got` beside `want`. `allowed` are differences that are accepted whatever the tolerance says, by element."""
    if not want.size:
        return Errors(0, 0, 0.0, 0.0, 0.0, None, 0.0, 0.0, (0, 0), (0, 0))
    g, w = got.astype(np.float64).reshape(-1), want.astype(np.float64).reshape(-1)
    with np.errstate(all="ignore"):
        difference = np.abs(g - w)
    same = (g == w) | (np.isnan(g) & np.isnan(w))
    difference[same] = 0
    difference[np.isnan(difference)] = np.inf  # one side only is NaN, or both are infinities of different signs
    if want.dtype.kind == "f":
        scale = row_scale(w, want.shape)
        relative = np.divide(difference, scale, out=np.full_like(difference, np.inf), where=scale > 0)
        relative[(difference <= DENORMAL) | same] = 0
    else:
        relative = np.where(same, 0.0, np.inf)
    bad = relative > tolerance
    if allowed is not None:
        bad &= ~(difference <= allowed.reshape(-1))
    at = int(np.lexsort((difference, relative * 1.0, bad))[-1]) if bad.any() else int(relative.argmax())
    finite = np.isfinite(difference)
    spread = math.sqrt(float(np.mean(np.square(w[finite])))) if finite.any() else 0.0
    off = math.sqrt(float(np.mean(np.square(difference[finite])))) if finite.any() else 0.0
    return Errors(
        count=want.size,
        bad=int(bad.sum()),
        max_abs=float(difference.max()),
        max_rel=float(relative.max()),
        rms=off / spread if spread else off,
        worst=tuple(int(i) for i in np.unravel_index(at, want.shape)) if relative[at] else None,
        got=float(g[at]),
        want=float(w[at]),
        nan=(int(np.isnan(g).sum()), int(np.isnan(w).sum())),
        inf=(int(np.isinf(g).sum()), int(np.isinf(w).sum())),
        box=_box(bad.reshape(want.shape)),
    )


def row_scale(flat: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """For each element the largest finite magnitude in its row: the last dims that have at least ROW elements."""
    return _row_max(np.where(np.isfinite(flat), np.abs(flat), 0.0), dims)


def row_difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """For each element the largest finite difference in its row."""
    with np.errstate(all="ignore"):
        difference = np.abs(one.astype(np.float64) - other.astype(np.float64)).reshape(-1)
    return _row_max(np.where(np.isfinite(difference), difference, 0.0), one.shape)


def _row_max(flat: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    width = 1
    for size in reversed(dims):
        width *= size
        if width >= ROW:
            break
    return np.repeat(flat.reshape(-1, width).max(axis=1), width)


def _box(bad: np.ndarray) -> tuple[tuple[int, int], ...]:
    if not bad.any():
        return ()
    return tuple((int(at.min()), int(at.max())) for at in np.nonzero(bad)) if bad.ndim else ()
