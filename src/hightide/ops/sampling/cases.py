"""The cases of the sampling ops; see `hightide.ops.case`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hightide.ops.case import Case, Const, In, fixed


def settings(*values: float) -> Const:
    """Temperature, top-k, top-p, min-p, draw."""
    return fixed(np.array(values, np.float32))


def settings_by_row(rng: np.random.Generator, sizes: Mapping[str, int]) -> np.ndarray:
    """Those of the other cases in turn, and a temperature alone."""
    kinds = [(0, 0, 1, 0, 0.5), (0.75, 1, 1, 0, 0.5), (1, 40, 0.875, 0.0625, 0.375), (1, 0, 1, 0, 0.375)]
    return np.array([kinds[n % 4] for n in range(sizes["S"])], np.float32).reshape(-1, 5)


def masks(rng: np.random.Generator) -> np.ndarray:
    """Of 300 tokens: any, one only, a few, none; with bits beyond the last."""
    rows = rng.integers(-(1 << 31), 1 << 31, (4, 10)).astype(np.int32)
    rows[1] = 0
    rows[1, 7] = 1 << 30
    rows[2] &= rows[0] & rng.integers(-(1 << 31), 1 << 31, 10).astype(np.int32)
    rows[3, :9] = 0
    rows[3, 9] = -1 << 12  # 300 = 9 * 32 + 12
    return rows


def masked_by_row(rng: np.random.Generator, sizes: Mapping[str, int]) -> np.ndarray:
    """Every mask, and none."""
    return np.array([n % 5 - 1 for n in range(sizes["S"])], np.int32)


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
    Case(
        "sample_masked",
        "hightide.sample.default",
        (
            In((1, "S", 300)),
            In(("S", 5), make=settings_by_row, low=0, high=1),
            Const(masks),
            In(("S",), "int32", make=masked_by_row, low=-1, high=3),
        ),
        out="int32",
    ),
]
