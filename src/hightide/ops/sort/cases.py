"""The cases of the sort ops; see `hightide.ops.case`."""

from __future__ import annotations

import numpy as np

from hightide.ops.case import Case, Const, In, Size, fixed, x3

FLOATS, INTS = ("float32", "int32"), ("int32", "int32")

rows = In(("S", 6), make=lambda rng, at: np.sort(rng.uniform(-3, 3, (at["S"], 6)).astype(np.float32)))
row = In(("S",), make=lambda rng, at: np.sort(rng.uniform(-3, 3, at["S"]).astype(np.float32)))
holes = In(("S", 9), make=lambda rng, at: holed(rng, at["S"]))
order = fixed(np.array([1, 3, 2, 0], np.int32))
whole = fixed(np.array([-5, -1, -1, 0, 7], np.int32))


def ordered(count: int) -> Const:
    return Const(lambda rng: np.sort(rng.uniform(-3, 3, count).astype(np.float32)))


def holed(rng: np.random.Generator, count: int) -> np.ndarray:
    """Rows of numbers, of which every other has NaN."""
    rows = rng.uniform(-3, 3, (count, 9)).astype(np.float32)
    rows[::2, 3::4] = np.nan
    return rows


CASES = [
    Case("sort", "aten.sort.default", (In(("S", 37)),), out=FLOATS),
    Case("sort_live", "aten.sort.default", (In(("B", "S", 7)), 1, True), out=("float32", "int64")),
    Case("sort_ties", "aten.sort.default", (In(("S", 90), "int32", -2, 2), -1, True), out=INTS),
    Case("sort_outer", "aten.sort.default", (In((53, "S"), "int32", -2, 2), 0, False), out=INTS),
    Case("sort_long", "aten.sort.default", (In(("B", 2501)), 1, False), out=FLOATS),
    Case("sort_bytes", "aten.sort.default", (In(("S", 5), "int8", -9, 9), -2, False), out=("int8", "int32")),
    Case("sort_bools", "aten.sort.default", (In(("S", 7), "bool"), -1, True), out=("bool", "int32")),
    Case("sort_scalar", "aten.sort.default", (In(()), -1), out=FLOATS),
    Case("topk", "aten.topk.default", (In(("S", 37)), 5), out=FLOATS),
    Case("topk_smallest", "aten.topk.default", (In(("B", 19, "S")), 7, -2, False, True), out=("float32", "int64")),
    Case("topk_ties", "aten.topk.default", (In(("S", 90), "int32", 0, 3), 17, 1, True, True), out=INTS),
    Case("topk_long", "aten.topk.default", (In(("B", 5003)), 130, -1), out=FLOATS),
    Case("topk_many", "aten.topk.default", (In(("B", 1301)), 1100, -1), out=FLOATS),
    Case("topk_bytes", "aten.topk.default", (In(("S", 9), "int8", -9, 9), 3, 1), out=("int8", "int32")),
    Case("topk_all", "aten.topk.default", (x3, Size(0, 1), 1), out=FLOATS),
    Case("topk_none", "aten.topk.default", (x3, 0, 2), out=FLOATS),
    Case("sort_stable", "aten.sort.stable", (In(("B", 19, "S"), "int32", -2, 2), True, 1, True), out=INTS),
    Case("median", "aten.median.default", (x3,), empty=False),
    Case("median_ints", "aten.median.default", (In(("S", 7), "int32", -99, 99),), out="int32", empty=False),
    Case("median_along", "aten.median.dim", (In(("S", 37)), -1), out=FLOATS),
    Case("nanmedian", "aten.nanmedian.default", (holes,), empty=False),
    Case("nanmedian_along", "aten.nanmedian.dim", (holes, 1, True), out=FLOATS),
    Case("median_live", "aten.median.dim", (In((5, "S", 3)), 1, True), out=FLOATS, empty=False),
    Case("median_bytes", "aten.median.dim", (In(("S", 6), "int8", -9, 9), 1), out=("int8", "int32")),
    Case("median_scalar", "aten.median.dim", (In(()), 0), out=FLOATS),
    Case("searchsorted", "aten.searchsorted.Tensor", (ordered(11), In(("S", 7))), out="int32"),
    Case("searchsorted_rows", "aten.searchsorted.Tensor", (rows, In(("S", 4)), False, True), out="int64"),
    Case(
        "searchsorted_by_order",
        "aten.searchsorted.Tensor",
        (fixed(np.array([3, 1, 2, 1], np.int32)), In(("S",), "int32", 0, 4), True, False, "right", order),
        out="int32",
    ),
    Case("bucketize", "aten.bucketize.Tensor", (x3, ordered(9)), out="int32"),
    Case("searchsorted_number", "aten.searchsorted.Scalar", (row, 0.5, True), out="int32"),
    Case("searchsorted_number_right", "aten.searchsorted.Scalar", (ordered(9), 0.5, True, False, "right"), out="int32"),
    Case("bucketize_number", "aten.bucketize.Scalar", (0.25, ordered(9)), out="int32"),
    Case("bucketize_number_ints", "aten.bucketize.Scalar", (2.5, whole, True, True), out="int32"),
    Case("bucketize_ints", "aten.bucketize.Tensor", (In(("S",), "int32", -9, 9), whole, True, True), out="int32"),
]
