"""RMS norms that an exporter has taken apart into a square, a mean and a root, as one op again."""

from __future__ import annotations

from hightide.fuse.norms import RMS_NORM
from hightide.fuse.rewriter import Rewriter, either_way
from hightide.graph.graph import OpCall
from hightide.ops.arrays import read_array

ADD, MUL = ("aten.add.Tensor", "aten.add.Scalar"), "aten.mul.Tensor"
POWERS = ("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor")


def plain_norms(r: Rewriter) -> None:
    """x * rsqrt(mean(x * x) + eps) * weight, over the last dim."""
    for root in r.calls("aten.rsqrt.default"):
        total = r.maker(root.args["a"])
        if total is None or total.name not in ADD or r.option(total, "alpha") != 1:
            continue
        for mean_id, eps_id in either_way(total):
            mean, eps = r.maker(mean_id), _number(r, eps_id)
            square = None if mean is None else _square(r, mean)
            if mean is None or square is None or eps is None:
                continue
            x = square.args["a"]
            normed, by = _only_product(r, root.out)
            weighed, weight = (None, -1) if normed is None else _only_product(r, normed.out)
            if normed is None or weighed is None or by != x or not _is_row(r, weight, x):
                continue
            fused = OpCall(0, RMS_NORM, {"x": x, "weight": weight, "eps": r.new_literal(eps)}, weighed.out)
            if r.replace([square, mean, total, root, normed, weighed], [fused]):
                break


def _number(r: Rewriter, id: int) -> float | None:
    """A literal, or a constant of one element."""
    if not r.is_tensor(id):
        literal = r.literal(id)
        return float(literal) if isinstance(literal, int | float) else None
    value = r.tensor(r.behind_views(id)[0])
    if value.constant is None or value.dims or r.is_written(id):
        return None
    return float(read_array(value.constant.view(), value.stored_dtype, value.dims))


def _square(r: Rewriter, mean: OpCall) -> OpCall | None:
    """The square that this is the mean of, over the last dim."""
    if mean.name != "aten.mean.dim" or r.option(mean, "keepdim") is not True:
        return None
    square = r.maker(mean.args["x"])
    if square is None or r.option(mean, "dim") not in ((-1,), (len(r.tensor(square.out).dims) - 1,)):
        return None
    if square.name in POWERS:
        return square if _number(r, square.args["b"]) == 2 else None
    return square if square.name == MUL and square.args["a"] == square.args["b"] else None


def _only_product(r: Rewriter, id: int) -> tuple[OpCall | None, int]:
    """The product that alone needs a value, and what it is multiplied by."""
    users = r.users(id)
    if len(users) != 1 or users[0].name != MUL or r.is_output(id):
        return None, -1
    others = [other for one, other in either_way(users[0]) if one == id]
    return (users[0], others[0]) if len(others) == 1 else (None, -1)


def _is_row(r: Rewriter, weight: int, x: int) -> bool:
    """Whether a weight has an element for each of a row of x, so that the product has the dims of x."""
    return r.tensor(weight).dims == r.live_dims(x)[-1:] and r.tensor(weight).dtype == r.tensor(x).dtype == "float32"
