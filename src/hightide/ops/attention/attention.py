"""Attention with and without a KV cache."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.ops.attention.attention_cost import AttentionOp, Seen, seen_in_cache
from hightide.ops.attention.cache import check_cache, check_position
from hightide.ops.attention.cache_updates import update_caches
from hightide.ops.attention.steps import Attention, attend
from hightide.ops.contract import Context, Dispatch, Int, Op, Tensor, op
from hightide.ops.elementwise.elementwise import broadcast
from hightide.ops.fill.fill import fill


@dataclass(frozen=True)
class Rule:
    """Which keys a query sees, and what becomes of its scores; see `Attention`."""

    causal: bool
    scale: float | None
    window: int = 0
    softcap: float = 0.0
    sinks: Any = None  # [H], or None

    def over_cache(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, out: Tensor, position: Int) -> Attention:
        """q [1, S, H, D] over the keys of a cache up to those of its own S tokens."""
        return Attention(
            q=q,
            k=k_cache,
            v=v_cache,
            out=out,
            position=position,
            added=q.dims[1],
            causal=self.causal,
            scale=scale_of(self.scale, q.width),
            window=self.window,
            softcap=self.softcap,
            sinks=self.sinks,
        )

    def seen(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, position: Int, env: Env) -> Seen:
        return seen_in_cache(q, q.dims[2], k_cache, v_cache, position, env, self.causal, self.window)


class CachedAttention(AttentionOp):
    """k and v [1, S, Hkv, D] into the caches [1, C, Hkv, D] at `position`, then q [1, S, H, D] over position + S keys.

    Each kv head serves H / Hkv query heads.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    k_cache: Tensor
    v_cache: Tensor
    position: Int
    mutates = ("k_cache", "v_cache")

    def outputs(self, ctx: Context) -> list[Dims]:
        q, k, v = self.q, self.k, self.v
        check_cache(ctx, k, self.k_cache, self.position)
        check_cache(ctx, v, self.v_cache, self.position)
        if q.rank != 4 or q.dims[0] != 1 or q.dims[1] != k.dims[1] or q.width != k.width or q.dims[2] % k.dims[2]:
            raise InputError(f"queries {list(q.dims)} do not go with keys {list(k.dims)}")
        return [(*q.dims[:-1], v.width)]

    @property
    def rule(self) -> Rule:
        raise NotImplementedError

    def seen(self, env: Env) -> Seen:
        return self.rule.seen(self.q, self.k_cache, self.v_cache, self.position, env)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield update_caches(self.k, self.v, self.k_cache, self.v_cache, position=self.position)
        yield from attend(ctx, self.rule.over_cache(self.q, self.k_cache, self.v_cache, out, self.position))

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> np.ndarray:
        call: Any = cls.bound(dict(arguments))
        rows = slice(call.position, call.position + call.q.shape[1])
        call.k_cache[:, rows], call.v_cache[:, rows] = call.k, call.v
        return attended(call.q, call.k_cache, call.v_cache, call.position, call.rule)


@op("sdpa_with_kv_cache.default", "llama.sdpa_with_kv_cache.default", family="attention")
class SdpaWithKvCache(CachedAttention):
    """Attention over a KV cache as exporters write it.

    The serialized sequence length is the exporter's, not the live one: S is read from q.
    """

    seq_len: Int
    mask: Tensor | None
    dropout: float
    causal: bool
    scale: float | None

    def outputs(self, ctx: Context) -> list[Dims]:
        refuse_mask(self.mask, self.dropout)
        return super().outputs(ctx)

    @property
    def rule(self) -> Rule:
        return Rule(self.causal, self.scale)


@op("hightide.attention.default", family="attention")
class CausalAttention(CachedAttention):
    """Causal attention over a KV cache, as models are built with.

    `sinks` [H] are one more score for each head, whose key has no value.
    """

    scale: float
    window: int
    softcap: float
    sinks: Tensor | None = None

    def outputs(self, ctx: Context) -> list[Dims]:
        check_sinks(self.sinks, self.q)
        return super().outputs(ctx)

    @property
    def rule(self) -> Rule:
        return Rule(True, self.scale, self.window, self.softcap, self.sinks)


