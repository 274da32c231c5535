"""The cases of the training ops; see `hightide.ops.case`."""

from __future__ import annotations

from hightide.ops.case import Case, In, floats, q4_weight, x2, x3

CASES = [
    Case(
        "adamw",
        "et_vk.adamw_step.default",
        (x3, x3, In(("B", "S", 10), low=0), x3, 1e-3, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001),
        tolerance=1e-5,
    ),
    Case(
        "adamw_in_place",
        "et_vk.adamw_step.default",
        (floats(33), floats(33), floats(33, low=0), floats(33), 1e-2, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001),
        tolerance=1e-5,
        extra={"output": 0},
    ),
    Case("cross_entropy", "et_vk.fused_ce.default", (In(("S", 75)), In(("S",), "int32", -3, 74), 4.0), tolerance=1e-5),
    Case("cross_entropy_narrow", "et_vk.fused_ce.default", (x2, In(("S",), "int32", 0, 11), 21.0), tolerance=1e-5),
    Case("q4_backward", "et_vk.linear_q4gsw_backward.default", (In(("B", "S", 11)), *q4_weight(11, 48, 16)[:3])),
    Case("q4_backward_odd", "et_vk.linear_q4gsw_backward.default", (In(("S", 6)), *q4_weight(6, 30, 6)[:3])),
    Case("weight_gradient", "et_vk.linear_dW.default", (In(("B", "S", 6)), In(("B", "S", 13)))),
    Case(
        "q4_requant", "et_vk.q4gsw_requant.default", (In(("S", 45)), floats(3, 21, low=0.1, high=0.5), 16), out="uint8"
    ),
]
