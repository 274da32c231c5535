"""The next token, chosen on the GPU: a step brings back an id, not the vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Op, Tensor, ceil_div, kernel, op

SETTINGS = 5  # temperature, top-k, top-p, min-p, draw in 0..1
NO_NUMBERS = -1  # instead of an id: the logits are not numbers
NONE_ALLOWED = -2  # instead of an id: the mask leaves no token
MOST_TAKEN = 1024  # logits that a kernel takes aside, of eight bytes with their tokens


@op("hightide.sample.default", family="sampling")
class Sample(Op):
    """An id per row of logits, by settings [5], or [rows, 5]: each row its own.

    Temperature 0 takes the largest (the first of equal ones).
    -infinity rules a token out. A row with NaN or +infinity, or without a finite logit, gives -1.

    `masks` [M, ceil(vocabulary / 32)] have a bit per token, the lowest first: 0 rules it out, before all filters.
    `masked` [rows] says which of them a row has, or -1. A mask that leaves no token gives -2.
    """

    logits: Tensor
    settings: Tensor
    masks: Tensor | None = None
    masked: Tensor | None = None

    @classmethod
    def fitting(cls, given: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        """Each row in one of these ways, in turn: with any settings, a draw may fall between two tokens."""
        ways = np.array([(0.75, 1, 1, 0, 0.5), (0, 0, 1, 0, 0.5), (1, 40, 0.875, 0.0625, 0.375)], np.float32)
        fits = {"settings": np.resize(ways, given["settings"])}
        if given.get("masks") is not None:
            masks = np.random.default_rng(1).integers(-(1 << 31), 1 << 31, given["masks"]).astype(np.int32)
            fits |= {"masks": masks, "masked": np.arange(*given["masked"], dtype=np.int32) % (len(masks) + 1) - 1}
        return fits

    def outputs(self, ctx: Context) -> list[Dims]:
        logits, settings = self.logits, self.settings
        if settings.dims not in ((SETTINGS,), (logits.rows, SETTINGS)) or not logits.width:
            raise InputError(
                f"sampling takes {SETTINGS} settings, for all rows or each,"
                f" not {list(settings.dims)} for {list(logits.dims)}"
            )
        masks, masked = self.masks, self.masked
        if (masks is None) != (masked is None):
            raise InputError("sampling takes masks, and which of them each row has, or neither")
        if masks is not None and masked is not None:
            words = ceil_div(logits.width, 32)
            if masks.rank != 2 or not masks.rows or masks.width != words or masked.dims != (logits.rows,):
                raise InputError(
                    f"masks for {list(logits.dims)} have {words} words and a number for each row,"
                    f" not {list(masks.dims)} and {list(masked.dims)}"
                )
        return [self.logits.dims[:-1]]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        logits, masks = self.logits, self.masks
        words = ceil_div(logits.width, 32)
        counts = {} if masks is None else {"mask_rows": masks.rows}
        traits = ctx.choices.traits
        wide = not traits.software and traits.invocations >= 1024
        root, ahead = 32 if wide else 16, 1 if traits.software else 4
        constants = {"ROOT": root, "AHEAD": ahead, "VEC4": logits.width % 4 == 0, "MASKED": masks is not None}
        constants |= {"MOST_TAKEN": MOST_TAKEN, "SHARED": not traits.software}
        yield kernel("sampling/sample.wgsl", **constants).over(
            logits.rows,
            logits=logits,
            settings=self.settings,
            masks=masks,
            masked=self.masked,
            ids=out,
            taken=ctx.scratch(logits.rows * (MOST_TAKEN + root * root + root) * 8) if traits.software else None,
            rows=logits.rows,
            width=logits.width,
            words=words,
            run=ceil_div(words, root * root),
            root=root,
            settings_row=SETTINGS if self.settings.rank == 2 else 0,
            **counts,
        )

    @staticmethod
    def reference(
        logits: np.ndarray, settings: np.ndarray, masks: np.ndarray | None = None, masked: np.ndarray | None = None
    ) -> np.ndarray:
        rows = logits.reshape(-1, logits.shape[-1])
        by_row = np.broadcast_to(settings, (len(rows), SETTINGS))
        numbers = [-1] * len(rows) if masked is None else masked.tolist()
        own = [None if masks is None or n < 0 else masks[n] for n in numbers]
        ids = [sample(row, how, mask) for row, how, mask in zip(rows, by_row, own, strict=True)]
        return np.array(ids, np.int32).reshape(logits.shape[:-1])


def allowed(mask: np.ndarray, width: int) -> np.ndarray:
    """The bits of a mask, as bools [width]."""
    return np.unpackbits(mask.astype("<i4").view(np.uint8), count=width, bitorder="little").astype(bool)


def sample(logits: np.ndarray, settings: np.ndarray, mask: np.ndarray | None = None) -> int:
    """The id that the draw picks from the softmax of logits / temperature, after the filters.

    NO_NUMBERS or NONE_ALLOWED if there is none; see `Sample`.
    """
    temperature, top_k, top_p, min_p, draw = map(float, settings)
    largest = logits.max()  # NaN, if there is one
    if mask is not None and not (np.isnan(largest) or largest == np.inf):
        logits = np.where(allowed(mask, len(logits)), logits, -np.inf)
        largest = logits.max()
        if largest == -np.inf:
            return NONE_ALLOWED
    if not np.isfinite(largest):
        return NO_NUMBERS
    if temperature <= 0:
        return int(logits.argmax())
    weights = np.exp((logits - largest) / temperature)
    keep = logits > -np.inf
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
