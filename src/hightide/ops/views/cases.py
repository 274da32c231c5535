"""The cases of the views ops; see `hightide.ops.case`."""

from __future__ import annotations

from hightide.ops.case import Case, In, Size, x2, x3

CASES = [
    Case("view_merge", "aten.view_copy.default", (x3, [-1, 10])),
    Case("view_symint", "aten.view_copy.default", (In((1, "S", 12)), [1, Size(0, 1), 3, 4])),
    Case("view_two_live", "aten.view_copy.default", (x3, [Size(0, 1), Size(0, 0), 10]), empty=False),
    Case("view_minus_one", "aten.view_copy.default", (In(("S", 4, 3)), [Size(0, 0), -1]), empty=False),
    Case("squeeze", "aten.squeeze_copy.dims", (In(("S", 1, 5, 1)), [1, 3])),
    Case("squeeze_live", "aten.squeeze_copy.dims", (In(("S", 1, 5)), [0, 1])),
    Case("unsqueeze", "aten.unsqueeze_copy.default", (x2, -1)),
    Case("clone", "aten.clone.default", (x3, None)),
    Case("conj_of_reals", "aten._conj_physical.default", (x2,)),
    Case("host_to_device", "et_copy._h2d_copy.default", (x3,)),
]
