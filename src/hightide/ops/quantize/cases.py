"""The cases of the quantize ops; see `hightide.ops.case`."""

from __future__ import annotations

import numpy as np

from hightide.ops.case import Case, Const, In, q4_weight

CASES = [
    Case(
        "choose_qparams",
        "torchao.choose_qparams_affine.default",
        (In((1, "S", 40)), "ASYMMETRIC", [1, 1, 40], None, -128, 127, None, None, None, False),
        out=("float32", "int8"),
    ),
    Case(
        "linear_dq8ca_q4",
        "et_vk.linear_dq8ca_q4gsw.default",
        (
            In(("S", 64)),
            In(("S",), low=0.02, high=0.03),
            In(("S",), "int8", -20, 20),
            *q4_weight(24, 64, 32)[:1],
            Const(lambda rng: rng.integers(-99, 99, (2, 24)).astype(np.int32)),
            *q4_weight(24, 64, 32, bias=True)[1:],
        ),
    ),
]
