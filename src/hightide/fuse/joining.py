"""Linears by what they mean, and several of one x joined into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hightide.fuse.rewriter import Rewriter
from hightide.graph.blob import AnyBlob, Joined, join
from hightide.graph.graph import OpCall
from hightide.graph.values import ITEM_SIZE, TensorValue

JOINED_BYTES = 128 << 20  # WebGPU's guaranteed binding size: what would be larger stays apart
Q4 = ("et_vk.linear_q4gsw.default", "hightide.linear_q4.default")
ANY = ("aten.linear.default", "hightide.linear.default")
ADAPTED = "hightide.adapted_linear.default"


@dataclass(frozen=True)
class LowRankForm:
    """What adapters change in some columns of a linear's product, by ids of values."""

    down: int
    up: int
    owners: int
    first: int  # column


@dataclass(frozen=True)
class LinearForm:
    """What a linear computes, by ids of values: activation(norm(x) @ weights.T + bias) + residual."""

    x: int
    weights: tuple[int, ...]  # with 4 bits: (weight, scales); else the parts of the rows
    group: int | None  # the value that is the group size of 4-bit weights
    bias: int | None = None
    residual: int | None = None
    activation: str = ""
    norm: int | None = None  # the weight of an RMS norm
    eps: int | None = None
    gated: bool = True  # the activation is of a gate, and the weights have its rows before those of `up`
    changes: tuple[LowRankForm, ...] = ()
    adapted_rows: tuple[int, ...] = ()  # where there are changes: the rows that have some, and how much of each

    @property
    def plain(self) -> bool:
        return self.residual is None and not self.activation and self.norm is None

    def columns(self, r: Rewriter) -> int:
        parts = self.weights if self.group is None else self.weights[:1]
        return sum(r.tensor(id).dims[0] for id in parts)

    def call(self, r: Rewriter, out: int) -> OpCall:
        """As a call of the fused op."""
        ends = {"bias": self.bias, "residual": self.residual, "norm": self.norm, "eps": self.eps}
        given = {name: id for name, id in ends.items() if id is not None}
        given["activation"] = r.new_literal(self.activation)
        if not self.gated:
            given["gated"] = r.new_literal(False)
        if self.group is not None:
            weight, scales = self.weights
            args = {"x": self.x, "weight": weight, "scales": scales, "group": self.group, **given}
            return OpCall(0, "hightide.linear_q4.default", args, out)
        rows = self.weights[0] if len(self.weights) == 1 else r.new_list(self.weights)
        args = {"x": self.x, "weight": rows, **given}
        if not self.changes:
            return OpCall(0, "hightide.linear.default", args, out)
        args |= dict(zip(("adapted", "strengths"), self.adapted_rows, strict=True))
        args |= {f"{side}s": r.new_list([getattr(one, side) for one in self.changes]) for side in ("down", "up")}
        args["owners"] = r.new_list([one.owners for one in self.changes])
        args["firsts"] = r.new_literal(tuple(one.first for one in self.changes))
        return OpCall(0, ADAPTED, args, out)


def read_linear(r: Rewriter, call: OpCall | None) -> LinearForm | None:
    if call is None or call.name not in (*Q4, *ANY, ADAPTED):
        return None
    x, weight = call.args["x"], call.args["weight"]
    bias, residual, norm = (
        None if r.option(call, name) is None else call.args[name] for name in ("bias", "residual", "norm")
    )
    activation, gated = str(r.option(call, "activation")), bool(r.option(call, "gated"))
    ends = (bias, residual, activation, norm, call.args.get("eps"), gated)
    if any(len(r.tensor(id).dims) != 2 for id in r.items(weight)):
        return None
    if call.name in Q4:
        return LinearForm(x, (weight, call.args["scales"]), call.args["group"], *ends)
    linear = LinearForm(x, r.items(weight), None, *ends)
    if call.name != ADAPTED:
        return linear
    sides = [r.items(call.args[name]) for name in ("downs", "ups", "owners")]
    changes = zip(*sides, r.literal(call.args["firsts"]), strict=True)
    rows = call.args["adapted"], call.args["strengths"]
    return replace(linear, changes=tuple(LowRankForm(*change) for change in changes), adapted_rows=rows)


