"""The cases of attention over whole sequences; see `hightide.ops.case`. S rows are those of several sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hightide.ops.case import MAX, Case, In
from hightide.ops.pages.work_lists import TILE

LENGTHS = (1, 17, 2, 40, 5)  # of the sequences of a batch, again and again


def spans(rng: np.random.Generator, sizes: Mapping[str, int]) -> np.ndarray:
    tiles: list[tuple[int, ...]] = []
    start, rows = 0, sizes["S"]
    while start < rows:
        length = min(LENGTHS[len(tiles) % len(LENGTHS)], rows - start)
        tiles += [(start + at, min(TILE, length - at), start, length) for at in range(0, length, TILE)]
        start += length
    return np.array(tiles, np.int32).reshape(-1, 4)


def attention(
    heads: int, kv_heads: int, depth: int, values: int, window: int = 0, scale: float = 0.3
) -> tuple[Any, ...]:
    tiles = In(spans(np.random.default_rng(0), MAX).shape, "int32", make=spans)
    kv = [In((1, "S", kv_heads, width)) for width in (depth, values)]
    return (In((1, "S", heads, depth)), *kv, tiles, scale, window)


SPANS = "hightide.span_attention.default"
CASES = [
    Case("span_attention", SPANS, attention(4, 4, 16, 16)),
    Case("span_attention_gqa", SPANS, attention(6, 2, 8, 12)),
    Case("span_attention_odd", SPANS, attention(3, 3, 7, 7)),
    Case("span_attention_window", SPANS, attention(4, 2, 16, 16, window=3)),
    Case("span_attention_deep", SPANS, attention(1, 1, 258, 66, window=20, scale=0.02)),
]
