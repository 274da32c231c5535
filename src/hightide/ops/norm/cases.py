"""The cases of the norm ops; see `hightide.ops.case`."""

from __future__ import annotations

from hightide.ops.case import Case, In, Size, floats

CASES = [
    # norm and softmax
    Case("rms_norm", "et_vk.rms_norm.default", (In((1, "S", 64)), floats(64), 1e-5)),
    Case("rms_norm_odd", "et_vk.rms_norm.default", (In(("B", "S", 67)), floats(67), 1e-6)),
    Case("rms_norm_wide", "et_vk.rms_norm.default", (In(("S", 1028)), floats(1028), 1e-6)),
    Case("add_norm", "hightide.add_norm.default", (In((1, "S", 64)), In((1, "S", 64)), floats(64), 1e-5)),
    Case(
        "add_norm_of_norm",
        "hightide.add_norm.default",
        (In(("B", "S", 64)), In(("B", "S", 64)), floats(64), 1e-5, floats(64), 1e-6),
    ),
    Case(
        "add_norm_odd", "hightide.add_norm.default", (In(("S", 67)), In(("S", 67)), floats(67), 1e-5, floats(67), 1e-6)
    ),
    # normalisations
    Case(
        "layer_norm",
        "aten.native_layer_norm.default",
        (In(("B", "S", 64), low=95, high=105), [64], floats(64), floats(64), 1e-5),
        tolerance=1e-4,  # the mean is ten times the deviation
    ),
    Case("layer_norm_odd", "aten.native_layer_norm.default", (In(("S", 67)), [67], floats(67), None, 1e-6)),
    Case(
        "layer_norm_two", "aten.native_layer_norm.default", (In(("S", 3, 7)), [3, 7], floats(3, 7), floats(3, 7), 1e-5)
    ),
    Case("layer_norm_wide", "aten.native_layer_norm.default", (In(("S", 1028)), [1028], None, floats(1028), 1e-5)),
    Case(
        "layer_norm_live",
        "aten.native_layer_norm.default",
        (In((4, "S")), [Size(0, 1)], None, None, 1e-2),
        empty=False,
    ),
    Case(
        "group_norm",
        "aten.native_group_norm.default",
        (In(("B", 6, "S", "T")), floats(6), floats(6), Size(0, 0), 6, 189, 3, 1e-2),
        empty=False,
    ),
    Case("group_norm_plain", "aten.native_group_norm.default", (In(("S", 8, 9)), None, None, 21, 8, 9, 2, 1e-5)),
    Case(
        "batch_norm",
        "aten._native_batch_norm_legit_no_training.default",
        (In(("B", 5, "S", "T")), floats(5), floats(5), floats(5), floats(5, low=0.5), 0.1, 1e-5),
    ),
    Case(
        "batch_norm_plain",
        "aten._native_batch_norm_legit_no_training.default",
        (In(("S", 6)), None, None, floats(6), floats(6, low=0.5), 0.1, 1e-3),
    ),
    Case(
        "batch_norm_not_training",
        "aten._native_batch_norm_legit.default",
        (In(("B", 5, "S")), floats(5), None, floats(5), floats(5, low=0.5), False, 0.1, 1e-5),
    ),
    Case(
        "batch_norm_of_batch",
        "aten._native_batch_norm_legit.no_stats",
        (In(("B", 5, "S", "T")), floats(5), floats(5), True, 0.1, 1e-5),
        tolerance=1e-5,
        empty=False,
    ),
]
