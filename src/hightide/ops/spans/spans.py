"""Attention of encoders: the rows of a step are those of whole sequences, and each row sees all of its own sequence.

`tiles` [N, 4], int32, is attention's work list. A tile is up to 16 rows of one sequence that follow each other: its
first row, how many, the sequence's first row, and how many rows the sequence has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.ops.attention.attention import softmax_attention
from hightide.ops.attention.attention_cost import AttentionOp, Seen
from hightide.ops.attention.steps import Attention, Pages, attend
from hightide.ops.contract import Context, Dispatch, Tensor, op
from hightide.ops.pages.work_lists import TILE


@op("hightide.span_attention.default", family="attention")
class SpanAttention(AttentionOp):
    """q [1, T, H, D] over k and v [1, T, Hkv, D]; with a `window`, over the keys less than that many rows away."""

    q: Tensor
    k: Tensor
    v: Tensor
    tiles: Tensor
    scale: float
    window: int = 0

    def outputs(self, ctx: Context) -> list[Dims]:
        q, k, v, tiles = self.q, self.k, self.v, self.tiles
        if {q.rank, k.rank, v.rank} != {4} or k.dims[:3] != v.dims[:3] or q.dims[:2] != k.dims[:2] or q.dims[0] != 1:
            raise InputError(f"queries {list(q.dims)}, keys {list(k.dims)} and values {list(v.dims)} do not match")
        if q.width != k.width or not k.dims[2] or q.dims[2] % k.dims[2]:
            raise InputError(f"queries {list(q.dims)} cannot attend to keys {list(k.dims)}")
        if tiles.rank != 2 or tiles.width != 4:
            raise InputError(f"a work list of {list(tiles.dims)} is not [tiles, 4]")
        return [(*q.dims[:-1], v.width)]

    @classmethod
    def fitting(cls, given: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        """All rows are those of one sequence; some are listed twice if need be."""
        rows, tiles = given["q"][1], given["tiles"][0]
        if rows > tiles * TILE:
            raise InputError(f"{rows} rows do not fit {tiles} tiles")
        first = [max(0, min(n * TILE, rows - TILE)) for n in range(tiles)]
        return {"tiles": np.array([(n, min(TILE, rows), 0, rows) for n in first], np.int32).reshape(-1, 4)}

    def seen(self, env: Env) -> Seen:
        """As if there were one sequence: how many there are is data."""
        rows = self.q.dims[1]
        seen = min(rows, 2 * self.window - 1) if self.window else rows
        return Seen(self.k, self.v, self.q.dims[2], rows, rows, rows, rows * seen, cached=False)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        attention = Attention(
            q=self.q,
            k=self.k,
            v=self.v,
            out=out,
            position=0,
            added=0,
            causal=False,
            scale=self.scale,
            window=self.window,
            pages=Pages(self.tiles, None, 1, TILE, self.q.dims[1]),
        )
        return attend(ctx, attention)

    @staticmethod
    def reference(
        q: np.ndarray, k: np.ndarray, v: np.ndarray, tiles: np.ndarray, scale: float, window: int
    ) -> np.ndarray:
        """Tile after tile; rows that are in no tile give zeros. What does not fit in a tile is cut, as kernels do."""
        rows, repeat = q.shape[1], q.shape[2] // k.shape[2]
        out = np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
        for given in tiles.astype(np.uint32).tolist():
            start = min(given[2], rows)
            end = start + min(given[3], rows - start)
            first = min(max(given[0], start), end)
            some = slice(first, first + min(given[1], TILE, end - first))
            own_q = q[:, some].transpose(0, 2, 1, 3)
            own_k, own_v = (np.repeat(x[:, start:end], repeat, axis=2).transpose(0, 2, 1, 3) for x in (k, v))
            away = np.abs(np.arange(rows)[some, None] - np.arange(start, end))
            hidden = np.where((away >= window) & (window > 0), -np.inf, 0).astype(q.dtype)
            out[:, some] = softmax_attention(own_q, own_k, own_v, hidden, scale).transpose(0, 2, 1, 3)
        return out
