"""What the ops over a KV cache share: their checks, dispatches and meaning."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.attention.cache import check_cache, update_caches
from hightide.ops.attention.steps import Shape, attend
from hightide.ops.legacy import Context, Dispatch, LiveInt, Tensor, require_dtype


def check_attention(
    ctx: Context, q: Tensor, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, position: int | LiveInt
) -> list[Dims]:
    check_cache(ctx, k, k_cache, position)
    check_cache(ctx, v, v_cache, position)
    if q.rank != 4 or q.dims[0] != 1 or q.dims[1] != k.dims[1] or q.width != k.width or q.dims[2] % k.dims[2]:
        raise InputError(f"queries {list(q.dims)} do not go with keys {list(k.dims)}")
    return [(*q.dims[:-1], v.width)]


def cached_attention(
    ctx: Context,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    position: int | LiveInt,
    out: Tensor,
    causal: bool = True,
    scale: float | None = None,
    window: int = 0,
    softcap: float = 0.0,
) -> Iterator[Dispatch]:
    """K and V [1, S, Hkv, D] into the caches [1, C, Hkv, D] at `position`, then attention over position + S keys."""
    require_dtype("f32", k, v)
    yield update_caches(k, v, k_cache, v_cache, position)
    yield from attend_cache(ctx, q, k_cache, v_cache, position, out, causal, scale, window, softcap)


def attend_cache(
    ctx: Context,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    position: int | LiveInt,
    out: Tensor,
    causal: bool = True,
    scale: float | None = None,
    window: int = 0,
    softcap: float = 0.0,
) -> Iterator[Dispatch]:
    """Attention of q [1, S, H, D] over the first position + S keys of the caches [1, C, Hkv, D]."""
    require_dtype("f32", q, k_cache, v_cache, out)
    _, tokens, heads, depth = q.dims
    kv_heads, value_depth = v_cache.dims[2:]
    shape = Shape(
        heads=heads,
        kv_heads=kv_heads,
        tokens=tokens,
        depth=depth,
        value_depth=value_depth,
        capacity=k_cache.dims[1],
        position=position,
        added=tokens,
        causal=causal,
        scale=1 / math.sqrt(depth) if scale is None else float(scale),
        window=window,
        softcap=softcap,
        q_strides=(depth, heads * depth),
        k_strides=(depth, kv_heads * depth),
        v_strides=(value_depth, kv_heads * value_depth),
        out_strides=(value_depth, heads * value_depth),
    )
    yield from attend(ctx, shape, q, k_cache, v_cache, None, heads, out)


def cached_reference(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    k_cache: np.ndarray,
    v_cache: np.ndarray,
    position: int,
    causal: bool = True,
    scale: float | None = None,
    window: int = 0,
    softcap: float = 0.0,
) -> np.ndarray:
    keys = position + q.shape[1]
    k_cache[:, position:keys], v_cache[:, position:keys] = k, v
    return attend_reference(q, k_cache, v_cache, position, causal, scale, window, softcap)


def attend_reference(
    q: np.ndarray,
    k_cache: np.ndarray,
    v_cache: np.ndarray,
    position: int,
    causal: bool = True,
    scale: float | None = None,
    window: int = 0,
    softcap: float = 0.0,
) -> np.ndarray:
    tokens, heads = q.shape[1:3]
    keys = position + tokens
    repeat = heads // k_cache.shape[2]
    every_k = np.repeat(k_cache[:, :keys], repeat, axis=2).transpose(0, 2, 1, 3)  # [1, H, keys, D]
    every_v = np.repeat(v_cache[:, :keys], repeat, axis=2).transpose(0, 2, 1, 3)
    at, key = position + np.arange(tokens)[:, None], np.arange(keys)
    hidden = (causal & (key > at)) | (key <= at - window if window else np.zeros((tokens, keys), bool))
    bias = np.where(hidden, -np.inf, 0).astype(q.dtype)
    return plain_attention(q.transpose(0, 2, 1, 3), every_k, every_v, bias, scale, softcap).transpose(0, 2, 1, 3)


def plain_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, scale: float | None, softcap: float = 0.0
) -> np.ndarray:
    scores = q @ k.swapaxes(-1, -2) * np.asarray(1 / math.sqrt(q.shape[-1]) if scale is None else scale, q.dtype)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if mask is not None:
        scores = scores + mask
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v
