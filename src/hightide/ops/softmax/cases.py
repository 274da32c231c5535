"""The cases of the softmax ops; see `hightide.ops.case`."""

from __future__ import annotations

from hightide.ops.case import Case, In, x3

CASES = [
    Case("softmax", "aten._softmax.default", (x3, -1, False)),
    Case("softmax_live", "aten._softmax.default", (In(("B", 2, "S", "S")), -1, False)),
    Case("softmax_middle", "aten._softmax.default", (x3, 1, False), empty=False),
    Case("log_softmax", "aten._log_softmax.default", (In(("S", 130)), -1, False)),
]
