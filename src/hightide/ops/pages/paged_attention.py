"""Attention of many sequences in one step, over keys and values that lie in pages.

A step is a ragged batch: the rows of its sequences end to end. A pool [1, C, H, D] holds pages of `page` rows. Beside
the rows there are tables, all int32:

* `places` [T]: where in the pool the key and the value of each row go;
* `tiles` [N, 4]: attention's work list. A tile is rows of one sequence that follow each other: its first row, how many,
  the position of the first, and where in `pages` the sequence's pages begin. Those of one row are a list of their own;
* `pages` [P]: the pages of all sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.symbols import Env, evaluate
from hightide.graph.values import Dims
from hightide.ops.attention.attention import Rule, attended, check_sinks, scale_of
from hightide.ops.attention.attention_cost import AttentionOp, Seen
from hightide.ops.attention.cache_updates import update_caches
from hightide.ops.attention.steps import Attention, Pages, attend
from hightide.ops.contract import Context, Dispatch, Int, Tensor, expr_of, op
from hightide.ops.pages.work_lists import TILE, one_sequence


def check_pages(ctx: Context, pool: Tensor, page: int, lists: Iterable[Tensor], pages: Tensor) -> None:
    """Lists of work [N, 4] and the table of pages must fit a pool [1, C, H, D] of pages."""
    rows = pool.dims[1]
    if page < 1 or page & (page - 1) or not rows or rows % page:
        raise InputError(f"a pool of {rows} rows has no pages of {page}")
    for tiles in lists:
        if tiles.rank != 2 or tiles.width != 4:
            raise InputError(f"a work list of {list(tiles.dims)} is not [tiles, 4]")
        if tiles.dims[0] and not pages.numel:
            raise InputError("there are tiles, and no page in the table of pages")
    ctx.require_indices(pages, 0, rows // page - 1, "page")


def attentions(call: Any, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> list[Attention]:
    """Of the singles of a call, and of its tiles."""
    return [
        Attention(
            q=q,
            k=k,
            v=v,
            out=out,
            position=0,
            added=0,
            causal=True,
            scale=scale_of(call.scale, q.width),
            window=call.window,
            softcap=call.softcap,
            sinks=call.sinks,
            pages=Pages(tiles, call.pages, call.page, tokens, call.longest),
        )
        for tiles, tokens in ((call.singles, 1), (call.tiles, TILE))
    ]


class PagedAttentionOp(AttentionOp):
    """q [1, T, H, D] over pools of keys and values [1, C, Hkv, D]; `longest` is the most keys that any row sees.

    A row sees the keys of its own sequence up to its own position, with a `window` only the newest of these.
    """

    q: Tensor
    k_pool: Tensor
    v_pool: Tensor
    singles: Tensor
    tiles: Tensor
    pages: Tensor
    longest: Int
    page: int
    scale: float
    window: int = 0
    softcap: float = 0.0
    sinks: Tensor | None = None

    def outputs(self, ctx: Context) -> list[Dims]:
        q, k, v = self.q, self.k_pool, self.v_pool
        check_sinks(self.sinks, q)
        if q.rank != 4 or k.rank != 4 or v.rank != 4 or k.dims[:3] != v.dims[:3] or (q.dims[0], k.dims[0]) != (1, 1):
            raise InputError(f"queries {list(q.dims)} do not go with pools of {list(k.dims)} and {list(v.dims)}")
        if q.width != k.width or q.dims[2] % k.dims[2]:
            raise InputError(f"queries {list(q.dims)} do not go with a pool of {list(k.dims)}")
        check_pages(ctx, k, self.page, (self.singles, self.tiles), self.pages)
        ctx.require(expr_of(self.longest), 0, k.dims[1], f"{{value}} keys are not in a pool of {k.dims[1]}")
        return [(*q.dims[:-1], v.width)]

    @classmethod
    def fitting(cls, given: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        counts = (given["singles"][0], given["tiles"][0], given["pages"][0])
        return one_sequence(given["q"][1], counts, given["page"], given["k_pool"][1])

    def seen(self, env: Env) -> Seen:
        rows, keys = self.q.dims[1], evaluate(expr_of(self.longest), env)
        sequences = self.singles.dims[0] + self.tiles.dims[0]
        capacity = self.k_pool.dims[1]
        seen = min(capacity, keys * sequences)
        return Seen(self.k_pool, self.v_pool, self.q.dims[2], rows, seen, capacity, rows * keys)

    def attention(self, ctx: Context, out: Tensor, **held: Any) -> Iterable[Dispatch]:
        """`held`: where q and the codings are, if not in tensors; see `Attention`."""
        for attention in attentions(self, self.q, self.k_pool, self.v_pool, out):
            yield from attend(ctx, replace(attention, **held))

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> np.ndarray:
        """Tile after tile; rows that are in no tile give zeros."""
        call: Any = cls.bound(dict(arguments))
        q, k, v = call.q, call.k_pool, call.v_pool
        rule = Rule(True, call.scale, call.window, call.softcap, call.sinks)
        out = np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
        for first, tokens, position, table in np.concatenate([call.singles, call.tiles]).tolist():
            key = np.arange(position + tokens)
            at = call.pages[table + key // call.page] * call.page + key % call.page
            rows = slice(first, first + tokens)
            out[:, rows] = attended(q[:, rows], k[:, at], v[:, at], position, rule)
        return out


@op("hightide.attend_pages.default", family="attention")
class AttendPages(PagedAttentionOp):
    """Attention of rows whose keys and values are in their pages already: nothing is written."""

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return self.attention(ctx, out)


class UpdatingPages(PagedAttentionOp):
    """k and v [1, T, Hkv, D] into their `places`, then attention."""

    k: Tensor
    v: Tensor
    places: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        dims = super().outputs(ctx)
        k, v, tokens = self.k, self.v, self.q.dims[1]
        fits = k.dims == (1, tokens, *self.k_pool.dims[2:]) and v.dims == (1, tokens, *self.v_pool.dims[2:])
        if not fits or self.places.dims != (tokens,):
            raise InputError(f"keys {list(k.dims)}, values {list(v.dims)} and {list(self.places.dims)} places differ")
        ctx.require_indices(self.places, 0, self.k_pool.dims[1] - 1, "place")
        return dims

    def update(self) -> Dispatch:
        return update_caches(self.k, self.v, self.k_pool, self.v_pool, places=self.places)

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> np.ndarray:
        for pool, rows in (("k_pool", "k"), ("v_pool", "v")):
            arguments[pool][:, arguments["places"]] = arguments[rows]
        return super().evaluate(arguments)


@op("hightide.paged_attention.default", family="attention")
class PagedAttention(UpdatingPages):
    """Attention over pools of floats."""

    mutates = ("k_pool", "v_pool")

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield self.update()
        yield from self.attention(ctx, out)
