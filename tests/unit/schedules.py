"""The schedules of tests/conformance: steps with their inputs and the outputs of the eager model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

PROGRAMS = Path(__file__).parents[1] / "conformance"


def steps(name: str) -> Iterator[tuple[str, list[np.ndarray], list[np.ndarray]]]:
    """(method, inputs, expected outputs), to run in order on one session."""
    methods = json.loads((PROGRAMS / "programs.json").read_text())[name]["steps"]
    with np.load(PROGRAMS / f"{name}.npz") as arrays:
        for n, method in enumerate(methods):
            yield method, _numbered(arrays, f"{n}.in"), _numbered(arrays, f"{n}.out")


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference, relative to the range of what is wanted."""
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, got.dtype, want.shape, want.dtype)
    if not want.size:
        return 0.0
    difference = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
    return float(difference / max(np.ptp(want.astype(np.float64)), 1e-9))


def _numbered(arrays: np.lib.npyio.NpzFile, prefix: str) -> list[np.ndarray]:
    found = []
    while f"{prefix}{len(found)}" in arrays:
        found.append(arrays[f"{prefix}{len(found)}"])
    return found
