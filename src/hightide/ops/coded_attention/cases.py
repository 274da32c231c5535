"""The cases of attention on codes; see `hightide.ops.case`."""

from __future__ import annotations

from typing import Any

import numpy as np

from hightide.ops.case import CONTEXT, Case, Const, In, Pos, floats
from hightide.ops.pages.cases import POOL, attend, table

CODES, SCALES = ("int8", -128, 127), ("float32", 0.005, 0.02)
NAME = "llama.custom_quantized_sdpa.default"


def arguments(heads: int, kv_heads: int, depth: int, value_depth: int, *rule: Any) -> tuple[Any, ...]:
    """Codes, the rule, then zero points and scales; the caches are full."""
    k, v = ((1, CONTEXT, kv_heads, d) for d in (depth, value_depth))
    rows = (1, CONTEXT, kv_heads, 1)
    queries = In((1, "S", heads, 1), *CODES), In((1, "S", heads, 1), *SCALES)
    keys = codes(*rows), floats(*rows, low=0.005, high=0.02)
    return (In((1, "S", heads, depth), *CODES), codes(*k), codes(*v), *rule, *queries, *keys, *keys, False)


def codes(*dims: int) -> Const:
    return Const(lambda rng: rng.integers(-128, 128, dims).astype(np.int8))


def paged(heads: int, kv_heads: int, depth: int, value_depth: int) -> tuple[Any, ...]:
    """The arguments of paged_coded_attention."""
    _, _, _, *tables = attend(heads, kv_heads, depth, value_depth, scale=0.1)
    zero, scale = ([In((1, "S", n, 1), *how) for n in (heads, kv_heads, kv_heads)] for how in (CODES, SCALES))
    k, v = (In((1, "S", kv_heads, d), *CODES) for d in (depth, value_depth))
    pools = codes(1, POOL, kv_heads, depth), codes(1, POOL, kv_heads, value_depth)
    coded = [x for pair in zip(zero, scale, strict=True) for x in pair]
    return (
        In((1, "S", heads, depth), *CODES),
        *pools,
        *tables,
        k,
        v,
        table("places"),
        floats(1, POOL, kv_heads, 4, low=0.005, high=0.02),
        *coded,
    )


PAGED = "hightide.paged_coded_attention.default"
CAUSAL = Pos(), None, 0.0, True, None
CASES = [
    Case("coded_attention", NAME, arguments(6, 2, 16, 16, *CAUSAL)),
    Case("coded_attention_odd", NAME, arguments(3, 3, 7, 5, *CAUSAL)),
    Case("coded_attention_many_heads", NAME, arguments(20, 2, 20, 12, Pos(), None, 0.0, False, 0.1)),
    Case("coded_attention_deep", NAME, arguments(1, 1, 258, 66, *CAUSAL[:-1], 0.003)),
    Case("coded_attention_mask", NAME, arguments(4, 2, 8, 8, 0, In(("S", CONTEXT)), 0.0, False, None)),
    Case("paged_coded_attention", PAGED, paged(6, 2, 16, 12)),
    Case("paged_coded_attention_odd", PAGED, paged(4, 4, 7, 5)),
    Case("paged_coded_attention_keys", PAGED, paged(4, 2, 8, 8), extra={"output": 1}),
    Case("paged_coded_attention_codings", PAGED, paged(4, 2, 8, 8), extra={"output": 15}),
]
