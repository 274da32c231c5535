"""The cases of the scan ops; see `hightide.ops.case`."""

from __future__ import annotations

from hightide.ops.case import Case, In, x3

CASES = [
    Case("cumsum", "aten.cumsum.default", (In(("S", 301)), -1), tolerance=1e-5),
    Case("cumsum_live", "aten.cumsum.default", (x3, 1, None), tolerance=1e-5),
    Case("cumsum_outer", "aten.cumsum.default", (In(("S", 1030)), 0), tolerance=1e-5),
    Case("cumsum_ints", "aten.cumsum.default", (In(("B", 37, "S"), "int32", -99, 99), -2), out="int32"),
    Case("cumsum_bools", "aten.cumsum.default", (In(("S", 29), "bool"), 1), out="int64"),
    Case("cumsum_bytes", "aten.cumsum.default", (In((3, "S"), "int8", -99, 99), 1), out="int32"),
    Case("cumsum_mixed", "aten.cumsum.default", (In(("S", 5), "int32", -9, 9), 0)),
    Case("cumsum_scalar", "aten.cumsum.default", (In(()), 0)),
    Case("cumprod", "aten.cumprod.default", (In(("S", 301), low=0.95, high=1.05), -1), tolerance=2e-5),
    Case("cumprod_live", "aten.cumprod.default", (x3, 1, None), tolerance=1e-5),
    Case("cumprod_ints", "aten.cumprod.default", (In(("B", 17, "S"), "int32", -2, 2), -2), out="int32"),
    Case("cumprod_bools", "aten.cumprod.default", (In(("S", 29), "bool"), 1), out="int64"),
]
