"""The tokens that are kept are selected before the last norm and head, not after them."""

from __future__ import annotations

from dataclasses import replace

from hightide.fuse.joining import ANY, Q4, read_linear
from hightide.fuse.rewriter import Rewriter
from hightide.graph.graph import OpCall

SELECTS = ("aten.select_copy.int", "aten.slice_copy.Tensor")
# Each row of the result comes from the same row of the first argument alone.
BY_ROWS = (
    *Q4,
    *ANY,
    "et_vk.rms_norm.default",
    "aten.mul.Scalar",
    "aten.tanh.default",
)


def select_early(r: Rewriter) -> None:
    """select(f(x)) is f(select(x)) where f works on each row by itself."""
    for call in r.calls(*SELECTS):
        step: OpCall | None = call
        while step is not None:
            step = _moved(r, step)


def _moved(r: Rewriter, select: OpCall) -> OpCall | None:
    """Swap a select with what made its source; the select as it is then."""
    by_rows, out = r.maker(select.args[0]), r.tensor(select.args[-1])
    if by_rows is None or by_rows.name not in BY_ROWS:
        return None
    linear, x = read_linear(r, by_rows), r.tensor(by_rows.args[0])
    along_rows = r.literal(select.args[1]) % len(x.dims) == len(x.dims) - 1
    if along_rows or (linear is not None and not linear.plain):
        return None
    kept = r.new_tensor((*out.dims[:-1], x.dims[-1]), x.dtype)
    early = replace(select, args=(x.id, *select.args[1:-1], kept))
    late = replace(by_rows, args=(kept, *by_rows.args[1:-1], out.id))
    return r.maker(kept) if r.replace([by_rows, select], [early, late]) else None
