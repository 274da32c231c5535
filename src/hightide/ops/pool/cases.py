"""The cases of the pool ops; see `hightide.ops.case`."""

from __future__ import annotations

from hightide.ops.case import Case, In, image

CASES = [
    Case("avg_pool", "aten.avg_pool2d.default", (image, [3, 2], [2, 1], [1, 1], False, True, None), empty=False),
    Case("avg_pool_inside", "aten.avg_pool2d.default", (image, [3, 3], [2, 2], [1, 1], True, False, None), empty=False),
    Case("avg_pool_ceil", "aten.avg_pool2d.default", (image, [2, 3], [2, 3], [1, 1], True, True, None), empty=False),
    Case("avg_pool_divisor", "aten.avg_pool2d.default", (In(("S", 3, 5, 7)), [2, 2], [], [0, 0], False, True, 3)),
    Case("avg_pool_negative", "aten.avg_pool2d.default", (In(("S", 2, 4, 4)), [2, 3], [], [1], False, True, -2)),
    Case("adaptive_avg_pool", "aten._adaptive_avg_pool2d.default", (image, [3, 5]), empty=False),
    Case(
        "adaptive_avg_pool3d", "aten._adaptive_avg_pool3d.default", (In(("B", 3, "S", "T", 7)), [2, 3, 4]), empty=False
    ),
    Case(
        "adaptive_avg_pool3d_one", "aten._adaptive_avg_pool3d.default", (In((2, "S", 5, "T")), [1, 1, 1]), empty=False
    ),
    Case(
        "max_pool",
        "aten.max_pool2d_with_indices.default",
        (image, [3, 3], [2, 2], [1, 1], [1, 1], True),
        out=("float32", "int64"),
        empty=False,
    ),
    Case(
        "max_pool_ties",
        "aten.max_pool2d_with_indices.default",
        (In(("S", 9, 10)), [3, 2], [], [1, 1], [2, 3], False),
        out=("float32", "int64"),
        empty=False,
    ),
    Case("max_pool_values", "aten.max_pool2d.default", (image, [2, 2], [1, 2], [1, 1], [1, 1], False), empty=False),
]
