"""The cases of the linear ops; see `hightide.ops.case`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hightide.ops.case import MAX, Blocks, Case, Const, In, floats, q4_weight


def _adapted(rng: np.random.Generator, sizes: Mapping[str, int]) -> np.ndarray:
    """Rows of MAX["S"], none twice."""
    return rng.permutation(MAX["S"])[: sizes["S"]].astype(np.int32)


ADAPTED_LINEAR = "hightide.adapted_linear.default"
ADAPTED = In(("S",), "int32", make=_adapted)

OWNERS = Const(lambda rng: np.array([0, 2, 0, 2, 2], np.int32))


def _adapted_linear(name: str, width: int, n: int, *ends: Any, weight: Any = None, columns: int = 0) -> Case:
    """A linear of `n` columns, the last `columns` of them (or all) changed by adapters of rank 5 in S of its rows."""
    columns = columns or n
    changes = [floats(5, width)], [floats(columns, 5)], [OWNERS], (n - columns,)
    given = (weight or floats(n, width), *ends, *(None,) * (6 - len(ends)))
    return Case(name, ADAPTED_LINEAR, (In((1, MAX["S"], width)), *given, ADAPTED, In(("S", 3)), *changes))


ROWS = MAX["S"]
CASES = [
    _adapted_linear("adapted", 64, 40),
    _adapted_linear("adapted_odd", 99, 7, floats(7)),
    _adapted_linear("adapted_residual", 64, 12, floats(12), In((1, ROWS, 12)), ""),
    _adapted_linear("adapted_norm", 64, 12, None, None, "", floats(64), 1e-5, columns=4),
    _adapted_linear("adapted_gate", 64, 24, floats(24), In((1, ROWS, 12)), "silu", floats(64), 1e-5, columns=12),
    _adapted_linear("adapted_not_gated", 64, 24, floats(24), None, "gelu", None, 0.0, False),
    _adapted_linear("adapted_blocks", 64, 24, None, None, "silu", weight=Blocks("Q8_0", (24, 64))),
    Case(
        "adapted_twice",
        ADAPTED_LINEAR,
        (
            *(In((1, ROWS, 32)), floats(20, 32), None, None, "silu", None, None, None, ADAPTED, In(("S", 3))),
            *([floats(5, 32), floats(5, 32)], [floats(10, 5), floats(10, 5)], [OWNERS, OWNERS], (0, 10)),
        ),
    ),
    Case("q4", "et_vk.linear_q4gsw.default", (In((1, "S", 64)), *q4_weight(24, 64, 32))),
    Case("q4_bias", "et_vk.linear_q4gsw.default", (In(("S", 128)), *q4_weight(33, 128, 64, bias=True))),
    Case("q4_one_group", "et_vk.linear_q4gsw.default", (In(("S", 96)), *q4_weight(7, 96, 96))),
    Case("q4_small_group", "et_vk.linear_q4gsw.default", (In(("S", 48)), *q4_weight(10, 48, 8, bias=True))),
    Case("q4_odd_row", "et_vk.linear_q4gsw.default", (In(("B", "S", 20)), *q4_weight(5, 20, 4))),
    Case("q4_padded_row", "et_vk.linear_q4gsw.default", (In(("S", 40)), *q4_weight(6, 40, 20, padded=24))),
    Case("q4_aligned", "et_vk.linear_q4gsw.default", (In(("S", 128)), *q4_weight(40, 128, 64))),
    Case("q4_three_groups", "et_vk.linear_q4gsw.default", (In(("S", 192)), *q4_weight(8, 192, 96))),
    Case(
        "q4_residual",
        "hightide.linear_q4.default",
        (In((1, "S", 64)), *q4_weight(9, 64, 32, bias=True), In((1, "S", 9)), ""),
    ),
    Case("q4_silu", "hightide.linear_q4.default", (In((1, "S", 64)), *q4_weight(22, 64, 32), None, "silu")),
    Case("q4_silu_aligned", "hightide.linear_q4.default", (In((1, "S", 64)), *q4_weight(72, 64, 32), None, "silu")),
    Case(
        "q4_gelu",
        "hightide.linear_q4.default",
        (In(("S", 96)), *q4_weight(14, 96, 32, bias=True), In(("S", 7)), "gelu_tanh"),
    ),
    Case(
        "q4_odd_gelu",
        "hightide.linear_q4.default",
        (In(("S", 20)), *q4_weight(10, 20, 4, bias=True), In(("S", 5)), "gelu"),
    ),
    Case(
        "q4_norm",
        "hightide.linear_q4.default",
        (In((1, "S", 128)), *q4_weight(24, 128, 32), None, "", floats(128), 1e-5),
    ),
    Case(
        "q4_norm_silu",
        "hightide.linear_q4.default",
        (In((1, "S", 64)), *q4_weight(72, 64, 32, bias=True), None, "silu", floats(64), 1e-5),
    ),
    Case(
        "q4_not_gated",
        "hightide.linear_q4.default",
        (In((1, "S", 64)), *q4_weight(9, 64, 32, bias=True), None, "gelu_tanh", None, 0.0, False),
    ),
    Case(
        "q4_odd_norm",
        "hightide.linear_q4.default",
        (In(("S", 20)), *q4_weight(5, 20, 4), In(("S", 5)), "", floats(20), 1e-5),
    ),
    Case("linear_norm", "hightide.linear.default", (In(("S", 32)), floats(11, 32), None, None, "", floats(32), 1e-6)),
    Case("linear_residual", "hightide.linear.default", (In(("S", 12)), floats(11, 12), floats(11), In(("S", 11)), "")),
    Case("linear_silu", "hightide.linear.default", (In((1, "S", 32)), floats(18, 32), None, None, "silu")),
    Case(
        "linear_gelu",
        "hightide.linear.default",
        (In((1, "S", 32)), floats(10, 32), floats(10), In((1, "S", 5)), "gelu"),
    ),
    Case(
        "linear_not_gated",
        "hightide.linear.default",
        (In((1, "S", 32)), floats(10, 32), floats(10), In((1, "S", 10)), "gelu", None, 0.0, False),
    ),
    Case(
        "linear_odd_not_gated",
        "hightide.linear.default",
        (In(("S", 9)), floats(6, 9), floats(6), None, "silu", None, 0.0, False),
    ),
    Case(
        "linear_one_row_added",
        "hightide.linear.default",
        (In((1, "S", 32)), floats(10, 32), floats(10), floats(1, 1, 10), "gelu", None, 0.0, False),
    ),
    Case(
        "linear_of_one_row",
        "hightide.linear.default",
        (In((1, 1, 32)), floats(10, 32), None, In((1, "S", 10)), ""),
    ),
    Case("linear_odd_silu", "hightide.linear.default", (In(("S", 9)), floats(6, 9), floats(6), In(("S", 3)), "silu")),
    Case(
        "linear_parts",
        "hightide.linear.default",
        (In(("S", 16)), [floats(6, 16), floats(5, 16)], floats(11), None, ""),
    ),
    Case(
        "linear_parts_gate",
        "hightide.linear.default",
        (In(("S", 16)), [floats(6, 16), floats(6, 16)], None, None, "silu"),
    ),
    Case("linear", "aten.linear.default", (In((1, "S", 32)), floats(19, 32), floats(19))),
    Case("linear_odd", "aten.linear.default", (In(("B", "S", 31)), floats(6, 31), None)),
    Case("linear_odd_bias", "aten.linear.default", (In(("S", 9)), floats(6, 9), floats(6))),
    Case("mm", "aten.mm.default", (In(("S", 13)), floats(13, 18))),
    Case("mm_live_inner", "aten.mm.default", (In((5, "S")), In(("S", 6)))),
    Case("bmm_fours", "aten.bmm.default", (In(("B", "S", 8)), In(("B", 8, 36)))),
    Case("addmm_fours", "aten.addmm.default", (floats(12), In(("S", 16)), floats(16, 12), 0.5, 2.0)),
    Case("bmm", "aten.bmm.default", (In(("B", "S", 6)), In(("B", 6, "T")))),
    Case("addmm", "aten.addmm.default", (floats(9), In(("S", 13)), floats(13, 9), 0.5, 2.0)),
    Case("addmm_live", "aten.addmm.default", (In(("T",)), In(("S", "B")), In(("B", "T")))),
    Case("addmv", "aten.addmv.default", (In(("S",)), In(("S", 13)), floats(13), 0.5, 2.0)),
    Case("addmv_scalar", "aten.addmv.default", (floats(1), In(("S", "T")), In(("T",)))),
    Case("addmv_no_bias", "aten.addmv.default", (floats(1), In(("S", 13)), floats(13), 0, 1)),
    Case("addmm_column", "aten.addmm.default", (In(("S", 1)), In(("S", 13)), floats(13, 9), 1, 1)),
]
