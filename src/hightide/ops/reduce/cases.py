"""The cases of the reduce ops; see `hightide.ops.case`."""

from __future__ import annotations

from hightide.ops.case import Case, In, x3

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
]
