"""The cases of the sort ops; see `hightide.ops.case`."""

from __future__ import annotations

from hightide.ops.case import Case, In, Size, x3

FLOATS, INTS = ("float32", "int32"), ("int32", "int32")

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
]
