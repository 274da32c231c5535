"""Calls that compute the same become one, so that other passes can see it."""

from __future__ import annotations

from hightide.fuse.rewriter import Rewriter
from hightide.graph.values import LiteralValue, TensorValue
from hightide.ops import REGISTRY

SELECT = "et_vk.select_as_symint.default"


def same_calls(r: Rewriter) -> None:
    """Calls of one op on the same arguments: the later ones are the first one."""
    written = {r.behind_views(call.args[n])[0] for call in r.every_call() for n in REGISTRY[call.name].mutates}
    known: dict[tuple[object, ...], tuple[int, ...]] = {}
    for call in r.every_call():
        reads = [id for arg in call.args[:-1] for id in r.items(arg)]
        outs = r.items(call.args[-1])
        if REGISTRY[call.name].mutates or any(r.behind_views(id)[0] in written for id in reads):
            continue  # memory that changes is not the same at two times
        if any(r.is_output(id) for id in outs):
            continue
        firsts = known.setdefault(_meaning(r, call.name, call.args[:-1]), outs)
        if firsts != outs:
            for first, later in zip(firsts, outs, strict=True):
                r.rename(later, first)
            r.replace([call], [])


def _meaning(r: Rewriter, name: str, args: tuple[int, ...]) -> tuple[object, ...]:
    source = r.values[args[0]] if args else None
    if name == SELECT and isinstance(source, TensorValue) and set(source.dims) <= {1}:
        return name, source.id  # of one element there is only one to select
    return name, *(_value(r, arg) for arg in args)


def _value(r: Rewriter, id: int) -> object:
    value = r.values[id]
    if isinstance(value, LiteralValue):
        return type(value.value), value.value
    items = r.items(id)
    return id if items == (id,) else tuple(_value(r, item) for item in items)
