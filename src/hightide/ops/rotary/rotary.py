"""Rotary position embeddings of queries and keys."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Int, Op, Tensor, ceil_div, kernel, op
from hightide.ops.cost import same, share_of
from hightide.ops.rotary.turns import check_rows, turned_halves, turned_neighbours


class Rotary(Op):
    """Queries and keys [B, S, H, D], turned."""

    xq: Tensor
    xk: Tensor
    cos: Tensor
    sin: Tensor

    def check(self, ctx: Context, start: Int) -> list[Dims]:
        xq, xk, cos, sin = self.xq, self.xk, self.cos, self.sin
        if xq.rank != 4 or xk.rank != 4 or xq.dims[:2] != xk.dims[:2] or xq.width != xk.width or xq.width % 2:
            raise InputError(
                f"queries {list(xq.dims)} and keys {list(xk.dims)} are not [batch, tokens, heads, head dim]"
            )
        if cos.rank != 2 or cos.dims != sin.dims:
            raise InputError(f"the frequency tables are {list(cos.dims)} and {list(sin.dims)}, not two equal matrices")
        check_rows(ctx, xq.dims[1], cos, start)
        return [xq.dims, xk.dims]

    def bytes_read(self, tensor: Tensor, dispatch: Dispatch) -> int:
        """Of the tables, a row per token."""
        if same(tensor, self.cos, self.sin):
            return share_of(tensor, self.xq.dims[1], tensor.rows)
        return tensor.nbytes

    def turn(self, start: Int, halves: bool, out: tuple[Tensor, Tensor]) -> Dispatch:
        xq, xk = self.xq, self.xk
        pairs_q, pairs_k = xq.numel // 2, xk.numel // 2
        route = "rotary_halves" if halves else "rotary_interleaved"
        return kernel("rotary/rotary.wgsl", route, HALVES=halves).over(
            ceil_div(pairs_q + pairs_k, 64),
            q=xq,
            k=xk,
            cosines=self.cos,
            sines=self.sin,
            q_out=out[0],
            k_out=out[1],
            pairs_q=pairs_q,
            pairs_k=pairs_k,
            tokens=xq.dims[1],
            heads_q=xq.dims[2],
            heads_k=xk.dims[2],
            pairs_per_head=xq.width // 2,
            rotary_pairs=self.cos.width // 2 if halves else self.cos.width,
            position=start,
        )


@op("et_vk.apply_rotary_emb.default", family="rotary")
class RotaryInterleaved(Rotary):
    """Neighbouring elements are a pair; the tables [S, D/2] are already sliced to the live tokens."""

    def outputs(self, ctx: Context) -> list[Dims]:
        dims = self.check(ctx, 0)
        if self.cos.width * 2 != self.xq.width:
            raise InputError(f"frequencies of {self.cos.width} pairs do not fit a head dim of {self.xq.width}")
        return dims

    def plan(self, ctx: Context, out: tuple[Tensor, Tensor]) -> Iterable[Dispatch]:
        yield self.turn(0, False, out)

    @staticmethod
    def reference(xq: np.ndarray, xk: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> tuple[np.ndarray, ...]:
        tokens = xq.shape[1]
        c, s = cos[:tokens, None, :], sin[:tokens, None, :]  # [S, 1, D/2]
        return turned_neighbours(xq, c, s), turned_neighbours(xk, c, s)


@op("et_vk.apply_rotary_emb_hf.default", family="rotary")
class RotaryHalves(Rotary):
    """Element d pairs with d + rotary/2; the tables [L, rotary] are read from a live position on."""

    start: Int

    def outputs(self, ctx: Context) -> list[Dims]:
        dims = self.check(ctx, self.start)
        if self.cos.width > self.xq.width or self.cos.width % 2:
            raise InputError(f"frequencies of {self.cos.width} elements do not fit a head dim of {self.xq.width}")
        return dims

    def plan(self, ctx: Context, out: tuple[Tensor, Tensor]) -> Iterable[Dispatch]:
        yield self.turn(self.start, True, out)

    @staticmethod
    def reference(
        xq: np.ndarray, xk: np.ndarray, cos: np.ndarray, sin: np.ndarray, start: int
    ) -> tuple[np.ndarray, ...]:
        rows = slice(start, start + xq.shape[1])
        c, s = cos[rows, None, :], sin[rows, None, :]  # [S, 1, rotary]
        return turned_halves(xq, c, s), turned_halves(xk, c, s)


@op("et_vk.apply_rotary_emb_interleaved.default", family="rotary")
class RotaryComplex(Op):
    """x [B, N, C] of interleaved (real, imaginary) pairs, times a table of N * C elements laid out alike."""

    x: Tensor
    table: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        x, table = self.x, self.table
        if x.rank != 3 or x.width % 2 or table.numel != x.dims[1] * x.width:
            raise InputError(f"a table of {list(table.dims)} does not turn the pairs of {list(x.dims)}")
        return [x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        pairs, table = self.x.numel // 2, self.table
        yield kernel("rotary/complex.wgsl", "rotary_complex").over(
            ceil_div(pairs, 64), x=self.x, table=table, out=out, pairs=pairs, table_pairs=table.numel // 2
        )

    @staticmethod
    def reference(x: np.ndarray, table: np.ndarray) -> np.ndarray:
        real, imaginary = x[..., 0::2], x[..., 1::2]
        cos, sin = np.moveaxis(table.reshape(*real.shape[1:], 2), -1, 0)
        return np.stack([real * cos - imaginary * sin, real * sin + imaginary * cos], axis=-1).reshape(x.shape)
