"""What goes into a KV cache: new keys and values as they are, or turned by their positions on the way."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.legacy import (
    Context,
    Dispatch,
    Kernel,
    LiveInt,
    Op,
    Tensor,
    ceil_div,
    expr_of,
    kernel,
    live_params,
    op,
    require_dtype,
)
from hightide.ops.norm.norm import rms_normed
from hightide.ops.rotary.turns import turned_halves, turned_neighbours


def check_position(ctx: Context, tokens: int, cache: Tensor, position: int | LiveInt) -> None:
    context = cache.dims[1]
    past = "position {value} plus " + f"{tokens} tokens is outside the context of {context}"
    ctx.require(expr_of(position), 0, context - tokens, past)


def check_cache(ctx: Context, x: Tensor, cache: Tensor, position: int | LiveInt) -> None:
    if x.rank != 4 or cache.rank != 4 or (x.dims[0], *x.dims[2:]) != (cache.dims[0], *cache.dims[2:]):
        raise InputError(f"{list(x.dims)} does not fit a cache of {list(cache.dims)}")
    check_position(ctx, x.dims[1], cache, position)


def update_cache(x: Tensor, cache: Tensor, position: int | LiveInt) -> Dispatch:
    """x [B, S, H, D] into cache [B, C, H, D] at `position`."""
    width = x.dims[2] * x.dims[3]
    step, kind = (4, "vec4<f32>") if width % 4 == 0 else (1, "f32")
    count = x.numel // step
    return Dispatch(
        kernel("attention/cache_update.wgsl", T=kind),
        groups=ceil_div(count, 64),
        params=(count, x.dims[1], cache.dims[1], width // step, *live_params(position)),
        reads=(x,),
        writes=(cache,),
    )


def update_caches(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, position: int | LiveInt) -> Dispatch:
    """k and v [1, S, H, D] into their caches [1, C, H, D] at `position`."""
    key_width, value_width = k.dims[2] * k.dims[3], v.dims[2] * v.dims[3]
    step, kind = (4, "vec4<f32>") if key_width % 4 == 0 and value_width % 4 == 0 else (1, "f32")
    sizes = (k.numel, v.numel, key_width, value_width)
    return Dispatch(
        kernel("attention/kv_update.wgsl", T=kind),
        groups=ceil_div((k.numel + v.numel) // step, 64),
        params=(*(size // step for size in sizes), *live_params(position)),
        reads=(k, v),
        writes=(k_cache, v_cache),
    )


@op("update_cache.default", "llama.update_cache.default")
class UpdateCache(Op):
    """Writes new keys or values at a position; the result is a placeholder that nobody reads."""

    mutates = (1,)

    def outputs(self, ctx: Context, x: Tensor, cache: Tensor, position: int | LiveInt) -> list[Dims]:
        check_cache(ctx, x, cache, position)
        return [(1,)]

    def plan(self, ctx: Context, x: Tensor, cache: Tensor, position: int | LiveInt, *, out: Tensor) -> Any:
        require_dtype("f32", x, cache)
        yield update_cache(x, cache, position)

    def reference(self, x: np.ndarray, cache: np.ndarray, position: int) -> np.ndarray:
        cache[:, position : position + x.shape[1]] = x
        return np.zeros(1, x.dtype)


@op("hightide.rope_cache.default")
class RopeCache(Op):
    """Joined q, k and v [1, S, (heads + 2 * kv_heads) * depth] -> q, turned; k, turned, and v into their caches.

    Table rows are absolute positions. Style "halves" turns element d with d + rotary/2 and has tables
    [L, rotary]; "interleaved" turns neighbours and has tables [L, rotary/2]; elements past `rotary` stay.
    With `q_norm` and `k_norm` (weights [depth]) each head of q and k is first divided by its root mean square.
    """

    mutates = (3, 4)

    def outputs(
        self,
        ctx: Context,
        qkv: Tensor,
        cos: Tensor,
        sin: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        position: int | LiveInt,
        heads: int,
        kv_heads: int,
        depth: int,
        style: str,
        q_norm: Tensor | None = None,
        k_norm: Tensor | None = None,
        eps: float = 0.0,
    ) -> list[Dims]:
        if qkv.rank != 3 or qkv.dims[0] != 1 or qkv.width != (heads + 2 * kv_heads) * depth or depth % 2:
            raise InputError(f"{list(qkv.dims)} is not {heads} and twice {kv_heads} heads of {depth} elements")
        for held in (k_cache, v_cache):
            if held.rank != 4 or held.dims[0] != 1 or held.dims[2:] != (kv_heads, depth):
                raise InputError(f"a cache of {list(held.dims)} does not hold {kv_heads} heads of {depth} elements")
        if style not in ("halves", "interleaved"):
            raise InputError(f"a rotary style is 'halves' or 'interleaved', not {style!r}")
        rotary = _rotary(cos, style)
        if cos.rank != 2 or cos.dims != sin.dims or rotary > depth or rotary % 2:
            raise InputError(f"tables of {list(cos.dims)} and {list(sin.dims)} do not turn heads of {depth} elements")
        if (q_norm is None) != (k_norm is None):
            raise InputError("queries and keys are both normed, or neither is")
        for norm in (q_norm, k_norm):
            if norm is not None and norm.dims != (depth,):
                raise InputError(f"a norm's weight of {list(norm.dims)} for heads of {depth} elements")
        tokens = qkv.dims[1]
        past = "position {value} plus " + f"{tokens} tokens is past the {cos.dims[0]} rows of the frequency table"
        ctx.require(expr_of(position), 0, cos.dims[0] - tokens, past)
        check_position(ctx, tokens, k_cache, position)
        check_position(ctx, tokens, v_cache, position)
        return [(1, tokens, heads, depth)]

    def plan(
        self,
        ctx: Context,
        qkv: Tensor,
        cos: Tensor,
        sin: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        position: int | LiveInt,
        heads: int,
        kv_heads: int,
        depth: int,
        style: str,
        q_norm: Tensor | None = None,
        k_norm: Tensor | None = None,
        eps: float = 0.0,
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        norms = tuple(norm for norm in (q_norm, k_norm) if norm is not None)
        require_dtype("f32", qkv, cos, sin, k_cache, v_cache, out, *norms)
        rotary = _rotary(cos, style)
        step = 4 if depth % 8 == 0 and rotary % 8 == 0 else 1
        pairs = depth // step // 2
        count = qkv.dims[1] * (heads + 2 * kv_heads) * pairs
        yield Dispatch(
            _rope_cache(step == 4, style == "halves", bool(norms)),
            groups=ceil_div(count, 64),
            params=(count, heads, kv_heads, pairs, rotary // step // 2, 1 / depth, float(eps), *live_params(position)),
            reads=(qkv, cos, sin, *norms),
            writes=(out, k_cache, v_cache),
        )

    def reference(
        self,
        qkv: np.ndarray,
        cos: np.ndarray,
        sin: np.ndarray,
        k_cache: np.ndarray,
        v_cache: np.ndarray,
        position: int,
        heads: int,
        kv_heads: int,
        depth: int,
        style: str,
        q_norm: np.ndarray | None = None,
        k_norm: np.ndarray | None = None,
        eps: float = 0.0,
    ) -> np.ndarray:
        rows = slice(position, position + qkv.shape[1])
        by_head = qkv.reshape(1, qkv.shape[1], heads + 2 * kv_heads, depth)
        q, k, v = np.split(by_head, [heads, heads + kv_heads], axis=2)
        if q_norm is not None and k_norm is not None:
            q, k = rms_normed(q, q_norm, eps), rms_normed(k, k_norm, eps)
        turn = turned_halves if style == "halves" else turned_neighbours
        c, s = cos[rows, None, :], sin[rows, None, :]  # [S, 1, rotary or rotary/2]
        k_cache[:, rows], v_cache[:, rows] = turn(k, c, s), v
        return turn(q, c, s)


def _rotary(table: Tensor, style: str) -> int:
    """How many elements of a head turn."""
    return table.width if style == "halves" else table.width * 2


NORM = """var squares = 0.0;
    for (var n = 0u; n < depth; n++) { squares += $DOT; }
    let scale = inverseSqrt(squares * params.mean + params.eps);
    if (head < params.heads) {
        a *= scale * q_norm[first];
        b *= scale * q_norm[second];
    } else if (head < params.heads + params.kv_heads) {
        a *= scale * k_norm[first];
        b *= scale * k_norm[second];
    }"""
# Two vec4s of neighbours as a vec4 of first and one of second elements, and back.
SHUFFLES = {
    "EVENS": "vec4<f32>(a.xz, b.xz)",
    "ODDS": "vec4<f32>(a.yw, b.yw)",
    "LOW": "vec4<f32>(turned_x.x, turned_y.x, turned_x.y, turned_y.y)",
    "HIGH": "vec4<f32>(turned_x.z, turned_y.z, turned_x.w, turned_y.w)",
}
PLAIN = {"EVENS": "a", "ODDS": "b", "LOW": "turned_x", "HIGH": "turned_y"}


@cache
def _rope_cache(vec4: bool, halves: bool, normed: bool) -> Kernel:
    element = "vec4<f32>" if vec4 else "f32"
    square = "dot(qkv[start + n], qkv[start + n])" if vec4 else "qkv[start + n] * qkv[start + n]"
    names = ("q_norm", "k_norm") if normed else ()
    declared = [
        f"@group(0) @binding({n}) var<storage, read> {name}: array<{element}>;" for n, name in enumerate(names, 5)
    ]
    outs = 5 + len(names)
    return kernel(
        "attention/rope_cache.wgsl",
        T=element,
        HALVES="true" if halves else "false",
        TABLE="2u" if halves else "1u",
        NORMS="\n".join(declared),
        NORM=NORM.replace("$DOT", square) if normed else "",
        OUT=outs,
        OUT_K=outs + 1,
        OUT_V=outs + 2,
        **(SHUFFLES if vec4 and not halves else PLAIN),
    )
