"""New rows of a KV cache, in it or in a copy of it: at a position, or each at a place of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.ops.attention.attention_cost import AttentionOp, Seen, seen_in_cache
from hightide.ops.attention.cache import check_cache
from hightide.ops.contract import Context, Dispatch, Int, Op, Tensor, ceil_div, kernel, op
from hightide.ops.movement.strided import Along, moved_kind, place_along


def update_caches(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, **where: Any) -> Dispatch:
    """k and v [1, S, H, D] into their caches [1, C, H, D]: at a `position`, or at `places`, of which there are S."""
    key_width, value_width = k.dims[2] * k.dims[3], v.dims[2] * v.dims[3]
    step = 4 if key_width % 4 == 0 and value_width % 4 == 0 else 1
    paged, codes = "places" in where, moved_kind(k, k_cache) == "u8"
    if codes and step == 1:
        raise UnsupportedError(f"rows of {key_width} and {value_width} codes are not whole words")
    if paged:
        where["capacity"] = k_cache.dims[1]
    return kernel("attention/kv_update.wgsl", VEC4=step == 4, PAGED=paged, CODES=codes).over(
        ceil_div((k.numel + v.numel) // step, 64),
        k=k,
        v=v,
        k_cache=k_cache,
        v_cache=v_cache,
        keys=k.numel // step,
        values=v.numel // step,
        key_width=key_width // step,
        value_width=value_width // step,
        **where,
    )


@op("update_cache.default", "llama.update_cache.default", family="attention")
class UpdateCache(AttentionOp):
    """Writes new keys or values at a position; the result is a placeholder that nobody reads."""

    x: Tensor
    cache: Tensor
    position: Int
    mutates = ("cache",)

    def outputs(self, ctx: Context) -> list[Dims]:
        check_cache(ctx, self.x, self.cache, self.position)
        return [(1,)]

    def seen(self, env: Env) -> Seen:
        return seen_in_cache(self.x, self.x.dims[2], self.cache, None, self.position, env)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return _cache_update(self.x, self.cache, position=self.position)

    @staticmethod
    def reference(x: np.ndarray, cache: np.ndarray, position: int) -> np.ndarray:
        cache[:, position : position + x.shape[1]] = x
        return np.zeros(1, x.dtype)


@op("llama.update_cache_with_indices.default", family="attention")
class UpdateCacheAt(AttentionOp):
    """As above, but each row has a place of its own, as in a ring; a row whose place is not in the cache is dropped."""

    x: Tensor
    cache: Tensor
    position: Int  # says nothing
    places: Tensor
    mutates = ("cache",)

    def outputs(self, ctx: Context) -> list[Dims]:
        x, cache = self.x, self.cache
        if x.rank != 4 or cache.rank != 4 or (x.dims[0], *x.dims[2:]) != (cache.dims[0], *cache.dims[2:]):
            raise InputError(f"{list(x.dims)} does not fit a cache of {list(cache.dims)}")
        if self.places.dims != x.dims[:2]:
            raise InputError(f"places of {list(self.places.dims)} are not one for each row of {list(x.dims)}")
        return [(1,)]

    def seen(self, env: Env) -> Seen:
        return seen_in_cache(self.x, self.x.dims[2], self.cache, None, 0, env)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return _cache_update(self.x, self.cache, places=self.places)

    @staticmethod
    def reference(x: np.ndarray, cache: np.ndarray, places: np.ndarray) -> np.ndarray:
        for batch, token in np.argwhere((places >= 0) & (places < cache.shape[1])):
            cache[batch, places[batch, token]] = x[batch, token]
        return np.zeros(1, x.dtype)


@op("hightide.updated_cache.default", family="movement")
class UpdatedCache(Op):
    """A copy of a cache, with new keys or values at a position."""

    x: Tensor
    cache: Tensor
    position: Int

    def outputs(self, ctx: Context) -> list[Dims]:
        check_cache(ctx, self.x, self.cache, self.position)
        return [self.cache.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield place_along(self.x, out, Along(1, self.position), self.cache)

    @staticmethod
    def reference(x: np.ndarray, cache: np.ndarray, position: int) -> np.ndarray:
        updated = cache.copy()
        updated[:, position : position + x.shape[1]] = x
        return updated


def _cache_update(x: Tensor, cache: Tensor, **where: Any) -> Iterator[Dispatch]:
    """x [B, S, H, D] into its cache [B, C, H, D]: at a `position`, or at `places` [B, S]."""
    if not x.numel:
        return
    width, bytes_ = x.dims[2] * x.dims[3], moved_kind(x, cache) == "u8"
    step = 4 if width % 4 == 0 and not bytes_ else 1
    given = {"x": x, "cache": cache, "tokens": x.dims[1], "context": cache.dims[1], "width": width // step, **where}
    if bytes_:
        spread = "places" in where or x.dims[0] > 1
        words = ceil_div(cache.numel if spread else x.numel + 3, 4)  # rows may begin within a word, and end in one
        yield kernel("attention/cache_bytes.wgsl", SPREAD=spread, PLACES="places" in where).over(
            ceil_div(words, 64), count=words, numel=cache.numel, **given
        )
    else:
        count = x.numel // step
        yield kernel("attention/cache_update.wgsl", VEC4=step == 4, PLACES="places" in where).over(
            ceil_div(count, 64), count=count, **given
        )
