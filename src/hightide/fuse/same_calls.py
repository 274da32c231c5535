"""Calls that compute the same become one, so that other passes can see it."""

from __future__ import annotations

from hightide.fuse.rewriter import Rewriter
from hightide.graph.graph import OpCall
from hightide.graph.values import LiteralValue, TensorValue
from hightide.ops import REGISTRY

SELECT = "et_vk.select_as_symint.default"


def same_calls(r: Rewriter) -> None:
    """Calls of one op on the same arguments: the later ones are the first one."""
    known: dict[tuple[object, ...], tuple[int, ...]] = {}
    for call in r.every_call():
        reads = [id for arg in call.args.values() for id in r.items(arg)]
        outs = r.items(call.out)
        if REGISTRY[call.name].mutates or any(map(r.is_written, (*reads, *outs))):
            continue  # memory that changes is not the same at two times
        if any(r.is_output(id) for id in outs):
            continue
        firsts = known.setdefault((*_meaning(r, call), *(_type(r, id) for id in outs)), outs)
        if firsts != outs:
            for first, later in zip(firsts, outs, strict=True):
                r.rename(later, first)
            r.replace([call], [])


def _meaning(r: Rewriter, call: OpCall) -> tuple[object, ...]:
    if call.name == SELECT and set(r.tensor(call.args["x"]).dims) <= {1}:
        return call.name, call.args["x"]  # of one element there is only one to select
    return call.name, *((name, _value(r, id)) for name, id in call.args.items())


def _type(r: Rewriter, id: int) -> object:
    """What a call's output is told apart by: some ops are told their type by it alone."""
    value = r.values[id]
    return (value.dims, value.dtype) if isinstance(value, TensorValue) else None


def _value(r: Rewriter, id: int) -> object:
    value = r.values[id]
    if isinstance(value, LiteralValue):
        return type(value.value), value.value
    items = r.items(id)
    return id if items == (id,) else tuple(_value(r, item) for item in items)
