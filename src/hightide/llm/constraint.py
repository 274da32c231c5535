"""What the next tokens of an answer may be. The step loop knows constraints by this alone; `grammar.py` makes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np

from hightide.errors import HightideError


class Constraint(Protocol):
    """The tokens of an answer so far, and what may follow them. Tokens that end an answer are none of its business."""

    def mask(self) -> np.ndarray:
        """The tokens that may come next: int32 words with a bit per token, the lowest first."""

    @property
    def may_end(self) -> bool:
        """Whether the answer is complete as it is."""

    @property
    def complete(self) -> bool:
        """Whether it is, and nothing may follow."""

    def forced(self) -> list[int]:
        """Tokens that come next whatever the model says; it need not be asked for them."""

    def accept(self, token: int) -> None:
        """The next token; HightideError if it is not allowed."""

    def copy(self) -> Constraint: ...


def token_bits(tokens: Collection[int], vocabulary: int) -> np.ndarray:
    """A mask with the bits of these tokens."""
    bits = np.zeros(-(-vocabulary // 32) * 32, np.uint8)
    bits[[token for token in tokens if token < vocabulary]] = 1
    return np.packbits(bits, bitorder="little").view("<i4")


def has_bit(mask: np.ndarray, token: int) -> bool:
    return bool(int(mask[token // 32]) >> token % 32 & 1)


def next_mask(constraint: Constraint, ends: np.ndarray) -> np.ndarray:
    """The tokens that may come next, those that end the answer among them; `ends` is their mask."""
    return constraint.mask() | ends if constraint.may_end else constraint.mask()


def draft_masks(constraint: Constraint, draft: Sequence[int], ends: np.ndarray) -> list[np.ndarray]:
    """The masks of the tokens of a draft, up to the first that is not allowed, and of the one behind them.

    A draft is also cut before a token after which there is nothing to choose.
    """
    state, masks = constraint.copy(), [next_mask(constraint, ends)]
    for token in draft:
        if not has_bit(state.mask(), token):
            break
        try:
            state.accept(token)
            if state.complete or state.forced():
                break
            masks.append(next_mask(state, ends))
        except HightideError:  # what leads nowhere is for the answer to find out, if it ever comes there
            break
    return masks
