"""The cases of the ops on pages; see `hightide.ops.case`. S rows are those of sequences of up to P + S keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from hightide.ops.attention.cases import rope_cache
from hightide.ops.case import CONTEXT, MAX, Case, Const, In, floats
from hightide.ops.pages.work_lists import Ragged, SequenceRows, ragged

PAGE, POOL = 16, 4 * CONTEXT
LARGE_POOL = 16 * CONTEXT  # for a sequence to each row
SMALL = 4  # a page that ends within what a workgroup takes at a time


@cache
def batch(rows: int, position: int, page: int) -> Ragged:
    """An even number of rows has no singles: every list of work is empty at some level."""
    pieces = [] if rows % 2 == 0 else [SequenceRows(1, position)]
    left = rows - len(pieces)
    while left:
        pieces.append(SequenceRows(min(left, 17), position // len(pieces) if pieces else position))
        left -= pieces[-1].rows
    return ragged(pieces, page, POOL)


@cache
def alone(rows: int, position: int, page: int) -> Ragged:
    """Each row is another sequence's, at a position of its own."""
    return ragged([SequenceRows(1, max(0, position - n)) for n in range(rows)], page, LARGE_POOL)


def table(name: str, page: int = PAGE, of: Callable[[int, int, int], Ragged] = batch) -> In:
    """One of a batch's tables; its max dims are those at the max level."""

    def make(rng: np.random.Generator, sizes: Mapping[str, int]) -> np.ndarray:
        made: np.ndarray = getattr(of(sizes["S"], sizes["P"], page), name)
        return made

    return In(make(np.random.default_rng(0), MAX).shape, "int32", make=make)


def pool(kv_heads: int, depth: int, page: int = PAGE) -> In:
    """Keys or values of a batch's sequences; NaN everywhere else."""

    def make(rng: np.random.Generator, sizes: Mapping[str, int]) -> np.ndarray:
        held = np.full((1, POOL, kv_heads, depth), np.nan, np.float32)
        own = batch(sizes["S"], sizes["P"], page).own
        held[:, own] = rng.uniform(-2, 2, (1, own.size, kv_heads, depth))
        return held

    return In((1, POOL, kv_heads, depth), make=make)


def attend(
    heads: int,
    kv_heads: int,
    depth: int,
    values: int,
    page: int = PAGE,
    *,
    scale: float = 0.3,
    sinks: bool = False,
    **options: float,
) -> tuple[Any, ...]:
    """The arguments of attend_pages; options are a window and a softcap."""
    pools = pool(kv_heads, depth, page), pool(kv_heads, values, page)
    tables = [table(name, page) for name in ("singles", "tiles", "pages")]
    rest = options.get("window", 0), options.get("softcap", 0.0)
    more = floats(heads) if sinks else None
    return (In((1, "S", heads, depth)), *pools, *tables, CONTEXT, page, scale, *rest, more)


def attention(heads: int, kv_heads: int, depth: int, window: int = 0) -> tuple[Any, ...]:
    """The arguments of paged_attention."""
    q, _, _, *rest = attend(heads, kv_heads, depth, depth, window=window)
    kv = In((1, "S", kv_heads, depth))
    pools = [filled(kv_heads, depth) for _ in range(2)]
    return (q, *pools, *rest, kv, kv, table("places"))


def filled(kv_heads: int, depth: int, rows: int = POOL) -> Const:
    return floats(1, rows, kv_heads, depth)


def rope(heads: int, kv_heads: int, depth: int, rotary: int, style: str, norm: bool = False) -> tuple[Any, ...]:
    """The arguments of rope_pages."""
    qkv, cos, sin, _, _, *rest = rope_cache(heads, kv_heads, depth, rotary, style, norm)
    pools = [filled(kv_heads, depth) for _ in range(2)]
    return (qkv, cos, sin, *pools, *rest[:-1], table("positions"), table("places"))


def rope_attend(
    heads: int, kv_heads: int, depth: int, rotary: int, style: str, page: int = PAGE, **options: Any
) -> tuple[Any, ...]:
    """The arguments of rope_attend_pages; options are `norm`, `of` (which batch) and those of `attend`."""
    norm, of = options.pop("norm", False), options.pop("of", alone)
    qkv, cos, sin, _, _, *rest = rope_cache(heads, kv_heads, depth, rotary, style, norm)
    longest, page, *rule = attend(heads, kv_heads, depth, depth, page, **options)[6:]
    pools = [filled(kv_heads, depth, LARGE_POOL if of is alone else POOL) for _ in range(2)]
    positions, places, *lists = (table(name, page, of) for name in ("positions", "places", "singles", "tiles", "pages"))
    return (qkv, cos, sin, *pools, *rest[:-1], positions, places, *rule, *lists, longest, page)