def attended(q: np.ndarray, k_cache: np.ndarray, v_cache: np.ndarray, position: int, rule: Rule) -> np.ndarray:
    """q [1, S, H, D] over the first position + S keys of the caches [1, C, Hkv, D]."""
    tokens, heads = q.shape[1:3]
    keys = position + tokens
    repeat = heads // k_cache.shape[2]
    every_k = np.repeat(k_cache[:, :keys], repeat, axis=2).transpose(0, 2, 1, 3)  # [1, H, keys, D]
    every_v = np.repeat(v_cache[:, :keys], repeat, axis=2).transpose(0, 2, 1, 3)
    at, key = position + np.arange(tokens)[:, None], np.arange(keys)
    hidden = (rule.causal & (key > at)) | (key <= at - rule.window if rule.window else np.zeros((tokens, keys), bool))
    bias = np.where(hidden, -np.inf, 0).astype(q.dtype)
    out = softmax_attention(q.transpose(0, 2, 1, 3), every_k, every_v, bias, rule.scale, rule.softcap, rule.sinks)
    return out.transpose(0, 2, 1, 3)


@op("hightide.attend.default", family="attention")
class Attend(AttentionOp):
    """Attention of q [1, S, H, D] over a KV cache that already holds its S keys and values: nothing is written."""

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    position: Int
    causal: bool
    scale: float | None
    window: int = 0
    softcap: float = 0.0
    sinks: Tensor | None = None

    def outputs(self, ctx: Context) -> list[Dims]:
        check_sinks(self.sinks, self.q)
        return check_queries(ctx, self.q, self.k_cache, self.v_cache, self.position)

    @property
    def rule(self) -> Rule:
        return Rule(self.causal, self.scale, self.window, self.softcap, self.sinks)

    def seen(self, env: Env) -> Seen:
        return self.rule.seen(self.q, self.k_cache, self.v_cache, self.position, env)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return attend(ctx, self.rule.over_cache(self.q, self.k_cache, self.v_cache, out, self.position))

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> np.ndarray:
        call: Any = cls.bound(dict(arguments))
        return attended(call.q, call.k_cache, call.v_cache, call.position, call.rule)


class CustomArguments(Op):
    """What ExecuTorch's own attention over a cache is given."""

    q: Tensor
    k: Tensor
    v: Tensor
    position: Int
    mask: Tensor | None = None
    dropout: float = 0.0
    causal: bool = False
    scale: float | None = None


@op("custom_sdpa.default", "llama.custom_sdpa.default", family="attention")
class CustomSdpa(CustomArguments, AttentionOp):
    """As above, in ExecuTorch's words; what its exporter could not join with the updates of the cache.

    With a mask, q sees all keys of the cache, wherever it is: the mask says which of them count.
    """

    def outputs(self, ctx: Context) -> list[Dims]:
        refuse_mask(self.mask if self.causal else None, self.dropout)
        if self.mask is None:
            return check_queries(ctx, self.q, self.k, self.v, self.position)
        dims = check_queries(ctx, self.q, self.k, self.v, 0)
        check_mask(self.mask, (1, self.q.dims[2], self.q.dims[1], self.k.dims[1]))
        return dims

    @property
    def rule(self) -> Rule:
        return Rule(self.causal, self.scale)

    def seen(self, env: Env) -> Seen:
        if self.mask is None:
            return self.rule.seen(self.q, self.k, self.v, self.position, env)
        (_, tokens, heads, _), keys = self.q.dims, self.k.dims[1]
        return Seen(self.k, self.v, heads, tokens, keys, keys, tokens * keys)

    def attention(self, out: Tensor) -> Attention:
        attention = self.rule.over_cache(self.q, self.k, self.v, out, self.position)
        if self.mask is None:
            return attention
        return replace(attention, position=0, added=self.k.dims[1], mask=self.mask)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return attend(ctx, self.attention(out))

    @staticmethod
    def reference(
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        position: int,
        mask: np.ndarray | None,
        causal: bool,
        scale: float | None,
    ) -> np.ndarray:
        if mask is None:
            return attended(q, k, v, position, Rule(causal, scale))
        return masked(q, k, v, mask, scale)


