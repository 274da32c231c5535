"""What LoRA adapters change in a linear's product: some rows of it, each by adapters of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hightide.errors import InputError
from hightide.ops.contract import Context, Dispatch, Scratch, Tensor, ceil_div, kernel

LANES = 64


class LowRank(NamedTuple):
    """y[row, first + c] += (x[row] @ down.T * strengths of the row) @ up[c], for rows and columns of a product y."""

    adapted: Tensor  # the rows, none twice
    strengths: Tensor  # [rows, adapters]

    down: Tensor  # [R, K]
    up: Tensor  # [columns, R]
    owners: Tensor  # [R]: whose column of the strengths each of the R is
    first: int

    def check(self, ctx: Context, rows: int, k: int, n: int) -> None:
        """InputError unless it is for a product of `rows` rows of K, with `n` columns."""
        rank, columns = self.owners.numel, self.up.dims[0] if self.up.rank == 2 else -1
        if not rank or self.down.dims != (rank, k) or self.up.dims != (columns, rank):
            raise InputError(f"{list(self.down.dims)} and {list(self.up.dims)} are no matrices of rank {rank}")
        if not 0 <= self.first <= self.first + columns <= n:
            raise InputError(f"columns {self.first} to {self.first + columns} are not among {n}")
        if self.adapted.rank != 1 or self.strengths.rank != 2 or self.strengths.dims[:1] != self.adapted.dims:
            raise InputError(f"strengths {list(self.strengths.dims)} are not those of {list(self.adapted.dims)} rows")
        if self.adapted.numel > rows:
            raise InputError(f"{self.adapted.numel} of {rows} rows cannot be adapted")
        ctx.require_indices(self.adapted, 0, max(rows - 1, 0), "adapted row")


def add_low_rank(
    ctx: Context, x: Tensor | Scratch, y: Tensor | Scratch, sizes: tuple[int, int, int], change: LowRank
) -> Iterator[Dispatch]:
    """Add a change to a product y of x in place; `sizes` are its rows, K and its columns."""
    rows, rank, columns = change.adapted.numel, change.owners.numel, change.up.dims[0]
    rows_of_y, k, n = sizes
    held = ctx.scratch(rows * rank * 4)
    yield kernel("linear/low_rank_down.wgsl", LANES=LANES).over(
        rows * rank,
        x=x,
        down=change.down,
        owners=change.owners,
        adapted=change.adapted,
        strengths=change.strengths,
        held=held,
        rows=rows,
        rank=rank,
        width=k,
        last_row=rows_of_y - 1,
        adapters=change.strengths.width,
    )
    yield kernel("linear/low_rank_up.wgsl").over(
        ceil_div(rows * columns, 64),
        held=held,
        up=change.up,
        adapted=change.adapted,
        y=y,
        rows=rows,
        rank=rank,
        columns=columns,
        first=change.first,
        y_width=n,
        last_row=rows_of_y - 1,
    )


def changed(
    product: np.ndarray,
    x: np.ndarray,
    rows: tuple[np.ndarray, np.ndarray],
    changes: Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]],
) -> np.ndarray:
    """The product of x with all changes, each (down, up, owners, first); `rows` are (adapted, strengths)."""
    adapted, strengths = rows
    made = product.copy()
    outputs, inputs = made.reshape(-1, made.shape[-1]), x.reshape(-1, x.shape[-1])[adapted]
    for down, up, owners, first in changes:
        outputs[adapted, first : first + len(up)] += (inputs @ down.T * strengths[:, owners]) @ up.T
    return made
