"""What goes into a KV cache: new keys and values as they are, or turned by their positions on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.ops.attention.attention_cost import AttentionOp, Seen, seen_in_cache
from hightide.ops.attention.steps import Turn
from hightide.ops.contract import Context, Dispatch, Int, Kernel, Tensor, ceil_div, expr_of, kernel, op
from hightide.ops.kernel import Bound
from hightide.ops.norm.norm import rms_normed
from hightide.ops.rotary.turns import check_rows, turned_halves, turned_neighbours
from hightide.units import counted


def check_position(ctx: Context, tokens: int, cache: Tensor, position: Int) -> None:
    context = cache.dims[1]
    past = "position {value} plus " + f"{counted(tokens, 'token')} is outside the context of {context}"
    ctx.require(expr_of(position), 0, context - tokens, past)


def check_cache(ctx: Context, x: Tensor, cache: Tensor, position: Int) -> None:
    if x.rank != 4 or cache.rank != 4 or (x.dims[0], *x.dims[2:]) != (cache.dims[0], *cache.dims[2:]):
        raise InputError(f"{list(x.dims)} does not fit a cache of {list(cache.dims)}")
    check_position(ctx, x.dims[1], cache, position)


class RopeOp(AttentionOp):
    """Joined q, k and v [1, S, (heads + 2 * kv_heads) * depth] -> q, turned; k, turned, and v into their caches.

    Table rows are absolute positions. Style "halves" turns element d with d + rotary/2 and has tables
    [L, rotary]; "interleaved" turns neighbours and has tables [L, rotary/2]; elements past `rotary` stay.
    With `q_norm` and `k_norm` (weights [depth]) each head of q and k is first divided by its root mean square.
    """

    qkv: Tensor
    cos: Tensor
    sin: Tensor
    k_cache: Tensor
    v_cache: Tensor
    heads: int
    kv_heads: int
    depth: int
    style: str
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None
    eps: float = 0.0
    mutates = ("k_cache", "v_cache")

    @property
    def rotary(self) -> int:
        """How many elements of a head turn."""
        return self.cos.width if self.style == "halves" else self.cos.width * 2

    def outputs(self, ctx: Context) -> list[Dims]:
        qkv, cos, sin, heads, kv_heads, depth = self.qkv, self.cos, self.sin, self.heads, self.kv_heads, self.depth
        if qkv.rank != 3 or qkv.dims[0] != 1 or qkv.width != (heads + 2 * kv_heads) * depth or depth % 2:
            raise InputError(f"{list(qkv.dims)} is not {heads} and twice {kv_heads} heads of {depth} elements")
        for held in (self.k_cache, self.v_cache):
            if held.rank != 4 or held.dims[0] != 1 or held.dims[2:] != (kv_heads, depth):
                raise InputError(f"a cache of {list(held.dims)} does not hold {kv_heads} heads of {depth} elements")
        if self.style not in ("halves", "interleaved"):
            raise InputError(f"a rotary style is 'halves' or 'interleaved', not {self.style!r}")
        if cos.rank != 2 or cos.dims != sin.dims or self.rotary > depth or self.rotary % 2:
            raise InputError(f"tables of {list(cos.dims)} and {list(sin.dims)} do not turn heads of {depth} elements")
        if (self.q_norm is None) != (self.k_norm is None):
            raise InputError("queries and keys are both normed, or neither is")
        for norm in (self.q_norm, self.k_norm):
            if norm is not None and norm.dims != (depth,):
                raise InputError(f"a norm's weight of {list(norm.dims)} for heads of {depth} elements")
        self.check_where(ctx)
        return [(1, qkv.dims[1], heads, depth)]

    def check_where(self, ctx: Context) -> None:
        """The rows must fit the tables and the caches."""
        raise NotImplementedError

    def where(self) -> dict[str, Any]:
        """What the kernel is given to find rows of the tables and of the caches."""
        raise NotImplementedError

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return self.turned(ctx, out)

    def turned(self, ctx: Context, out: Bound) -> Iterator[Dispatch]:
        """The queries into `out`, keys and values into their caches."""
        where, step = self.where(), self._step
        variant = step == 4, self.style == "halves", self.q_norm is not None, "places" in where
        whole = len(_rope_cache(*variant).interface.binding_names) <= ctx.choices.traits.storage_buffers
        heads = {"": self.heads + 2 * self.kv_heads} if whole else {"q": self.heads, "kv": 2 * self.kv_heads}
        given = self._given()
        for part, own in heads.items():
            q, kv = part != "kv", part != "q"
            count = self.qkv.dims[1] * own * given["pairs"]
            given |= {"q_norm": self.q_norm if q else None, "k_norm": self.k_norm if kv else None}
            yield _rope_cache(*variant, part).over(
                ceil_div(count, 64),
                q=out if q else None,
                k_cache=self.k_cache if kv else None,
                v_cache=self.v_cache if kv else None,
                count=count,
                kv_heads=self.kv_heads,
                **given,
                **(where if kv else {**where, "places": None}),
            )

    def turn(self) -> Turn:
        """The same within an attention over the caches."""
        constants = {"HALVES": self.style == "halves", "NORM": self.q_norm is not None}
        return Turn(constants, {**self._given(), "angles": self.cos.dims[0]}, self._step)

    @property
    def _step(self) -> int:
        """Elements that are turned at once."""
        return 4 if self.depth % 8 == 0 and self.rotary % 8 == 0 else 1

    def _given(self) -> dict[str, Any]:
        """What turned_pair.wgsl takes."""
        return {
            "qkv": self.qkv,
            "cosines": self.cos,
            "sines": self.sin,
            "q_norm": self.q_norm,
            "k_norm": self.k_norm,
            "heads": self.heads,
            "pairs": self.depth // self._step // 2,
            "rotary_pairs": self.rotary // self._step // 2,
            "mean": 1 / self.depth,
            "eps": self.eps,
        }

    @classmethod
    def rows(cls, call: Any) -> tuple[np.ndarray, np.ndarray]:
        """The position of each token, and its place in the caches; `call` is the op with arrays as arguments."""
        raise NotImplementedError

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> np.ndarray:
        call: Any = cls.bound(dict(arguments))
        positions, places = cls.rows(call)
        kv_heads, depth = call.k_cache.shape[2:]
        by_head = call.qkv.reshape(1, len(positions), call.qkv.shape[2] // depth, depth)
        q, k, v = np.split(by_head, [-2 * kv_heads, -kv_heads], axis=2)
        if call.q_norm is not None:
            q, k = rms_normed(q, call.q_norm, call.eps), rms_normed(k, call.k_norm, call.eps)
        turn = turned_halves if call.style == "halves" else turned_neighbours
        c, s = call.cos[positions, None, :], call.sin[positions, None, :]  # [S, 1, rotary or rotary/2]
        call.k_cache[:, places], call.v_cache[:, places] = turn(k, c, s), v
        return turn(q, c, s)


@op("hightide.rope_cache.default", family="attention")
class RopeCache(RopeOp):
    """`RopeOp` of tokens that follow each other from `position` on."""

    position: Int

    def check_where(self, ctx: Context) -> None:
        tokens = self.qkv.dims[1]
        check_rows(ctx, tokens, self.cos, self.position)
        check_position(ctx, tokens, self.k_cache, self.position)
        check_position(ctx, tokens, self.v_cache, self.position)

    def seen(self, env: Env) -> Seen:
        seen = seen_in_cache(self.qkv, self.heads, self.k_cache, self.v_cache, self.position, env)
        return replace(seen, tables=(self.cos, self.sin))

    def where(self) -> dict[str, Any]:
        return {"position": self.position}

    @classmethod
    def rows(cls, call: Any) -> tuple[np.ndarray, np.ndarray]:
        at = call.position + np.arange(call.qkv.shape[1])
        return at, at


@cache
def _rope_cache(vec4: bool, halves: bool, norm: bool, paged: bool, part: str = "") -> Kernel:
    route = f"rope_cache_{part}" if part else "rope_cache"
    return kernel("attention/rope_cache.wgsl", route, VEC4=vec4, HALVES=halves, NORM=norm, PAGED=paged, PART=part)
