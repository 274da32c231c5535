"""Batched products that all have one weight: a linear.

torch's `matmul` of a tensor and a matrix becomes an expand of the matrix to all batches, a batched product, and, where
there is a bias, a sum.
"""

from __future__ import annotations

from hightide.fuse.constants import constants
from hightide.fuse.live_dims import EXPANDS, PERMUTES
from hightide.fuse.plain_attention import BMM, VIEWS
from hightide.fuse.rewriter import Rewriter, either_way
from hightide.graph.graph import OpCall

LINEAR = "aten.linear.default"


def shared_weights(r: Rewriter) -> None:
    """bmm(x, expand(weight)) + bias, with a constant weight: one linear."""
    found = [(call, weight) for call in r.calls(BMM) if (weight := _weight(r, call)) is not None]
    for call, weight in found:
        rows, columns = r.tensor(weight).dims
        turned = r.new_tensor((columns, rows), r.tensor(weight).dtype)
        turn = OpCall(0, PERMUTES[0], {"x": weight, "order": r.new_literal((1, 0))}, turned)
        given = {"x": _unexpanded(r, call.args["x"]), "weight": turned}
        y = call.args["y"]
        if not _with_bias(r, call, turn, given):
            r.replace([call], [turn, OpCall(0, LINEAR, given, call.out)])
        for id in (call.args["x"], y):
            _drop_unused(r, id)
    if found:
        constants(r)  # weights are turned once


def _weight(r: Rewriter, call: OpCall) -> int | None:
    """The constant [K, N] that is every matrix of the product's second operand."""
    y = call.args["y"]
    expand = _behind_view(r, y)
    if expand is None or expand.name not in EXPANDS or len(r.tensor(expand.out).dims) != 3:
        return None
    weight = expand.args["x"]
    value = r.tensor(weight)
    if value.constant is None or value.dtype != "float32" or value.stored or r.is_written(weight):
        return None
    if len(value.dims) != 2 or 1 in value.dims:  # a dim of 1 may have been expanded
        return None
    return weight if y == expand.out or r.live_dims(y)[1:] == value.dims else None


def _behind_view(r: Rewriter, id: int) -> OpCall | None:
    """What makes a value, or what it is a view of."""
    call = r.maker(id)
    return r.maker(call.args["x"]) if call is not None and call.name in VIEWS else call


def _unexpanded(r: Rewriter, id: int) -> int:
    """Behind an expand, and a view, that change nothing."""
    expand = _behind_view(r, id)
    if expand is None or expand.name not in EXPANDS or r.live_dims(expand.args["x"]) != r.live_dims(id):
        return id
    return id if r.is_written(expand.args["x"]) else expand.args["x"]


def _with_bias(r: Rewriter, call: OpCall, turn: OpCall, given: dict[str, int]) -> bool:
    """The linear with the bias that is added to its result, or to a view of that; False if there is none."""
    view = next(iter(r.users(call.out)), None)
    if view is None or view.name not in VIEWS or r.live_dims(view.out)[-1:] != r.live_dims(call.out)[-1:]:
        return False
    add = next(iter(r.users(view.out)), None)
    if add is None or add.name != "aten.add.Tensor" or r.option(add, "alpha") != 1:
        return False
    columns = r.tensor(call.out).dims[-1]
    for bias, side in either_way(add):
        if side == view.out and r.is_tensor(bias) and r.live_dims(bias) == (columns,):
            product = r.new_tensor(r.tensor(call.out).dims)
            linear = OpCall(0, LINEAR, {**given, "bias": bias}, product)
            viewed = OpCall(0, view.name, {**view.args, "x": product}, add.out)
            return r.replace([call, view, add], [turn, linear, viewed])
    return False


def _drop_unused(r: Rewriter, id: int) -> None:
    """Leave out what made a value, and what made that, as far as nobody needs it."""
    while (call := r.maker(id)) is not None and not r.users(id) and not r.is_output(id):
        if call.name not in (*VIEWS, *EXPANDS) or not r.replace([call], []):
            return
        id = call.args["x"]
