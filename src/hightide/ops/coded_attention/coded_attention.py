"""Attention over a KV cache of 8-bit codes."""

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
from hightide.ops.attention.steps import Attention, Coded, attend
from hightide.ops.contract import Context, Dispatch, Scratch, Tensor, ceil_div, kernel, op


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

    def outputs(self, ctx: Context) -> list[Dims]:
        for codes, zero, scale in self.coded:
            if self.heads_first or zero is None or scale is None:
                raise UnsupportedError("attention on 8-bit codes takes rows before heads, zero points and scales")
            if {codes.dtype, zero.dtype} != {"int8"}:
                raise UnsupportedError(f"attention on codes takes int8, not {codes.dtype} and {zero.dtype}")
            if zero.dims != (*codes.dims[:-1], 1) or scale.dims != zero.dims:
                given = f"{list(zero.dims)} zero points and {list(scale.dims)} scales"
                raise InputError(f"{given} are not one for each row of {list(codes.dims)}")
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
        coded = Coded(ctx.scratch(self.q.numel * 4), ctx.scratch(capacity * heads * 16))
        attention = replace(self.attention(out), coded=coded)
        yield self._plain_queries(coded.q)
        yield self._codings(attention, coded.codings)
        yield from attend(ctx, attention)

    def _plain_queries(self, out: Scratch) -> Dispatch:
        """What the codes of q stand for."""
        return kernel("coded_attention/plain_queries.wgsl").over(
            ceil_div(self.q.numel, 64),
            codes=self.q,
            zeros=self.q_zero,
            scales=self.q_scale,
            out=out,
            numel=self.q.numel,
            width=self.q.width,
        )

    def _codings(self, attention: Attention, out: Scratch) -> Dispatch:
        """The scales and zero points of the keys that are seen, and of their values, side by side."""
        heads = self.k.dims[2]
        return kernel("coded_attention/codings.wgsl").over(
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
        q, k, v = ((codes.astype(scale.dtype) - zero.astype(scale.dtype)) * scale for codes, zero, scale in call.coded)
        return super().evaluate({**arguments, "q": q, "k": k, "v": v})
