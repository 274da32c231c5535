"""A residual that no linear could add: added, and normed for what comes next, in one dispatch."""

from __future__ import annotations

from hightide.fuse.rewriter import Rewriter
from hightide.graph.graph import OpCall

RMS_NORM = "et_vk.rms_norm.default"


def add_norm(r: Rewriter) -> None:
    """x + h, or x + norm(h), and the norm of that: (sum, normed)."""
    for call in r.calls("aten.add.Tensor"):
        x, h, total = call.args[0], call.args[1], call.args[-1]
        users = r.users(total)
        if len({r.tensor(id).dims for id in (x, h, total)}) > 1 or (
            len(call.args) > 3 and r.literal(call.args[2]) != 1
        ):
            continue
        if not users or users[0].name != RMS_NORM or min(user.index for user in users) < users[0].index:
            continue
        normed = users[0]
        old, none = [call, normed], r.new_literal(None)
        weight, eps = none, r.new_literal(0.0)
        for side, other in ((h, x), (x, h)):
            inner = r.maker(side)
            if inner is not None and inner.name == RMS_NORM and list(r.users(side)) == [call]:
                x, h, weight, eps = other, inner.args[0], inner.args[1], inner.args[2]
                old.append(inner)
                break
        outs = r.new_list((total, normed.args[-1]))
        fused = OpCall(0, "hightide.add_norm.default", (x, h, weight, eps, *normed.args[1:3], outs))
        r.replace(old, [fused])
