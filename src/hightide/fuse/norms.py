"""Norms with what is around them: a residual that no linear could add, or the linear that takes what is normed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hightide.fuse.joining import read_linear
from hightide.fuse.rewriter import Rewriter, either_way
from hightide.graph.graph import OpCall

RMS_NORM = "et_vk.rms_norm.default"


def add_norm(r: Rewriter) -> None:
    """x + h, or x + norm(h), and the norm of that: (sum, normed)."""
    for call in r.calls("aten.add.Tensor"):
        total, normed = call.out, _normed(r, call.out)
        if normed is None or not _alike(r, (call.args["a"], call.args["b"], total)) or r.option(call, "alpha") != 1:
            continue
        outs = r.new_list((total, normed.out))
        norm = {"weight": normed.args["weight"], "eps": normed.args["eps"]}
        for x, h, inner in _ways(r, call):
            first = {} if inner is None else {"inner_weight": inner.args["weight"], "inner_eps": inner.args["eps"]}
            fused = OpCall(0, "hightide.add_norm.default", {"x": x, "h": h, **first, **norm}, outs)
            if r.replace([call, normed, *([] if inner is None else [inner])], [fused]):
                break


def linear_of_norm(r: Rewriter) -> None:
    """The norm of x that one linear takes: left to the linear, whose kernel may read x but once."""
    for call in r.calls(RMS_NORM):
        user = next(iter(r.users(call.out)), None)
        linear = read_linear(r, user)
        if user is None or linear is None or linear.x != call.out or linear.norm is not None or "eps" not in call.args:
            continue
        if _alike(r, (call.args["x"], call.out)):
            fused = replace(linear, x=call.args["x"], norm=call.args["weight"], eps=call.args["eps"])
            r.replace([call, user], [fused.call(r, user.out)])


def _normed(r: Rewriter, total: int) -> OpCall | None:
    """The norm of a sum, if nothing needs the sum before it."""
    first = next(iter(r.users(total)), None)
    if first is None or first.name != RMS_NORM or "eps" not in first.args:
        return None
    return first if first.args["x"] == total != first.args["weight"] else None


def _ways(r: Rewriter, call: OpCall) -> Iterator[tuple[int, int, OpCall | None]]:
    """(x, h, the norm that h goes through first): with such a norm if there is one."""
    for x, side in reversed(either_way(call)):
        inner = r.maker(side)
        if inner is not None and inner.name == RMS_NORM and "eps" in inner.args:
            yield x, inner.args["x"], inner
    yield call.args["a"], call.args["b"], None


def _alike(r: Rewriter, ids: tuple[int, ...]) -> bool:
    floats = all(r.is_tensor(id) and r.tensor(id).dtype in ("float32", "float16") for id in ids)
    return floats and len({r.live_dims(id) for id in ids}) == 1
