"""Short convolutions along the tokens, as LFM2 has them instead of attention in most layers.

What is convolved is kept in a cache with a row for each position, as keys and values are. The last rows would do to go
on with; all of them let a sequence go back to any position, share the beginning of another, and lie in pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.ops.attention.attention_cost import AttentionOp, Seen, seen_in_cache
from hightide.ops.attention.cache import check_position
from hightide.ops.attention.steps import Pages
from hightide.ops.contract import Context, Dispatch, Int, Tensor, ceil_div, kernel, op
from hightide.ops.pages.paged_attention import check_pages
from hightide.ops.pages.work_lists import TILE, one_sequence

PARTS = 3  # of a row of `mixed`


class ShortConvOp(AttentionOp):
    """mixed [1, S, 3 W] are b, c and x -> c * conv(b * x) [1, S, W].

    Column w of a row is the sum of `weight[n, w]` times that of the row N - 1 - n positions before. The weight is
    [N, W]; there is nothing before the first position. b * x goes into the cache [1, C, 1, W], and is read from there.
    """

    mixed: Tensor
    weight: Tensor
    cache: Tensor
    mutates = ("cache",)

    def outputs(self, ctx: Context) -> list[Dims]:
        mixed, weight, held = self.mixed, self.weight, self.cache
        width = weight.width
        if mixed.rank != 3 or weight.rank != 2 or (mixed.dims[0], mixed.width) != (1, PARTS * width):
            raise InputError(f"rows {list(mixed.dims)} do not go with a convolution of {list(weight.dims)}")
        if held.rank != 4 or (held.dims[0], *held.dims[2:]) != (1, 1, width):
            raise InputError(f"a cache of {list(held.dims)} does not hold rows of {width}")
        self.check_where(ctx)
        return [(1, mixed.dims[1], width)]

    def check_where(self, ctx: Context) -> None:
        """The rows must fit the cache."""
        raise NotImplementedError

    def stored(self, **where: Any) -> Dispatch:
        """b * x into the cache: at a `position`, or at `places`."""
        step, count = self._step(), self.mixed.dims[1] * self.weight.width
        return kernel("short_conv/gated_rows.wgsl", VEC4=step == 4, PAGED="places" in where).over(
            ceil_div(count // step, 64),
            mixed=self.mixed,
            cache=self.cache,
            count=count // step,
            width=self.weight.width // step,
            **where,
        )

    def convolved(self, out: Tensor, rows: int, tokens: int, **where: Any) -> Dispatch:
        """`rows` in tiles of up to `tokens`."""
        step, taps = self._step(), self.weight.dims[0]
        constants = {"VEC4": step == 4, "TAPS": taps, "PAGED": "tiles" in where, "SPANS": False}
        return kernel("short_conv/short_conv.wgsl", **constants).over(
            ceil_div(rows * self.weight.width // step, 64),
            mixed=self.mixed,
            weight=self.weight,
            cache=self.cache,
            out=out,
            rows=rows,
            tokens=tokens,
            width=self.weight.width // step,
            **where,
        )

    def _step(self) -> int:
        return 4 if self.weight.width % 4 == 0 else 1


@op("hightide.short_conv.default", family="short_conv")
class ShortConv(ShortConvOp):
    """`ShortConvOp` of tokens that follow each other from `position` on."""

    position: Int

    def check_where(self, ctx: Context) -> None:
        check_position(ctx, self.mixed.dims[1], self.cache, self.position)

    def seen(self, env: Env) -> Seen:
        return seen_in_cache(self.mixed, 1, self.cache, None, self.position, env, window=self.weight.dims[0])

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        rows = self.mixed.dims[1]
        yield self.stored(position=self.position)
        yield self.convolved(out, rows, rows, position=self.position, added=rows)

    @staticmethod
    def reference(mixed: np.ndarray, weight: np.ndarray, cache: np.ndarray, position: int) -> np.ndarray:
        b, c, x = np.split(mixed, PARTS, axis=-1)
        at = position + np.arange(mixed.shape[1])
        cache[:, at, 0] = b * x
        return c * _sums(cache[0, :, 0], weight, at)


@op("hightide.paged_conv.default", family="short_conv")
class PagedConv(ShortConvOp):
    """`ShortConvOp` of rows of many sequences, whose `cache` is a pool of pages; see `ops.pages.paged_attention`."""

    singles: Tensor
    tiles: Tensor
    pages: Tensor
    page: int
    places: Tensor

    def check_where(self, ctx: Context) -> None:
        rows = self.mixed.dims[1]
        check_pages(ctx, self.cache, self.page, (self.singles, self.tiles), self.pages)
        if self.places.dims != (rows,):
            raise InputError(f"{list(self.places.dims)} places are not one for each of {rows} rows")
        ctx.require_indices(self.places, 0, self.cache.dims[1] - 1, "place")

    @classmethod
    def fitting(cls, given: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        counts = (given["singles"][0], given["tiles"][0], given["pages"][0])
        return one_sequence(given["mixed"][1], counts, given["page"], given["cache"][1])

    def seen(self, env: Env) -> Seen:
        rows, taps, capacity = self.mixed.dims[1], self.weight.dims[0], self.cache.dims[1]
        before = (taps - 1) * (self.singles.dims[0] + self.tiles.dims[0])
        return Seen(self.cache, None, 1, rows, min(capacity, rows + before), capacity, rows * taps)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield self.stored(places=self.places, capacity=self.cache.dims[1])
        for tiles, tokens in ((self.singles, 1), (self.tiles, TILE)):
            where = Pages(tiles, self.pages, self.page, tokens, self.cache.dims[1])
            given = where.given(self.mixed.dims[1], self.cache.dims[1])
            yield self.convolved(out, tiles.dims[0] * tokens, tokens, **given)

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> np.ndarray:
        """Tile after tile; rows that are in no tile give zeros."""
        call: Any = cls.bound(dict(arguments))
        b, c, x = np.split(call.mixed, PARTS, axis=-1)
        call.cache[:, call.places, 0] = b * x
        out = np.zeros_like(c)
        for first, tokens, position, table in np.concatenate([call.singles, call.tiles]).tolist():
            every = np.arange(position + tokens)
            held = call.cache[0, call.pages[table + every // call.page] * call.page + every % call.page, 0]
            rows = slice(first, first + tokens)
            out[:, rows] = c[:, rows] * _sums(held, call.weight, every[position:])
        return out


def _sums(held: np.ndarray, weight: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Of the rows `held` [C, W], what a convolution gives at these positions."""
    total = np.zeros((len(at), held.shape[1]), held.dtype)
    for back, taps in enumerate(weight[::-1]):
        seen = at >= back
        total[seen] += taps * held[at[seen] - back]
    return total
