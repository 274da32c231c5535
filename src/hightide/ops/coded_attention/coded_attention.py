"""Attention over KV caches of 8-bit codes, and over pages of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph import symbols
from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.ops.attention.attention import CustomSdpa
from hightide.ops.attention.attention_cost import Seen
from hightide.ops.attention.steps import Attention, attend
from hightide.ops.contract import Context, Dispatch, Scratch, Tensor, ceil_div, kernel, op
from hightide.ops.pages.paged_attention import UpdatingPages


@op("llama.custom_quantized_sdpa.default", family="attention")
class QuantizedSdpa(CustomSdpa):
    """`custom_sdpa` on 8-bit codes, with a zero point and a scale for each row of each head."""

    q_zero: Tensor | None = None
    q_scale: Tensor | None = None
    k_zero: Tensor | None = None
    k_scale: Tensor | None = None
    v_zero: Tensor | None = None
    v_scale: Tensor | None = None
    heads_first: bool = False
    no_halves = ("q_scale", "k_scale", "v_scale")

    def outputs(self, ctx: Context) -> list[Dims]:
        for codes, zero, scale in self.coded:
            if self.heads_first or zero is None or scale is None:
                raise UnsupportedError("attention on 8-bit codes takes rows before heads, zero points and scales")
            check_coded(codes, zero, scale)
        return super().outputs(ctx)

    @property
    def coded(self) -> list[tuple[Any, Any, Any]]:
        """The codes, zero points and scales of q, k and v."""
        return [
            (self.q, self.q_zero, self.q_scale),
            (self.k, self.k_zero, self.k_scale),
            (self.v, self.v_zero, self.v_scale),
        ]

    def seen(self, env: Env) -> Seen:
        beside = [x for _, zero, scale in self.coded[1:] for x in (zero, scale)]
        return replace(super().seen(env), beside=tuple(beside))

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        if not out.numel:
            return
        heads, capacity = self.k.dims[2], self.k.dims[1]
        q, codings = ctx.scratch(self.q.numel * 4), ctx.scratch(capacity * heads * 16)
        attention = replace(self.attention(out), held_q=q, codings=codings)
        yield plain_queries(self.q, self.q_zero, self.q_scale, q)
        yield self._codings(attention, codings)
        yield from attend(ctx, attention)

    def _codings(self, attention: Attention, out: Scratch) -> Dispatch:
        """The scales and zero points of the keys that are seen, and of their values, side by side."""
        heads = self.k.dims[2]
        return kernel("coded_attention/codings.wgsl", PLACES=False).over(
            symbols.ceil_div(attention.keys * heads, 64),
            k_scales=self.k_scale,
            k_zeros=self.k_zero,
            v_scales=self.v_scale,
            v_zeros=self.v_zero,
            codings=out,
            position=attention.position,
            added=attention.added,
            heads=heads,
        )

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> np.ndarray:
        call: Any = cls.bound(dict(arguments))
        if call.heads_first or call.dropout or (call.causal and call.mask is not None):
            raise UnsupportedError("attention on 8-bit codes takes rows before heads, no dropout, and one mask")
        q, k, v = (numbers(*coded) for coded in call.coded)
        return super().evaluate({**arguments, "q": q, "k": k, "v": v})


@op("hightide.paged_coded_attention.default", family="attention")
class PagedCodedAttention(UpdatingPages):
    """Attention over pools of 8-bit codes.

    `codings` [1, C, Hkv, 4] has of each row and head the scale and the zero point of its key, then those of its value.
    """

    codings: Tensor
    q_zero: Tensor
    q_scale: Tensor
    k_zero: Tensor
    k_scale: Tensor
    v_zero: Tensor
    v_scale: Tensor
    mutates = ("k_pool", "v_pool", "codings")
    no_halves = ("codings",)

    def outputs(self, ctx: Context) -> list[Dims]:
        check_coded(self.q, self.q_zero, self.q_scale)
        check_coded(self.k, self.k_zero, self.k_scale)
        check_coded(self.v, self.v_zero, self.v_scale)
        if self.codings.dims != (*self.k_pool.dims[:-1], 4):
            raise InputError(f"codings {list(self.codings.dims)} do not go with a pool of {list(self.k_pool.dims)}")
        return super().outputs(ctx)

    def seen(self, env: Env) -> Seen:
        return replace(super().seen(env), beside=(self.codings,))

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        if not out.numel:
            return
        q = ctx.scratch(self.q.numel * 4)
        yield plain_queries(self.q, self.q_zero, self.q_scale, q)
        yield self.update()
        yield kernel("coded_attention/codings.wgsl", "codings_to_places", PLACES=True).over(
            ceil_div(self.k_scale.numel, 64),
            k_scales=self.k_scale,
            k_zeros=self.k_zero,
            v_scales=self.v_scale,
            v_zeros=self.v_zero,
            codings=self.codings,
            places=self.places,
            tokens=self.k.dims[1],
            heads=self.k.dims[2],
            capacity=self.k_pool.dims[1],
        )
        yield from self.attention(ctx, out, held_q=q, codings=self.codings)

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> np.ndarray:
        call: Any = cls.bound(dict(arguments))
        new = (call.k_scale, call.k_zero, call.v_scale, call.v_zero)
        call.codings[:, call.places] = np.concatenate(new, axis=-1)
        call.k_pool[:, call.places], call.v_pool[:, call.places] = call.k, call.v
        k_scale, k_zero, v_scale, v_zero = np.split(call.codings, 4, axis=-1)
        plain = {
            "q": numbers(call.q, call.q_zero, call.q_scale),
            "k_pool": numbers(call.k_pool, k_zero, k_scale),
            "v_pool": numbers(call.v_pool, v_zero, v_scale),
        }
        return super(UpdatingPages, cls).evaluate({**arguments, **plain})


def check_coded(codes: Tensor, zero: Tensor, scale: Tensor) -> None:
    if {codes.dtype, zero.dtype} != {"int8"}:
        raise UnsupportedError(f"attention on codes takes int8, not {codes.dtype} and {zero.dtype}")
    if zero.dims != (*codes.dims[:-1], 1) or scale.dims != zero.dims:
        given = f"{list(zero.dims)} zero points and {list(scale.dims)} scales"
        raise InputError(f"{given} are not one for each row of {list(codes.dims)}")


def numbers(codes: np.ndarray, zero: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """What codes stand for."""
    plain: np.ndarray = (codes.astype(scale.dtype) - zero.astype(scale.dtype)) * scale
    return plain


def plain_queries(q: Tensor, zero: Tensor | None, scale: Tensor | None, out: Scratch) -> Dispatch:
    """What the codes of q stand for."""
    return kernel("coded_attention/plain_queries.wgsl").over(
        ceil_div(q.numel, 64), codes=q, zeros=zero, scales=scale, out=out, numel=q.numel, width=q.width
    )
