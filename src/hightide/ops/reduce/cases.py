"""The cases of the reduce ops; see `hightide.ops.case`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from hightide.ops.case import Case, In, x3


def rarely(odd: float, dims: tuple[int | str, ...], dtype: str) -> In:
    """An input of which one in a hundred is `odd`, 0 or 1, and the others are the other."""

    def make(rng: np.random.Generator, sizes: Mapping[str, int]) -> np.ndarray:
        live = tuple(sizes[d] if isinstance(d, str) else d for d in dims)
        return np.where(rng.random(live) < 0.01, odd, 1 - odd).astype(dtype)

    return In(dims, dtype, make=make)


CASES = [
    # reductions
    Case("sum_last", "aten.sum.dim_IntList", (x3, [-1], False)),
    Case("sum_live", "aten.sum.dim_IntList", (x3, [1], True)),
    Case("sum_two", "aten.sum.dim_IntList", (In(("B", "S", 5, "T")), [0, 2], False)),
    Case("sum_all", "aten.sum.dim_IntList", (In(("B", "S", 37)), [], True), tolerance=1e-5),
    Case("sum_ints", "aten.sum.dim_IntList", (In(("S", 5), "int32", -9, 9), None, False), out="int32"),
    Case("sum_bools", "aten.sum.dim_IntList", (In(("S", 30), "bool"), [-1], True), out="int32"),
    Case("sum_bytes", "aten.sum.dim_IntList", (In(("S", 5), "int8", -99, 99), [0], False), out="int32"),
    Case("sum_scalar", "aten.sum.dim_IntList", (In(()), [0], False)),
    Case("mean", "aten.mean.dim", (In(("B", "S", 300)), [2], True), tolerance=1e-5),
    Case("mean_image", "aten.mean.dim", (In(("B", 4, "S", "T")), [-1, -2], True), empty=False),
    Case("amax", "aten.amax.default", (In(("S", 130)), [-1], False)),
    Case("amax_live", "aten.amax.default", (x3, [1], False), empty=False),
    Case("amax_outer", "aten.amax.default", (In(("S", 1030)), [0], True), empty=False),
    Case("amin", "aten.amin.default", (In(("B", "S", 5, "T")), [0, 2], True)),
    Case("amin_ints", "aten.amin.default", (In(("S", 30), "int32", -99, 99), [-1], True), out="int32"),
    Case("max_all", "aten.max.default", (In(("B", "S", 17)),), empty=False),
    Case("min_all", "aten.min.default", (In(("S", "T"), "int32", -99, 99),), out="int32", empty=False),
    Case("argmax", "aten.argmax.default", (In(("S", 500)), -1, False), out="int32"),
    Case("argmax_ties", "aten.argmax.default", (In(("S", 90), "int32", 0, 2), 1, True), out="int32"),
    Case("argmin_ties", "aten.argmin.default", (In(("S", 90, "T"), "int32", 0, 2), -2, False), out="int32"),
    Case("argmax_live", "aten.argmax.default", (x3, 1, False), out="int32", empty=False),
    Case("argmin_all", "aten.argmin.default", (x3, None, False), out="int32", empty=False),
    # the rest of the catalogue
    Case("sum_whole", "aten.sum.default", (In(("B", "S", 37)),), tolerance=1e-5),
    Case("mean_whole", "aten.mean.default", (x3,), tolerance=1e-5, empty=False),
    # two results, products, truths, variances
    Case("max_dim", "aten.max.dim", (In(("S", 130)), -1), out=("float32", "int32")),
    Case("max_dim_ties", "aten.max.dim", (In(("B", 90, "S"), "int32", 0, 2), 1, True), out=("int32", "int32")),
    Case("max_dim_live", "aten.max.dim", (In(("B", "S", 19)), -2, False), out=("float32", "int64"), empty=False),
    Case("max_dim_bytes", "aten.max.dim", (In(("S", 7), "int8", -99, 99), 1, False), out=("int8", "int32")),
    Case("min_dim", "aten.min.dim", (In(("S", 300)), 1, True), out=("float32", "int32")),
    Case("min_dim_bools", "aten.min.dim", (In(("S", 5, "T"), "bool"), 1), out=("bool", "int32")),
    Case("min_dim_scalar", "aten.min.dim", (In(()), 0), out=("float32", "int32")),
    Case("amax_bytes", "aten.amax.default", (In(("S", 41), "int8", -99, 99), [-1], False), out="int8"),
    Case("prod", "aten.prod.dim_int", (In(("S", 30), low=0.8, high=1.25), -1), tolerance=1e-5),
    Case("prod_live", "aten.prod.dim_int", (In(("B", "S", 7), low=-1.3, high=1.3), 1, True), tolerance=1e-5),
    Case("prod_ints", "aten.prod.dim_int", (In((5, "S"), "int32", -7, 7), 0, False), out="int32"),
    Case("prod_bools", "aten.prod.dim_int", (In(("S", 3), "bool"), 1, False), out="int32"),
    Case("prod_whole", "aten.prod.default", (In(("B", "S"), low=0.8, high=1.25),), tolerance=1e-5),
    Case("any", "aten.any.dim", (In(("S", 3), "bool"), -1, False), out="bool"),
    Case("any_live", "aten.any.dim", (rarely(1, ("B", "S", 5), "int32"), 1, True), out="bool"),
    Case("any_ints", "aten.any.dims", (In(("B", "S", 3), "int32", -1, 1), [0, 2], False), out="bool"),
    Case("any_long", "aten.any.dims", (rarely(1, ("B", "S", 301), "float32"), [2], False), out="bool"),
    Case("any_all_dims", "aten.any.dims", (In(("S", 3), "int8", 0, 1), None, True), out="bool"),
    Case("any_whole", "aten.any.default", (rarely(1, ("S", "T"), "bool"),), out="bool"),
    Case("any_floats", "aten.any.default", (rarely(1, ("S", 7), "float32"),), out="bool"),
    Case("all", "aten.all.dim", (In(("B", "S", 3), "bool"), -1), out="bool"),
    Case("all_live", "aten.all.dim", (In(("S", 30), "int32", 0, 9), 0, True), out="bool"),
    Case("all_middle", "aten.all.dim", (rarely(0, ("S", 31, 3), "int32"), -2, False), out="bool"),
    Case("all_whole", "aten.all.default", (rarely(0, ("S", "T"), "int8"),), out="bool"),
    Case("all_floats", "aten.all.default", (rarely(0, ("B", "S"), "float32"),), out="bool"),
    Case("var", "aten.var.correction", (In(("S", 300)), [-1]), tolerance=1e-5),
    Case("var_far", "aten.var.correction", (In(("B", "S", 50), low=9999, high=10001), [2], 1, True), tolerance=1e-5),
    Case("var_live", "aten.var.correction", (In(("S", "T", 11)), [0, 1], 0, True), tolerance=1e-5, empty=False),
    Case("var_whole", "aten.var.correction", (In(("S", 37), low=7, high=9), None, 0.5), tolerance=1e-5, empty=False),
    Case("var_dim", "aten.var.dim", (In(("S", 5, "T", 7)), [1, 3], True, True), tolerance=1e-5),
    Case("var_dim_biased", "aten.var.dim", (In((9, "S")), [0], False), tolerance=1e-5),
    Case("var_mean", "aten.var_mean.correction", (In(("S", 300)), [-1]), out=("float32",) * 2, tolerance=1e-5),
    Case(
        "var_mean_live",
        "aten.var_mean.correction",
        (In(("S", "T", 11)), [0, 1], 0, True),
        out=("float32", "float32"),
        tolerance=1e-5,
        empty=False,
    ),
    *(
        Case(f"cdist_{p:g}", "aten._cdist_forward.default", (In(("B", "S", 7)), In(("B", "T", 7)), p), tolerance=1e-5)
        for p in (0.0, 1.0, 2.0, 3.5, math.inf)
    ),
    Case("cdist_broadcast", "aten._cdist_forward.default", (In(("B", 1, "S", 3)), In((2, "T", 3)), 2.0, 0)),
    Case("pdist", "aten._pdist_forward.default", (In((11, "S")), 2.0), tolerance=1e-5),
    Case("pdist_live", "aten._pdist_forward.default", (In(("S", 5)), 1.5), tolerance=1e-5),
]
