"""The cases of the fill ops; see `hightide.ops.case`."""

from __future__ import annotations

from hightide.ops.case import Case, In, Size, x2, x3

CASES = [
    # made from nothing
    Case("full", "aten.full.default", ([Size(2, 0), 3], 2.5, x2)),
    Case("zeros_like", "aten.zeros_like.default", (x3,)),
    Case("arange", "aten.arange.start_step", (0, Size(3, 0), 1, x2), out="int32"),
    # made from nothing, and tables of positions
    Case("full_bools", "aten.full.default", ([Size(2, 0), 3], True, x2), out="bool"),
    Case("ones_like_bytes", "aten.ones_like.default", (In(("S", 3), "int8"),), out="int8"),
    Case("arange_floats", "aten.arange.start_step", (1.5, 7, 0.7)),
    Case("grid_priors", "et_vk.grid_priors.default", (In((1, "B", "S", "T")), 8, 0.5)),
    # the rest of the catalogue
    Case("zeros", "aten.zeros.default", ([Size(1, 0), 3], x2)),
    Case("ones", "aten.ones.default", ([2, Size(1, 0)], x2), out="int32"),
    Case("full_like", "aten.full_like.default", (x3, -1.5)),
    Case("fill", "aten.fill.Scalar", (x3, 2.5)),
    Case("fill_bytes", "aten.fill.Scalar", (In(("S", 3), "uint8", 0, 9), 7), out="uint8"),
    Case("scalar_tensor", "aten.scalar_tensor.default", (2.5,)),
    Case("arange_end", "aten.arange.default", (7,), out="int32"),
    Case("arange_start", "aten.arange.start", (3, 9.5)),
    Case("empty", "aten.empty.default", ([Size(1, 0), 3], x2)),
    Case("empty_ordered", "dim_order_ops._empty_dim_order.default", ([2, Size(1, 0)], x2), out="int32"),
]
