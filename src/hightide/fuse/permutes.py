"""Dims put in another order twice: in one order at once."""

from __future__ import annotations

from dataclasses import replace

from hightide.fuse.rewriter import Rewriter
from hightide.graph.graph import OpCall

PERMUTES = ("aten.permute_copy.default", "aten.permute.default")


def permutes(r: Rewriter) -> None:
    """A permute of a permute as one of what that was of; torch's attention comes with three in a row."""
    for call in r.calls(*PERMUTES):
        inner = r.maker(call.args["x"])
        if inner is None or inner.name not in PERMUTES or r.is_written(inner.out):
            continue
        outer_order, inner_order = r.option(call, "order"), r.option(inner, "order")
        if not isinstance(outer_order, tuple) or not isinstance(inner_order, tuple):
            continue
        order = r.new_literal(tuple(inner_order[axis] for axis in outer_order))
        if r.replace([call], [replace(call, args={"x": inner.args["x"], "order": order})]):
            r.drop(inner.out)


def swaps_rows_and_heads(r: Rewriter, call: OpCall) -> bool:
    """Whether a call makes [B, H, S, D] of [B, S, H, D], or the other way round."""
    order = r.option(call, "order") if call.name in PERMUTES else None
    return isinstance(order, tuple) and tuple(dim % 4 for dim in order) == (0, 2, 1, 3)
