"""The cases of the attention ops; see `hightide.ops.case`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hightide.ops.case import CONTEXT, Case, Const, In, Pos, floats


def attention(
    heads: int, kv_heads: int, depth: int, scale: float | None = None, causal: bool = True
) -> tuple[Any, ...]:
    """The arguments of sdpa_with_kv_cache at a live position."""
    cache = Const(lambda rng: np.zeros((1, CONTEXT, kv_heads, depth), np.float32))
    kv = In((1, "S", kv_heads, depth))
    return (In((1, "S", heads, depth)), kv, kv, cache, cache, Pos(), 1, None, 0.0, causal, scale)


def rope_cache(heads: int, kv_heads: int, depth: int, rotary: int, style: str, norm: bool = False) -> tuple[Any, ...]:
    """The arguments of rope_cache at a live position."""
    cache = Const(lambda rng: np.zeros((1, CONTEXT, kv_heads, depth), np.float32))
    table = floats(CONTEXT, rotary if style == "halves" else rotary // 2)
    norms = (floats(depth), floats(depth), 1e-5) if norm else (None, None, 0.0)
    joined = In((1, "S", (heads + 2 * kv_heads) * depth))
    return (joined, table, table, cache, cache, heads, kv_heads, depth, style, *norms, Pos())


def filled(kv_heads: int, depth: int, batches: int = 1) -> Const:
    """A cache that earlier calls have written to."""
    return Const(lambda rng: rng.uniform(-2, 2, (batches, CONTEXT, kv_heads, depth)).astype(np.float32))


def rope_attend(
    heads: int, kv_heads: int, depth: int, rotary: int, style: str, norm: bool = False, **rule: Any
) -> tuple[Any, ...]:
    """The arguments of rope_attend at a live position; the rule is a window, a softcap, sinks, and causal or not."""
    joined, cos, sin, _, _, *rest = rope_cache(heads, kv_heads, depth, rotary, style, norm)
    caches = [filled(kv_heads, depth) for _ in range(2)]
    sinks = floats(heads) if rule.get("sinks") else None
    seen = 0.3, rule.get("window", 0), rule.get("softcap", 0.0), sinks, rule.get("causal", True)
    return (joined, cos, sin, *caches, *rest, *seen)


def codes(batches: int, tokens: str, kv_heads: int, depth: int) -> Const:
    """The same with 8-bit codes; `tokens` are those of a step."""
    return Const(lambda rng: rng.integers(-128, 128, (batches, CONTEXT, kv_heads, depth)).astype(np.int8))


def places(rng: np.random.Generator, live: Mapping[str, int]) -> np.ndarray:
    """Rows of a cache, each once, and some that it has not."""
    every = [rng.permutation(np.arange(-3, CONTEXT + 5))[: live["S"]] for _ in range(2)]
    return np.stack(every).astype(np.int64)


PLACES = In((2, "S"), "int64", low=-3, high=CONTEXT + 4, make=places)
ROPE = "hightide.rope_cache.default"
ROPE_ATTEND = "hightide.rope_attend.default"
CASES = [
    Case("sdpa_cache_gqa", "sdpa_with_kv_cache.default", attention(6, 2, 16), empty=False),
    Case("sdpa_cache_mqa", "sdpa_with_kv_cache.default", attention(5, 1, 8, scale=0.3), empty=False),
    Case("sdpa_cache_mha_odd", "sdpa_with_kv_cache.default", attention(3, 3, 7), empty=False),
    Case("sdpa_cache_full", "sdpa_with_kv_cache.default", attention(4, 2, 8, causal=False), empty=False),
    Case(
        "attention_window",
        "hightide.attention.default",
        (*attention(6, 2, 16)[:6], 0.25, 5, 0.0),
        empty=False,
    ),
    Case("attention_softcap", "hightide.attention.default", (*attention(4, 4, 12)[:6], 0.3, 0, 2.0), empty=False),
    Case(
        "attention_sinks", "hightide.attention.default", (*attention(6, 2, 16)[:6], 0.3, 9, 0.0, floats(6)), empty=False
    ),
    Case(
        "attend_sinks",
        "hightide.attend.default",
        (In((1, "S", 4, 7)), filled(2, 7), filled(2, 5), Pos(), True, None, 0, 0.0, floats(4)),
    ),
    Case(
        "attend",
        "hightide.attend.default",
        (In((1, "S", 6, 8)), filled(2, 8), filled(2, 12), Pos(), True, None, 0, 0.0),
    ),
    Case(
        "attend_many_heads",
        "hightide.attend.default",
        (In((1, "S", 20, 20)), filled(2, 20), filled(2, 20), Pos(), True, 0.1, 9, 5.0),
    ),
    Case(
        "attend_deep",
        "hightide.attend.default",
        (In((1, "S", 1, 258)), filled(1, 258), filled(1, 66), Pos(), False, 0.02, 0, 0.0),
    ),
    Case("rope_cache_halves", ROPE, rope_cache(4, 2, 16, 16, "halves")),
    Case("rope_cache_halves_keys", ROPE, rope_cache(4, 2, 16, 16, "halves"), extra={"output": 3}),
    Case("rope_cache_part", ROPE, rope_cache(3, 3, 14, 6, "halves")),
    Case("rope_cache_neighbours", ROPE, rope_cache(6, 1, 24, 24, "interleaved")),
    Case("rope_cache_neighbours_values", ROPE, rope_cache(6, 1, 24, 16, "interleaved"), extra={"output": 4}),
    Case("rope_cache_neighbours_part", ROPE, rope_cache(2, 1, 10, 6, "interleaved")),
    Case("rope_cache_norm", ROPE, rope_cache(4, 2, 16, 8, "halves", norm=True)),
    Case("rope_cache_norm_keys", ROPE, rope_cache(4, 2, 6, 6, "interleaved", norm=True), extra={"output": 3}),
    Case("rope_attend_halves", ROPE_ATTEND, rope_attend(6, 2, 16, 16, "halves"), empty=False),
    Case("rope_attend_keys", ROPE_ATTEND, rope_attend(6, 2, 16, 16, "halves"), empty=False, extra={"output": 3}),
    Case("rope_attend_values", ROPE_ATTEND, rope_attend(4, 1, 24, 16, "interleaved"), empty=False, extra={"output": 4}),
    Case("rope_attend_norm", ROPE_ATTEND, rope_attend(4, 2, 32, 32, "halves", norm=True, window=9), empty=False),
    Case("rope_attend_sinks", ROPE_ATTEND, rope_attend(4, 4, 8, 8, "halves", softcap=2.0, sinks=True), empty=False),
    Case("rope_attend_full", ROPE_ATTEND, rope_attend(20, 1, 16, 16, "interleaved", causal=False), empty=False),
    Case("rope_attend_odd", ROPE_ATTEND, rope_attend(3, 3, 14, 6, "halves"), empty=False),
    Case("rope_attend_odd_steps", ROPE_ATTEND, rope_attend(3, 3, 12, 6, "halves"), empty=False),
    Case(
        "update_cache",
        "update_cache.default",
        (In((2, "S", 3, 5)), Const(lambda rng: np.zeros((2, CONTEXT, 3, 5), np.float32)), Pos()),
        empty=False,
        extra={"output": 1},
    ),
    *(
        Case(
            f"update_cache_{name}",
            "update_cache.default",
            (In(dims, "int8", -128, 127), codes(*dims), Pos()),
            out="int8",
            empty=False,
            extra={"output": 1},
        )
        for name, dims in (("codes", (1, "S", 3, 8)), ("zeros", (1, "S", 3, 1)), ("batches_of_codes", (2, "S", 1, 5)))
    ),
    *(
        Case(
            f"update_cache_{name}_at_places",
            "llama.update_cache_with_indices.default",
            (In(dims, "int8", -128, 127), codes(*dims), 0, PLACES),
            out="int8",
            empty=False,
            extra={"output": 1},
        )
        for name, dims in (("codes", (2, "S", 2, 4)), ("zeros", (2, "S", 3, 1)))
    ),
    Case(
        "updated_cache",
        "hightide.updated_cache.default",
        (In((2, "S", 3, 5)), filled(3, 5, batches=2), Pos()),
        dims=[(2, CONTEXT, 3, 5)],
        empty=False,
    ),
    Case(
        "update_cache_at_places",
        "llama.update_cache_with_indices.default",
        (In((2, "S", 3, 5)), Const(lambda rng: np.zeros((2, CONTEXT, 3, 5), np.float32)), Pos(), PLACES),
        empty=False,
        extra={"output": 1},
    ),
    Case(
        "update_cache_at_places_vec4",
        "llama.update_cache_with_indices.default",
        (In((2, "S", 3, 8)), Const(lambda rng: np.zeros((2, CONTEXT, 3, 8), np.float32)), 0, PLACES),
        empty=False,
        extra={"output": 1},
    ),
    Case(
        "custom_sdpa_mask",
        "custom_sdpa.default",
        (In((1, "S", 6, 16)), filled(2, 16), filled(2, 16), Pos(), In(("S", CONTEXT)), 0.0, False),
        empty=False,
    ),
    Case(
        "custom_sdpa_mask_heads",
        "custom_sdpa.default",
        (In((1, "S", 3, 7)), filled(3, 7), filled(3, 7), 0, In((1, 3, "S", CONTEXT)), 0.0, False, 0.4),
        empty=False,
    ),
    Case(
        "custom_sdpa",
        "custom_sdpa.default",
        (In((1, "S", 6, 16)), filled(2, 16), filled(2, 16), Pos(), None, 0.0, True),
        empty=False,
    ),
    Case(
        "sdpa", "et_vk.sdpa.default", (In(("B", 2, "S", 8)), In(("B", 2, "T", 8)), In(("B", 2, "T", 12))), empty=False
    ),
    Case(
        "sdpa_mask",
        "et_vk.sdpa.default",
        (In(("B", 2, "S", 6)), In(("B", 2, "T", 6)), In(("B", 2, "T", 6)), In(("B", 1, "S", "T")), 0.4),
        empty=False,
    ),
    Case(
        "sdpa_rows",
        "hightide.sdpa_rows.default",
        (In(("B", "S", 2, 8)), In(("B", "T", 2, 8)), In(("B", "T", 2, 12))),
        empty=False,
    ),
    Case(
        "sdpa_rows_mask",
        "hightide.sdpa_rows.default",
        (In(("B", "S", 3, 6)), In(("B", "T", 3, 6)), In(("B", "T", 3, 6)), In(("B", 3, "S", "T")), 0.4),
        empty=False,
    ),
]
