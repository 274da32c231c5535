"""The cases of attention on codes; see `hightide.ops.case`."""

from __future__ import annotations

from typing import Any

import numpy as np

from hightide.ops.case import CONTEXT, Case, Const, In, Pos, floats

NAME = "llama.custom_quantized_sdpa.default"


def arguments(heads: int, kv_heads: int, depth: int, value_depth: int, *rule: Any) -> tuple[Any, ...]:
    """Codes, the rule, then zero points and scales; the caches are full."""
    k, v = ((1, CONTEXT, kv_heads, d) for d in (depth, value_depth))
    rows = (1, CONTEXT, kv_heads, 1)
    queries = In((1, "S", heads, 1), "int8", -128, 127), In((1, "S", heads, 1), low=0.005, high=0.02)
    keys = codes(*rows), floats(*rows, low=0.005, high=0.02)
    return (In((1, "S", heads, depth), "int8", -128, 127), codes(*k), codes(*v), *rule, *queries, *keys, *keys, False)


def codes(*dims: int) -> Const:
    return Const(lambda rng: rng.integers(-128, 128, dims).astype(np.int8))


CAUSAL = Pos(), None, 0.0, True, None
CASES = [
    Case("coded_attention", NAME, arguments(6, 2, 16, 16, *CAUSAL)),
    Case("coded_attention_odd", NAME, arguments(3, 3, 7, 5, *CAUSAL)),
    Case("coded_attention_many_heads", NAME, arguments(20, 2, 20, 12, Pos(), None, 0.0, False, 0.1)),
    Case("coded_attention_deep", NAME, arguments(1, 1, 258, 66, *CAUSAL[:-1], 0.01)),
    Case("coded_attention_mask", NAME, arguments(4, 2, 8, 8, 0, In(("S", CONTEXT)), 0.0, False, None)),
]
