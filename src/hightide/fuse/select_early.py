"""The tokens that are kept are selected before the last norm and head, not after them."""

from __future__ import annotations

import math
from dataclasses import replace

from hightide.fuse.joining import ANY, Q4, read_linear
from hightide.fuse.rewriter import Rewriter
from hightide.graph.graph import OpCall

SELECTS = ("aten.select_copy.int", "aten.slice_copy.Tensor", "aten.index_select.default")
# Ops of which each row of the result comes from the same row of one argument alone, which is named.
BY_ROWS = {
    **dict.fromkeys((*Q4, *ANY, "et_vk.rms_norm.default"), "x"),
    **dict.fromkeys(("aten.mul.Scalar", "aten.tanh.default"), "a"),
}


def select_early(r: Rewriter) -> None:
    """select(f(x)) is f(select(x)) where f works on each row by itself."""
    for call in r.calls(*SELECTS):
        step: OpCall | None = call
        while step is not None:
            step = _moved(r, step)


def _moved(r: Rewriter, select: OpCall) -> OpCall | None:
    """Swap a select with what made its source; the select as it is then."""
    by_rows, out = r.maker(select.args["x"]), r.tensor(select.out)
    if by_rows is None or by_rows.name not in BY_ROWS or math.prod(out.dims) > math.prod(r.tensor(by_rows.out).dims):
        return None
    row = BY_ROWS[by_rows.name]
    linear, x = read_linear(r, by_rows), r.tensor(by_rows.args[row])
    along_rows = r.option(select, "dim") in (-1, len(x.dims) - 1)
    if along_rows or len(x.dims) < 2 or (linear is not None and not linear.plain):
        return None
    kept = r.new_tensor((*out.dims[:-1], x.dims[-1]), x.dtype)
    early = replace(select, args={**select.args, "x": x.id}, out=kept)
    late = replace(by_rows, args={**by_rows.args, row: kept}, out=out.id)
    return r.maker(kept) if r.replace([by_rows, select], [early, late]) else None
