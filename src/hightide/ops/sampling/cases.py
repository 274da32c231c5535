"""The cases of the sampling ops; see `hightide.ops.case`."""

from __future__ import annotations

import numpy as np

from hightide.ops.case import Case, Const, In, fixed


def settings(*values: float) -> Const:
    """Temperature, top-k, top-p, min-p, draw."""
    return fixed(np.array(values, np.float32))


CASES = [
    Case("sample_greedy", "hightide.sample.default", (In((1, "S", 300)), settings(0, 0, 1, 0, 0.5)), out="int32"),
    Case("sample_one_of_one", "hightide.sample.default", (In(("S", 70)), settings(0.75, 1, 1, 0, 0.5)), out="int32"),
    Case(
        "sample_filtered", "hightide.sample.default", (In(("S", 300)), settings(1, 40, 0.875, 0.0625, 0.375)), "int32"
    ),
]
