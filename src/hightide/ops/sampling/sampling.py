"""The next token, chosen on the GPU: a step brings back an id, not the vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Op, Tensor, ceil_div, kernel, op

SETTINGS = 5  # temperature, top-k, top-p, min-p, draw in 0..1
LANES = 256


@op("hightide.sample.default", family="sampling")
class Sample(Op):
    """An id per row of logits, by settings [5], or [rows, 5]: each row its own.

    Temperature 0 takes the largest (the first of equal ones).
    -infinity rules a token out. A row with NaN or +infinity, or without a finite logit, gives -1.
    """

    logits: Tensor
    settings: Tensor

    @classmethod
    def fitting(cls, given: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        """Each row in one of these ways, in turn: with any settings, a draw may fall between two tokens."""
        ways = np.array([(0.75, 1, 1, 0, 0.5), (0, 0, 1, 0, 0.5), (1, 40, 0.875, 0.0625, 0.375)], np.float32)
        return {"settings": np.resize(ways, given["settings"])}

    def outputs(self, ctx: Context) -> list[Dims]:
        logits, settings = self.logits, self.settings
        if settings.dims not in ((SETTINGS,), (logits.rows, SETTINGS)) or not logits.width:
            raise InputError(
                f"sampling takes {SETTINGS} settings, for all rows or each,"
                f" not {list(settings.dims)} for {list(logits.dims)}"
            )
        return [self.logits.dims[:-1]]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        logits = self.logits
        yield kernel("sampling/sample.wgsl", LANES=LANES).over(
            logits.rows,
            logits=logits,
            settings=self.settings,
            ids=out,
            rows=logits.rows,
            width=logits.width,
            run=ceil_div(logits.width, LANES),
            settings_row=SETTINGS if self.settings.rank == 2 else 0,
        )

    @staticmethod
    def reference(logits: np.ndarray, settings: np.ndarray) -> np.ndarray:
        rows = logits.reshape(-1, logits.shape[-1])
        by_row = np.broadcast_to(settings, (len(rows), SETTINGS))
        ids = [sample(row, *own) for row, own in zip(rows, by_row.tolist(), strict=True)]
        return np.array(ids, np.int32).reshape(logits.shape[:-1])


def sample(logits: np.ndarray, temperature: float, top_k: float, top_p: float, min_p: float, draw: float) -> int:
    """The id that `draw` in 0..1 picks from the softmax of logits / temperature, after the filters.

    -1 if the logits are not numbers; see `Sample`.
    """
    largest = logits.max()  # NaN, if there is one
    if not np.isfinite(largest):
        return -1
    if temperature <= 0:
        return int(logits.argmax())
    weights = np.exp((logits - largest) / temperature)
    keep = np.ones(len(logits), bool)
    if 0 < top_k < len(logits):
        keep &= logits >= np.partition(logits, -int(top_k))[-int(top_k)]
    if top_p < 1:
        order = np.argsort(-logits, kind="stable")
        order = order[keep[order]]
        reached = np.cumsum(weights[order])
        last = np.searchsorted(reached, top_p * reached[-1])
        keep &= logits >= logits[order[min(last, len(order) - 1)]]
    keep &= weights >= min_p
    kept = np.where(keep, weights, 0)
    running = np.cumsum(kept)
    chosen = int(np.searchsorted(running, draw * running[-1], side="right"))
    return min(chosen, int(np.flatnonzero(keep)[-1]))