ATTEND = "hightide.attend_pages.default"
ATTENTION = "hightide.paged_attention.default"
ROPE = "hightide.rope_pages.default"
ROPE_ATTEND = "hightide.rope_attend_pages.default"
CASES = [
    Case("attend_pages_gqa", ATTEND, attend(6, 2, 16, 16)),
    Case("attend_pages_small", ATTEND, attend(6, 2, 16, 16, SMALL)),
    Case("attend_pages_mqa", ATTEND, attend(5, 1, 8, 12)),
    Case("attend_pages_odd", ATTEND, attend(3, 3, 7, 7)),
    Case("attend_pages_window", ATTEND, attend(6, 2, 16, 16, window=5)),
    Case("attend_pages_softcap", ATTEND, attend(4, 4, 12, 12, softcap=2.0)),
    Case("attend_pages_many_heads", ATTEND, attend(20, 2, 20, 20, window=9, softcap=5.0)),
    Case("attend_pages_sinks", ATTEND, attend(6, 2, 16, 16, window=9, sinks=True)),
    Case("attend_pages_deep", ATTEND, attend(1, 1, 258, 66, scale=0.02)),
    Case("paged_attention", ATTENTION, attention(6, 2, 16)),
    Case("paged_attention_odd", ATTENTION, attention(4, 2, 7, window=9)),
    Case("paged_attention_keys", ATTENTION, attention(4, 2, 8), extra={"output": 1}),
    Case("paged_attention_values", ATTENTION, attention(3, 1, 5), extra={"output": 2}),
    Case("rope_pages_halves", ROPE, rope(4, 2, 16, 16, "halves")),
    Case("rope_pages_halves_keys", ROPE, rope(4, 2, 16, 16, "halves"), extra={"output": 3}),
    Case("rope_pages_part", ROPE, rope(3, 3, 14, 6, "halves")),
    Case("rope_pages_neighbours", ROPE, rope(6, 1, 24, 24, "interleaved")),
    Case("rope_pages_neighbours_values", ROPE, rope(2, 1, 10, 6, "interleaved"), extra={"output": 4}),
    Case("rope_pages_norm", ROPE, rope(4, 2, 16, 8, "halves", norm=True)),
    Case("rope_pages_norm_keys", ROPE, rope(4, 2, 6, 6, "interleaved", norm=True), extra={"output": 3}),
    Case("rope_attend_pages_halves", ROPE_ATTEND, rope_attend(6, 2, 16, 16, "halves")),
    Case("rope_attend_pages_keys", ROPE_ATTEND, rope_attend(6, 2, 16, 16, "halves"), extra={"output": 3}),
    Case("rope_attend_pages_values", ROPE_ATTEND, rope_attend(4, 4, 24, 16, "halves", SMALL), extra={"output": 4}),
    Case("rope_attend_pages_neighbours", ROPE_ATTEND, rope_attend(5, 1, 24, 24, "interleaved", window=9, sinks=True)),
    Case("rope_attend_pages_norm", ROPE_ATTEND, rope_attend(4, 2, 32, 32, "halves", norm=True, softcap=2.0)),
    Case("rope_attend_pages_odd", ROPE_ATTEND, rope_attend(3, 3, 14, 6, "halves", SMALL)),
    Case("rope_attend_pages_odd_steps", ROPE_ATTEND, rope_attend(3, 3, 12, 6, "halves")),
    Case("rope_attend_pages_many_heads", ROPE_ATTEND, rope_attend(20, 1, 16, 16, "interleaved")),
    Case("rope_attend_pages_batch", ROPE_ATTEND, rope_attend(6, 2, 16, 16, "halves", of=batch)),
    Case("rope_attend_pages_batch_norm", ROPE_ATTEND, rope_attend(4, 2, 16, 8, "interleaved", norm=True, of=batch)),
    Case(
        "take_tokens",
        "hightide.take_tokens.default",
        (In(("S",), "int32", low=-9, high=40), In((9,), "int32", low=0, high=500)),
        out="int32",
    ),
]
