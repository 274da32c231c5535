"""Rotary position embeddings of queries and keys."""

from __future__ import annotations

from collections.abc import Iterable

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
from hightide.ops.rotary.turns import turned_halves, turned_neighbours

INTERLEAVED = kernel("rotary/rotary.wgsl", "rotary_interleaved", HALVES="false")
COMPLEX = kernel("rotary/complex.wgsl", "rotary_complex")
HALVES = kernel("rotary/rotary.wgsl", "rotary_halves", HALVES="true")


def check(ctx: Context, xq: Tensor, xk: Tensor, cos: Tensor, sin: Tensor, start: int | LiveInt) -> None:
    if xq.rank != 4 or xk.rank != 4 or xq.dims[:2] != xk.dims[:2] or xq.width != xk.width or xq.width % 2:
        raise InputError(f"queries {list(xq.dims)} and keys {list(xk.dims)} are not [batch, tokens, heads, head dim]")
    if cos.rank != 2 or cos.dims != sin.dims:
        raise InputError(f"the frequency tables are {list(cos.dims)} and {list(sin.dims)}, not two equal matrices")
    tokens, rows = xq.dims[1], cos.dims[0]
    end = "position {value} plus " + f"{tokens} tokens is past the {rows} rows of the frequency table"
    ctx.require(expr_of(start), 0, rows - tokens, end)


def rotate(
    route: Kernel,
    xq: Tensor,
    xk: Tensor,
    cos: Tensor,
    sin: Tensor,
    start: int | LiveInt,
    rotary_pairs: int,
    out: tuple[Tensor, Tensor],
) -> Dispatch:
    require_dtype("f32", xq, xk, cos, sin, *out)
    pairs_q, pairs_k = xq.numel // 2, xk.numel // 2
    return Dispatch(
        route,
        groups=ceil_div(pairs_q + pairs_k, 64),
        params=(
            pairs_q,
            pairs_k,
            xq.dims[1],
            xq.dims[2],
            xk.dims[2],
            xq.width // 2,
            rotary_pairs,
            *live_params(start),
        ),
        reads=(xq, xk, cos, sin),
        writes=out,
    )


@op("et_vk.apply_rotary_emb.default")
class RotaryInterleaved(Op):
    """Neighbouring elements are a pair; the tables [S, D/2] are already sliced to the live tokens."""

    def outputs(self, ctx: Context, xq: Tensor, xk: Tensor, cos: Tensor, sin: Tensor) -> list[Dims]:
        check(ctx, xq, xk, cos, sin, 0)
        if cos.width * 2 != xq.width:
            raise InputError(f"frequencies of {cos.width} pairs do not fit a head dim of {xq.width}")
        return [xq.dims, xk.dims]

    def plan(
        self, ctx: Context, xq: Tensor, xk: Tensor, cos: Tensor, sin: Tensor, *, out: tuple[Tensor, Tensor]
    ) -> Iterable[Dispatch]:
        yield rotate(INTERLEAVED, xq, xk, cos, sin, 0, xq.width // 2, out)

    def reference(self, xq: np.ndarray, xk: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> tuple[np.ndarray, ...]:
        tokens = xq.shape[1]
        c, s = cos[:tokens, None, :], sin[:tokens, None, :]  # [S, 1, D/2]
        return turned_neighbours(xq, c, s), turned_neighbours(xk, c, s)


@op("et_vk.apply_rotary_emb_hf.default")
class RotaryHalves(Op):
    """Element d pairs with d + rotary/2; the tables [L, rotary] are read from a live position on."""

    def outputs(
        self, ctx: Context, xq: Tensor, xk: Tensor, cos: Tensor, sin: Tensor, start: int | LiveInt
    ) -> list[Dims]:
        check(ctx, xq, xk, cos, sin, start)
        if cos.width > xq.width or cos.width % 2:
            raise InputError(f"frequencies of {cos.width} elements do not fit a head dim of {xq.width}")
        return [xq.dims, xk.dims]

    def plan(
        self,
        ctx: Context,
        xq: Tensor,
        xk: Tensor,
        cos: Tensor,
        sin: Tensor,
        start: int | LiveInt,
        *,
        out: tuple[Tensor, Tensor],
    ) -> Iterable[Dispatch]:
        yield rotate(HALVES, xq, xk, cos, sin, start, cos.width // 2, out)

    def reference(
        self, xq: np.ndarray, xk: np.ndarray, cos: np.ndarray, sin: np.ndarray, start: int
    ) -> tuple[np.ndarray, ...]:
        rows = slice(start, start + xq.shape[1])
        c, s = cos[rows, None, :], sin[rows, None, :]  # [S, 1, rotary]
        return turned_halves(xq, c, s), turned_halves(xk, c, s)


@op("et_vk.apply_rotary_emb_interleaved.default")
class RotaryComplex(Op):
    """x [B, N, C] of interleaved (real, imaginary) pairs, times a table of N * C elements laid out alike."""

    def outputs(self, ctx: Context, x: Tensor, table: Tensor) -> list[Dims]:
        if x.rank != 3 or x.width % 2 or table.numel != x.dims[1] * x.width:
            raise InputError(f"a table of {list(table.dims)} does not turn the pairs of {list(x.dims)}")
        return [x.dims]

    def plan(self, ctx: Context, x: Tensor, table: Tensor, *, out: Tensor) -> Iterable[Dispatch]:
        require_dtype("f32", x, table, out)
        pairs = x.numel // 2
        yield Dispatch(
            COMPLEX, groups=ceil_div(pairs, 64), params=(pairs, table.numel // 2), reads=(x, table), writes=(out,)
        )

    def reference(self, x: np.ndarray, table: np.ndarray) -> np.ndarray:
        real, imaginary = x[..., 0::2], x[..., 1::2]
        cos, sin = np.moveaxis(table.reshape(*real.shape[1:], 2), -1, 0)
        return np.stack([real * cos - imaginary * sin, real * sin + imaginary * cos], axis=-1).reshape(x.shape)