def join_linears(r: Rewriter, linears: Sequence[LinearForm], *, whole: bool = False) -> LinearForm | None:
    """One linear that gives the columns of all, one after the other; None if they cannot be joined.

    `whole`: all rows must lie in one tensor; else those of different types stay in parts.
    """
    first = linears[0]
    if any(x.x != first.x or not x.plain or (x.group is None) != (first.group is None) for x in linears):
        return None
    if len({x.bias is None for x in linears}) > 1:
        return None
    bias = None if first.bias is None else _join_biases(r, linears)
    if first.bias is not None and bias is None:
        return None
    weights = _join_parts(r, linears) if first.group is None else _join_q4(r, linears)
    if not weights or (whole and first.group is None and len(weights) > 1):
        return None
    changes, columns = [], 0
    for x in linears:
        changes += [replace(one, first=one.first + columns) for one in x.changes]
        columns += x.columns(r)
    rows = next((x.adapted_rows for x in linears if x.changes), ())
    return LinearForm(first.x, weights, first.group, bias, changes=tuple(changes), adapted_rows=rows)


def _join_q4(r: Rewriter, linears: Sequence[LinearForm]) -> tuple[int, ...]:
    weights, scales = ([r.tensor(x.weights[n]) for x in linears] for n in (0, 1))
    blobs, scale_blobs = _blobs(r, weights), _blobs(r, scales)
    forms = {
        (r.literal(x.group or 0), w.dtype, w.dims[1], s.dtype, s.dims[0])
        for x, w, s in zip(linears, weights, scales, strict=True)
    }
    if len(forms) > 1 or not blobs or not scale_blobs or sum(b.length for b in blobs) > JOINED_BYTES:
        return ()
    rows, groups, size = [w.dims[0] for w in weights], scales[0].dims[0], ITEM_SIZE[scales[0].dtype]
    side_by_side = Joined(scale_blobs, groups, tuple(n * size for n in rows))
    return (
        r.new_tensor((sum(rows), weights[0].dims[1]), weights[0].dtype, join(blobs)),
        r.new_tensor((groups, sum(rows)), scales[0].dtype, side_by_side),
    )


def _join_parts(r: Rewriter, linears: Sequence[LinearForm]) -> tuple[int, ...]:
    """Neighbours of one type become one tensor, as far as it can be bound."""
    runs: list[list[TensorValue]] = []
    for part in (r.tensor(id) for x in linears for id in x.weights):
        blobs = _blobs(r, [*(runs[-1] if runs else ()), part])
        if not blobs:
            return ()
        if runs and runs[-1][0].dtype == part.dtype and sum(blob.length for blob in blobs) <= JOINED_BYTES:
            runs[-1].append(part)
        else:
            runs.append([part])
    return tuple(
        run[0].id
        if len(run) == 1
        else r.new_tensor((sum(p.dims[0] for p in run), run[0].dims[1]), run[0].dtype, join(_blobs(r, run)))
        for run in runs
    )


def _join_biases(r: Rewriter, linears: Sequence[LinearForm]) -> int | None:
    biases = [r.tensor(x.bias) for x in linears if x.bias is not None]
    blobs = _blobs(r, biases)
    if not blobs or len({b.dtype for b in biases}) > 1:
        return None
    counts, size = [x.columns(r) for x in linears], ITEM_SIZE[biases[0].dtype]
    return r.new_tensor((sum(counts),), biases[0].dtype, Joined(blobs, 1, tuple(n * size for n in counts)))


def _blobs(r: Rewriter, values: Sequence[TensorValue]) -> tuple[AnyBlob, ...]:
    """The data of constants; none if one of them is not, or changes, or is not held as it is stored."""
    kept = (v for v in values if not r.is_written(v.id) and not v.stored)
    blobs = tuple(v.constant for v in kept if v.constant is not None)
    return blobs if len(blobs) == len(values) else ()
