"""What a rotary embedding means: x [..., S, heads, D] turned by cosines and sines [S, 1, ...]."""

from __future__ import annotations

import numpy as np

from hightide.ops.contract import Context, Int, Tensor, expr_of
from hightide.units import counted


def turned_halves(x: np.ndarray, c: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Element d turns with d + rotary/2; elements past `rotary` stay."""
    rotary = c.shape[-1]
    inner = x[..., :rotary]
    swapped = np.concatenate([-inner[..., rotary // 2 :], inner[..., : rotary // 2]], axis=-1)
    return np.concatenate([inner * c + swapped * s, x[..., rotary:]], axis=-1)


def turned_neighbours(x: np.ndarray, c: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Neighbours turn; elements past `rotary` stay."""
    rotary = c.shape[-1] * 2
    even, odd = x[..., 0:rotary:2], x[..., 1:rotary:2]
    turned = np.stack([even * c - odd * s, even * s + odd * c], axis=-1).reshape(*x.shape[:-1], rotary)
    return np.concatenate([turned, x[..., rotary:]], axis=-1)


def check_rows(ctx: Context, tokens: int, table: Tensor, start: Int) -> None:
    """The tables must reach as far as the tokens do."""
    rows = table.dims[0]
    past = "position {value} plus " + f"{counted(tokens, 'token')} is past the {rows} rows of the frequency table"
    ctx.require(expr_of(start), 0, rows - tokens, past)
