"""Attention that an exporter has taken apart into products and a softmax, as one op again.

torch's `scaled_dot_product_attention` becomes two batched products around a softmax. Heads are expanded (to what they
are already) and viewed as one list, queries and keys are both scaled, and rows of which the mask hides every key are
set to zero: sixteen ops, of which the GPU's own attention needs none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hightide.fuse.rewriter import Rewriter, either_way
from hightide.graph.graph import OpCall

BMM, SDPA, SOFTMAX = "aten.bmm.default", "et_vk.sdpa.default", "aten._softmax.default"
VIEWS = ("aten.view_copy.default", "aten.view.default", "aten._unsafe_view.default")
EXPANDS = ("aten.expand_copy.default", "aten.expand.default")
PERMUTES = ("aten.permute_copy.default", "aten.permute.default")
TRANSPOSES = ("aten.transpose_copy.int", "aten.transpose.int")


@dataclass
class _Read:
    """A value that was found, and the calls on the way to it."""

    r: Rewriter
    passed: list[OpCall] = field(default_factory=list)

    def made_by(self, id: int, *names: str) -> OpCall | None:
        call = self.r.maker(id)
        return call if call is not None and call.name in names else None

    def heads(self, id: int) -> int | None:
        """The tensor [B, H, S, D] that [B * H, S, D] is a view of."""
        call = self.made_by(id, *VIEWS)
        if call is None or len(self.r.tensor(id).dims) != 3:
            return None
        source = call.args["x"]
        if len(self.r.tensor(source).dims) != 4 or self.r.live_dims(source)[2:] != self.r.live_dims(id)[1:]:
            return None
        self.passed.append(call)
        return source

    def unexpanded(self, id: int, known: bool = True) -> int:
        """Behind expands that change nothing; those of `known` dims say so themselves."""
        while call := self.made_by(id, *EXPANDS):
            if known and self.r.live_dims(call.args["x"]) != self.r.live_dims(id):
                break
            self.passed.append(call)
            id = call.args["x"]
        return id

    def unscaled(self, id: int) -> tuple[int, float]:
        """What is multiplied by a number, and the number."""
        call = self.made_by(id, "aten.mul.Scalar")
        factor = self.r.literal(call.args["b"]) if call else None
        if call is None or not isinstance(factor, int | float):
            return id, 1.0
        self.passed.append(call)
        return call.args["a"], float(factor)

    def untransposed(self, id: int) -> int | None:
        """The tensor whose last two dims are swapped here."""
        call = self.made_by(id, *PERMUTES, *TRANSPOSES)
        if call is None:
            return None
        if call.name in PERMUTES:
            swapped = self.r.option(call, "order") in ((0, 1, 3, 2), (0, 1, -1, -2))
        else:
            swapped = {self.r.option(call, name) for name in ("dim0", "dim1")} in ({2, 3}, {-1, -2})
        if not swapped:
            return None
        self.passed.append(call)
        return call.args["x"]

    def scores(self, weights: int) -> int | None:
        """What a softmax was taken of, with or without the zeros for rows that see nothing."""
        chosen = self.made_by(weights, "aten.where.self")
        if chosen is not None:
            found = self._hidden_rows(chosen)
            if found is None:
                return None
            weights = found
        call = self.made_by(weights, SOFTMAX)
        if call is None or self.r.option(call, "dim") not in (-1, 3):
            return None
        self.passed.append(call)
        return call.args["x"]

    def _hidden_rows(self, chosen: OpCall) -> int | None:
        """The softmax in where(not any(scores != -inf), zeros, softmax)."""
        softmax = self.made_by(chosen.args["b"], SOFTMAX)
        zeros = self.made_by(chosen.args["a"], "aten.full_like.default")
        none = self.made_by(chosen.args["condition"], "aten.logical_not.default")
        some = self.made_by(none.args["a"], "aten.any.dim") if none else None
        seen = self.made_by(some.args["x"], "aten.logical_not.default") if some else None
        hidden = self.made_by(seen.args["a"], "aten.eq.Scalar") if seen else None
        if not (softmax and zeros and none and some and seen and hidden):
            return None
        if self.r.literal(zeros.args["fill_value"]) != 0 or self.r.literal(hidden.args["b"]) != -math.inf:
            return None
        if self.r.option(some, "dim") not in (-1, 3) or self.r.option(some, "keepdim") is not True:
            return None
        if hidden.args["a"] != softmax.args["x"]:
            return None
        self.passed += [chosen, zeros, none, some, seen, hidden]
        return softmax.out

    def product(self, scores: int) -> tuple[OpCall, int, int | None] | None:
        """The product, its view [B, H, S, T] that scores are made of, and the mask that was added to it, if any."""
        added = self.made_by(scores, "aten.add.Tensor")
        ways = [(scores, None)] if added is None else either_way(added) if self.r.option(added, "alpha") == 1 else []
        for of, mask in ways:
            view = self.made_by(of, *VIEWS)
            call = self.made_by(view.args["x"], BMM) if view else None
            if view is None or call is None or self.r.live_dims(of)[2:] != self.r.live_dims(call.out)[1:]:
                continue
            self.passed += [view, call, *([] if added is None else [added])]
            return call, of, mask
        return None


def plain_attention(r: Rewriter) -> None:
    """softmax(q @ k.T * scale + mask) @ v of products and a softmax, as one op."""
    for call in r.calls(BMM):
        view = next(iter(r.users(call.out)), None)
        if view is None or view.name not in VIEWS or len(r.tensor(view.out).dims) != 4:
            continue
        read = _Read(r, [call, view])
        attention = _attention(read, call, view.out)
        if attention is not None:
            r.replace(read.passed, [attention])


def _attention(read: _Read, call: OpCall, out: int) -> OpCall | None:
    r = read.r
    weights, v = read.heads(call.args["x"]), read.heads(call.args["y"])
    scores = None if weights is None else read.scores(read.unexpanded(weights, known=False))
    found = None if scores is None else read.product(scores)
    if weights is None or v is None or found is None:
        return None
    product, viewed, mask = found
    q, turned = read.heads(product.args["x"]), read.heads(product.args["y"])
    if q is None or turned is None:
        return None
    v = read.unexpanded(v)
    q, scale = read.unscaled(read.unexpanded(q))
    turned, other = read.unscaled(read.unexpanded(turned))
    k = read.untransposed(turned)
    if k is None or not _fit(r, (q, k, v), (weights, viewed), mask, out):
        return None
    given = {"q": q, "k": k, "v": v, "scale": r.new_literal(scale * other)}
    return OpCall(0, SDPA, given if mask is None else {**given, "mask": mask}, out)


def _fit(r: Rewriter, heads: tuple[int, int, int], scored: tuple[int, int], mask: int | None, out: int) -> bool:
    """Whether these are heads [B, H, S, D], [B, H, T, D] and [B, H, T, E] at every level.

    The first and the last of what is `scored` are [B, H, S, T]. Between them a mask is added, which can only make a
    tensor larger: so it broadcasts to that, or the graph is refused as it is, too.
    """
    if any(r.tensor(id).dtype != "float32" for id in (*heads, out, *([] if mask is None else [mask]))):
        return False
    q, k, v = (r.live_dims(id) for id in heads)
    if {len(q), len(k), len(v)} != {4} or q[:2] != k[:2] or k[:3] != v[:3] or q[3] != k[3]:
        return False
    return r.live_dims(out) == (*q[:3], v[3]) and all(r.live_dims(id) == (*q[:3], k[2]) for id in scored)
