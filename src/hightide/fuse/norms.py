"""A residual that no linear could add: added, and normed for what comes next, in one dispatch."""

from __future__ import annotations

from hightide.fuse.rewriter import Rewriter
from hightide.graph.graph import OpCall

RMS_NORM = "et_vk.rms_norm.default"


def add_norm(r: Rewriter) -> None:
    """x + h, or x + norm(h), and the norm of that: (sum, normed)."""
    for call in r.calls("aten.add.Tensor"):
        x, h, total = call.args["a"], call.args["b"], call.out
        users = r.users(total)
        if not (r.is_tensor(x) and r.is_tensor(h)) or r.option(call, "alpha") != 1:
            continue
        if len({r.tensor(id).dims for id in (x, h, total)}) > 1:
            continue
        if (
            not users
            or users[0].name != RMS_NORM
            or "eps" not in users[0].args
            or min(user.index for user in users) < users[0].index
        ):
            continue
        normed = users[0]
        old, inner_norm = [call, normed], {}
        for side, other in ((h, x), (x, h)):
            inner = r.maker(side)
            if inner is None or inner.name != RMS_NORM or "eps" not in inner.args:
                continue
            if list(r.users(side)) == [call]:
                x, h = other, inner.args["x"]
                inner_norm = {"inner_weight": inner.args["weight"], "inner_eps": inner.args["eps"]}
                old.append(inner)
                break
        outs = r.new_list((total, normed.out))
        args = {"x": x, "h": h, **inner_norm, "weight": normed.args["weight"], "eps": normed.args["eps"]}
        fused = OpCall(0, "hightide.add_norm.default", args, outs)
        r.replace(old, [fused])
