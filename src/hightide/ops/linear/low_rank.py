"""What LoRA adapters add to some rows of a linear's result, each row with adapters of its own."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Op, Tensor, ceil_div, kernel, op

LANES = 64


@op("hightide.low_rank.default", family="linear")
class LowRank(Op):
    """y[row] += (x[row] @ down.T * strengths of the row) @ up.T for the rows in `adapted`, none twice.

    y [.., N] and x [.., K] have the same rows; down [R, K], up [N, R]. `owners` [R] says whose column of the strengths
    [rows, adapters] each of the R is. The result is a placeholder that nobody reads. Without rows there is no work.
    """

    y: Tensor
    x: Tensor
    down: Tensor
    up: Tensor
    owners: Tensor
    adapted: Tensor
    strengths: Tensor
    mutates = ("y",)

    def outputs(self, ctx: Context) -> list[Dims]:
        y, x, rank = self.y, self.x, self.owners.numel
        if y.dims[:-1] != x.dims[:-1] or not rank:
            raise InputError(f"{list(y.dims)} and {list(x.dims)} do not have the same rows, or there is no rank")
        if self.down.dims != (rank, x.width) or self.up.dims != (y.width, rank):
            raise InputError(f"{list(self.down.dims)} and {list(self.up.dims)} are no matrices of rank {rank}")
        if self.adapted.rank != 1 or self.strengths.rank != 2 or self.strengths.dims[:1] != self.adapted.dims:
            raise InputError(f"strengths {list(self.strengths.dims)} are not those of {list(self.adapted.dims)} rows")
        ctx.require_indices(self.adapted, 0, max(y.rows - 1, 0), "adapted row")
        return [(1,)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        rows, rank, rows_of_y = self.adapted.numel, self.owners.numel, self.y.rows
        held = ctx.scratch(max(rows * rank, 1) * 4)
        if not rows or not rows_of_y:
            return
        yield kernel("linear/low_rank_down.wgsl", LANES=LANES).over(
            rows * rank,
            x=self.x,
            down=self.down,
            owners=self.owners,
            adapted=self.adapted,
            strengths=self.strengths,
            held=held,
            rows=rows,
            rank=rank,
            width=self.x.width,
            last_row=rows_of_y - 1,
            adapters=self.strengths.width,
        )
        yield kernel("linear/low_rank_up.wgsl").over(
            ceil_div(rows * self.y.width, 64),
            held=held,
            up=self.up,
            adapted=self.adapted,
            y=self.y,
            rows=rows,
            rank=rank,
            columns=self.y.width,
            last_row=rows_of_y - 1,
        )

    def flops(self, dispatch: Dispatch) -> float:
        widths = self.x.width + self.y.width
        return self.adapted.numel * self.owners.numel * widths  # two for each weight, over two dispatches

    @staticmethod
    def reference(
        y: np.ndarray,
        x: np.ndarray,
        down: np.ndarray,
        up: np.ndarray,
        owners: np.ndarray,
        adapted: np.ndarray,
        strengths: np.ndarray,
    ) -> np.ndarray:
        rows, inputs = y.reshape(-1, y.shape[-1]), x.reshape(-1, x.shape[-1])
        rows[adapted] += (inputs[adapted] @ down.T * strengths[:, owners]) @ up.T
        return np.zeros(1, np.float32)
