"""Attention with and without a KV cache."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.attention.cache import check_position
from hightide.ops.attention.cached import (
    attend_cache,
    attend_reference,
    cached_attention,
    cached_reference,
    check_attention,
    plain_attention,
)
from hightide.ops.attention.steps import Shape, attend
from hightide.ops.elementwise.elementwise import broadcast
from hightide.ops.legacy import Context, Dispatch, LiveInt, Op, Tensor, op, require_dtype


@op("sdpa_with_kv_cache.default", "llama.sdpa_with_kv_cache.default")
class SdpaWithKvCache(Op):
    """Attention over a KV cache as exporters write it; each kv head serves H / Hkv query heads.

    The serialized sequence length is the exporter's, not the live one: S is read from q.
    """

    mutates = (3, 4)

    def outputs(
        self,
        ctx: Context,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        position: int | LiveInt,
        seq_len: Any,
        mask: Tensor | None,
        dropout: float,
        causal: bool,
        scale: float | None,
    ) -> list[Dims]:
        if mask is not None or dropout:
            raise UnsupportedError("attention over a cache takes no mask and no dropout here")
        return check_attention(ctx, q, k, v, k_cache, v_cache, position)

    def plan(
        self,
        ctx: Context,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        position: int | LiveInt,
        seq_len: Any,
        mask: Tensor | None,
        dropout: float,
        causal: bool,
        scale: float | None,
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        return cached_attention(ctx, q, k, v, k_cache, v_cache, position, out, bool(causal), scale)

    def reference(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        k_cache: np.ndarray,
        v_cache: np.ndarray,
        position: int,
        seq_len: Any,
        mask: None,
        dropout: float,
        causal: bool,
        scale: float | None,
    ) -> np.ndarray:
        return cached_reference(q, k, v, k_cache, v_cache, position, causal, scale)


@op("hightide.attention.default")
class CausalAttention(Op):
    """Causal attention over a KV cache: (q, k, v, k_cache, v_cache, position, scale, window, softcap)."""

    mutates = (3, 4)

    def outputs(self, ctx: Context, q: Tensor, k: Tensor, v: Tensor, *args: Any) -> list[Dims]:
        return check_attention(ctx, q, k, v, *args[:3])

    def plan(
        self,
        ctx: Context,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        position: int | LiveInt,
        scale: float,
        window: int,
        softcap: float,
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        return cached_attention(ctx, q, k, v, k_cache, v_cache, position, out, True, scale, window, float(softcap))

    def reference(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        k_cache: np.ndarray,
        v_cache: np.ndarray,
        position: int,
        scale: float,
        window: int,
        softcap: float,
    ) -> np.ndarray:
        return cached_reference(q, k, v, k_cache, v_cache, position, True, scale, window, softcap)


@op("hightide.attend.default")
class Attend(Op):
    """Attention of q [1, S, H, D] over a KV cache that already holds its S keys and values: nothing is written."""

    def outputs(
        self, ctx: Context, q: Tensor, k_cache: Tensor, v_cache: Tensor, position: int | LiveInt, *settings: Any
    ) -> list[Dims]:
        if q.rank != 4 or k_cache.rank != 4 or v_cache.rank != 4 or k_cache.dims[:3] != v_cache.dims[:3]:
            raise InputError(f"caches of {list(k_cache.dims)} and {list(v_cache.dims)} are not keys and values")
        if (q.dims[0], k_cache.dims[0]) != (1, 1) or q.width != k_cache.width or q.dims[2] % k_cache.dims[2]:
            raise InputError(f"queries {list(q.dims)} do not go with a cache of {list(k_cache.dims)}")
        check_position(ctx, q.dims[1], k_cache, position)
        return [(*q.dims[:-1], v_cache.width)]

    def plan(
        self,
        ctx: Context,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        position: int | LiveInt,
        causal: bool,
        scale: float | None,
        window: int = 0,
        softcap: float = 0.0,
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        return attend_cache(ctx, q, k_cache, v_cache, position, out, bool(causal), scale, window, float(softcap))

    def reference(
        self,
        q: np.ndarray,
        k_cache: np.ndarray,
        v_cache: np.ndarray,
        position: int,
        causal: bool,
        scale: float | None,
        window: int = 0,
        softcap: float = 0.0,
    ) -> np.ndarray:
        return attend_reference(q, k_cache, v_cache, position, causal, scale, window, softcap)


@op("custom_sdpa.default", "llama.custom_sdpa.default")
class CustomSdpa(Op):
    """As above, in ExecuTorch's words; what its exporter could not join with the updates of the cache."""

    def outputs(
        self,
        ctx: Context,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        position: int | LiveInt,
        mask: Tensor | None = None,
        dropout: float = 0.0,
        *_: Any,
    ) -> list[Dims]:
        if mask is not None or dropout:
            raise UnsupportedError("attention over a cache takes no mask and no dropout")
        return Attend().outputs(ctx, q, k, v, position)

    def plan(
        self,
        ctx: Context,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        position: int | LiveInt,
        mask: None = None,
        dropout: float = 0.0,
        causal: bool = False,
        scale: float | None = None,
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        return attend_cache(ctx, q, k, v, position, out, bool(causal), scale, 0, 0.0)

    def reference(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        position: int,
        mask: None = None,
        dropout: float = 0.0,
        causal: bool = False,
        scale: float | None = None,
    ) -> np.ndarray:
        return attend_reference(q, k, v, position, causal, scale, 0, 0.0)


@op("et_vk.sdpa.default")
class Sdpa(Op):
    """softmax(q @ k.T * scale + mask) @ v over [B, H, S, D]; no cache, no causal rule."""

    def outputs(
        self, ctx: Context, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, scale: float | None = None
    ) -> list[Dims]:
        if {q.rank, k.rank, v.rank} != {4} or k.dims[:-1] != v.dims[:-1] or q.dims[:2] != k.dims[:2]:
            raise InputError(f"queries {list(q.dims)}, keys {list(k.dims)} and values {list(v.dims)} do not match")
        if q.width != k.width or not k.dims[2]:
            raise InputError(f"queries {list(q.dims)} cannot attend to keys {list(k.dims)}")
        if mask is not None:
            full = (*q.dims[:3], k.dims[2])
            if broadcast(mask.dims, full) != full:
                raise InputError(f"a mask of {list(mask.dims)} does not broadcast to {list(full)}")
        return [(*q.dims[:-1], v.width)]

    def plan(
        self,
        ctx: Context,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        scale: float | None = None,
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        require_dtype("f32", q, k, v, out, *([mask] if mask else []))
        batch, heads, tokens, depth = q.dims
        keys = k.dims[2]
        shape = Shape(
            heads=batch * heads,
            kv_heads=batch * heads,
            tokens=tokens,
            depth=depth,
            value_depth=v.width,
            capacity=keys,
            position=0,
            added=keys,
            causal=False,
            scale=1 / math.sqrt(depth) if scale is None else float(scale),
            window=0,
            softcap=0.0,
            q_strides=(tokens * depth, depth),
            k_strides=(keys * depth, depth),
            v_strides=(keys * v.width, v.width),
            out_strides=(tokens * v.width, v.width),
        )
        yield from attend(ctx, shape, q, k, v, mask, heads, out)

    def reference(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        mask: np.ndarray | None = None,
        scale: float | None = None,
    ) -> np.ndarray:
        return plain_attention(q, k, v, mask, scale)
