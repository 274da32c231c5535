"""What steps of many sequences need beside the ops of one sequence.

`paged_attention.py` has attention over pages, `rope_pages.py` the same of rows that are yet to be turned.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Op, Tensor, ceil_div, kernel, op
from hightide.ops.pages.paged_attention import PagedAttention
from hightide.ops.pages.rope_pages import RopeAttendPages


@op("hightide.take_tokens.default", family="gather")
class TakeTokens(Op):
    """Token ids, of which -1 - n stands for the n-th id that was chosen in the step before."""

    tokens: Tensor
    chosen: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        ctx.require_indices(self.tokens, -self.chosen.numel, 2**31 - 1, "token id")
        return [self.tokens.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        count = self.tokens.numel
        yield kernel("pages/take_tokens.wgsl").over(
            ceil_div(count, 64),
            tokens=self.tokens,
            chosen=self.chosen,
            out=out,
            count=count,
            chosen_count=self.chosen.numel,
        )

    @staticmethod
    def reference(tokens: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        return (
            np.where(tokens < 0, chosen.reshape(-1).take(-1 - tokens, mode="clip"), tokens) if chosen.size else tokens
        )


__all__ = ["PagedAttention", "RopeAttendPages", "TakeTokens"]
