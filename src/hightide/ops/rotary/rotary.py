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
        check_tables(ctx, xq, cos, sin, start)
        return [xq.dims, xk.dims]

    def bytes_read(self, tensor: Tensor, dispatch: Dispatch) -> int:
        return rows_read(tensor, self.xq, self.cos, self.sin)

    def turn(self, start: Int, halves: bool, out: tuple[Tensor, Tensor]) -> Dispatch:
        return turn(self.xq, self.xk, self.cos, self.sin, start, halves, out)


def check_tables(ctx: Context, heads: Tensor, cos: Tensor, sin: Tensor, start: Int) -> None:
    if cos.rank != 2 or cos.dims != sin.dims:
        raise InputError(f"the frequency tables are {list(cos.dims)} and {list(sin.dims)}, not two equal matrices")
    check_rows(ctx, heads.dims[1], cos, start)


def rows_read(tensor: Tensor, heads: Tensor, cos: Tensor, sin: Tensor) -> int:
    """Bytes that a turn reads of a tensor: of the tables, a row per token."""
    return share_of(tensor, heads.dims[1], tensor.rows) if same(tensor, cos, sin) else tensor.nbytes


def turn(
    q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, start: Int, halves: bool, out: tuple[Tensor, ...]
) -> Dispatch:
    """Heads of q, and of k if there are any, turned by rows of the tables."""
    pairs_q, both = q.numel // 2, k is not None
    pairs_k = k.numel // 2 if k is not None else 0
    name = f"rotary_{'halves' if halves else 'interleaved'}{'' if both else '_alone'}"
    return kernel("rotary/rotary.wgsl", name, HALVES=halves, BOTH=both).over(
        ceil_div(pairs_q + pairs_k, 64),
        q=q,
        k=k,
        cosines=cos,
        sines=sin,
        q_out=out[0],
        k_out=out[1] if both else None,
        pairs_q=pairs_q,
        pairs_k=pairs_k,
        tokens=q.dims[1],
        heads_q=q.dims[2],
        heads_k=k.dims[2] if k is not None else 0,
        pairs_per_head=q.width // 2,
        rotary_pairs=cos.width // 2 if halves else cos.width,
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


@op("hightide.rotary.default", family="rotary")
class RotaryAlone(Op):
    """Heads [B, S, H, D] of one tensor, turned by halves or else by neighbours; table rows are read from `start` on."""

    x: Tensor
    cos: Tensor
    sin: Tensor
    start: Int
    halves: bool

    def outputs(self, ctx: Context) -> list[Dims]:
        x, width = self.x, self.cos.width
        if x.rank != 4 or x.width % 2:
            raise InputError(f"{list(x.dims)} are not [batch, tokens, heads, head dim]")
        check_tables(ctx, x, self.cos, self.sin, self.start)
        if width > x.width or width % 2 if self.halves else width * 2 != x.width:
            raise InputError(f"frequencies of {width} elements do not fit a head dim of {x.width}")
        return [x.dims]

    def bytes_read(self, tensor: Tensor, dispatch: Dispatch) -> int:
        return rows_read(tensor, self.x, self.cos, self.sin)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield turn(self.x, None, self.cos, self.sin, self.start, self.halves, (out,))

    @staticmethod
    def reference(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, start: int, halves: bool) -> np.ndarray:
        rows = slice(start, start + x.shape[1])
        c, s = cos[rows, None, :], sin[rows, None, :]
        return turned_halves(x, c, s) if halves else turned_neighbours(x, c, s)


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
