"""The cases of the sampling ops; see `hightide.ops.case`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hightide.ops.case import Case, Const, In, fixed


def settings(*values: float) -> Const:
    """Temperature, top-k, top-p, min-p, draw."""
    return fixed(np.array(values, np.float32))


def settings_by_row(rng: np.random.Generator, sizes: Mapping[str, int]) -> np.ndarray:
    """Those of the other cases in turn."""
    kinds = [(0, 0, 1, 0, 0.5), (0.75, 1, 1, 0, 0.5), (1, 40, 0.875, 0.0625, 0.375)]
    return np.array([kinds[n % 3] for n in range(sizes["S"])], np.float32).reshape(-1, 5)


CASES = [
    Case("sample_greedy", "hightide.sample.default", (In((1, "S", 300)), settings(0, 0, 1, 0, 0.5)), out="int32"),
    Case("sample_one_of_one", "hightide.sample.default", (In(("S", 70)), settings(0.75, 1, 1, 0, 0.5)), out="int32"),
    Case(
        "sample_filtered", "hightide.sample.default", (In(("S", 300)), settings(1, 40, 0.875, 0.0625, 0.375)), "int32"
    ),
    Case(
        "sample_by_row",
        "hightide.sample.default",
        (In((1, "S", 300)), In(("S", 5), make=settings_by_row, low=0, high=1)),
        out="int32",
    ),
]