def masked(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, scale: float | None) -> np.ndarray:
    """q [1, S, H, D] over all keys of a cache [1, C, Hkv, D], with a mask that broadcasts to [1, H, S, C]."""
    every_k, every_v = (np.repeat(x, q.shape[2] // k.shape[2], axis=2).transpose(0, 2, 1, 3) for x in (k, v))
    return softmax_attention(q.transpose(0, 2, 1, 3), every_k, every_v, mask, scale).transpose(0, 2, 1, 3)


@op("et_vk.sdpa.default", family="attention")
class Sdpa(AttentionOp):
    """softmax(q @ k.T * scale + mask) @ v over [B, H, S, D]; no cache, no causal rule.

    A row from which the mask hides every key (by -inf) is zero, as torch has it; so is one without keys.
    """

    HEADS, ROWS = 1, 2  # where the dims of q, k and v have them

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None = None
    scale: float | None = None

    def outputs(self, ctx: Context) -> list[Dims]:
        q, k, v, mask = self.q, self.k, self.v, self.mask
        alike = (0, self.HEADS)
        if {q.rank, k.rank, v.rank} != {4} or k.dims[:-1] != v.dims[:-1] or any(q.dims[n] != k.dims[n] for n in alike):
            raise InputError(f"queries {list(q.dims)}, keys {list(k.dims)} and values {list(v.dims)} do not match")
        if q.width != k.width:
            raise InputError(f"queries {list(q.dims)} cannot attend to keys {list(k.dims)}")
        if mask is not None:
            check_mask(mask, (q.dims[0], q.dims[self.HEADS], q.dims[self.ROWS], k.dims[self.ROWS]))
        return [(*q.dims[:-1], v.width)]

    def seen(self, env: Env) -> Seen:
        heads, tokens, keys = self.q.dims[0] * self.q.dims[self.HEADS], self.q.dims[self.ROWS], self.k.dims[self.ROWS]
        return Seen(self.k, self.v, heads, tokens, keys, keys, tokens * keys, cached=False)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        keys = self.k.dims[self.ROWS]
        if not keys:
            return [fill(out, 0.0)] if out.numel else []
        return attend(
            ctx,
            Attention(
                q=self.q,
                k=self.k,
                v=self.v,
                out=out,
                position=0,
                added=keys,
                causal=False,
                scale=scale_of(self.scale, self.q.width),
                mask=self.mask,
                heads_first=self.HEADS == 1,
                batched=self.HEADS == 2,
            ),
        )

    @staticmethod
    def reference(
        q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, scale: float | None
    ) -> np.ndarray:
        return softmax_attention(q, k, v, mask, scale)


@op("hightide.sdpa_rows.default", family="attention")
class SdpaRows(Sdpa):
    """The same over [B, S, H, D]: rows before heads, as linears leave them. The mask is as above."""

    HEADS, ROWS = 2, 1

    @staticmethod
    def reference(
        q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, scale: float | None
    ) -> np.ndarray:
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
        return softmax_attention(q, k, v, mask, scale).swapaxes(1, 2)


def softmax_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None,
    scale: float | None,
    softcap: float = 0.0,
    sinks: np.ndarray | None = None,
) -> np.ndarray:
    scores = q @ k.swapaxes(-1, -2) * np.asarray(scale_of(scale, q.shape[-1]), q.dtype)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if mask is not None:
        scores = scores + mask
    if sinks is not None:  # as one more key, whose value is zero
        column = np.broadcast_to(sinks.astype(scores.dtype)[:, None, None], (*scores.shape[:-1], 1))
        scores = np.concatenate([scores, column], axis=-1)
        v = np.concatenate([v, np.zeros((*v.shape[:-2], 1, v.shape[-1]), v.dtype)], axis=-2)
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ v


def scale_of(scale: float | None, depth: int) -> float:
    return 1 / math.sqrt(depth) if scale is None else scale


def refuse_mask(mask: Tensor | None, dropout: float) -> None:
    if mask is not None or dropout:
        raise UnsupportedError("attention over a cache takes no mask and no dropout")


def check_sinks(sinks: Tensor | None, q: Tensor) -> None:
    if sinks is not None and (q.rank != 4 or sinks.dims != (q.dims[2],)):
        raise InputError(f"sinks of {list(sinks.dims)} do not go with queries {list(q.dims)}")


def check_mask(mask: Tensor, full: Dims) -> None:
    if broadcast(mask.dims, full) != full:
        raise InputError(f"a mask of {list(mask.dims)} does not broadcast to {list(full)}")


def check_queries(ctx: Context, q: Tensor, k_cache: Tensor, v_cache: Tensor, position: Int) -> list[Dims]:
    if q.rank != 4 or k_cache.rank != 4 or v_cache.rank != 4 or k_cache.dims[:3] != v_cache.dims[:3]:
        raise InputError(f"caches of {list(k_cache.dims)} and {list(v_cache.dims)} are not keys and values")
    if (q.dims[0], k_cache.dims[0]) != (1, 1) or q.width != k_cache.width or q.dims[2] % k_cache.dims[2]:
        raise InputError(f"queries {list(q.dims)} do not go with a cache of {list(k_cache.dims)}")
    check_position(ctx, q.dims[1], k_cache, position)
    return [(*q.dims[:-1], v_cache.width)]
