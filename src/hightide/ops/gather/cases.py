"""The cases of the gather ops; see `hightide.ops.case`."""

from __future__ import annotations

from hightide.ops.case import CONTEXT, Case, In, floats, x3

CASES = [
    # tables
    Case("index_select", "aten.index_select.default", (x3, 2, In(("T",), "int32", 0, 9))),
    Case("index", "aten.index.Tensor", (floats(CONTEXT, 6), [In(("S",), "int32", -64, 63)])),
    # picking
    Case("gather", "aten.gather.default", (In(("S", 12)), 1, In(("S", 5), "int32", 0, 11))),
    Case("gather_part", "aten.gather.default", (In((7, 9, 6)), -2, In((4, "S", 5), "int32", 0, 8))),
    Case("gather_bytes", "aten.gather.default", (In((9, 7), "bool"), 0, In(("S", 7), "int32", 0, 8)), out="bool"),
    Case(
        "index_select_bytes", "aten.index_select.default", (In(("S", 9), "bool"), 1, In(("T",), "int32", 0, 8)), "bool"
    ),
    Case("index_inner", "aten.index.Tensor", (In(("S", 6, 5)), [None, In(("T", 2), "int32", -6, 5)])),
    Case(
        "index_pair",
        "aten.index.Tensor",
        (In((5, 4, "B")), [In(("S", 1), "int32", -5, 4), In(("T",), "int32", -4, 3)]),
    ),
    Case(
        "index_apart",
        "aten.index.Tensor",
        (In((5, "B", 4)), [In(("S",), "int32", -5, 4), None, In((), "int32", -4, 3)]),
    ),
]
