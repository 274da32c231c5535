"""States that a delegate's graph writes in place: buffers of the model that a call gives new values.

An exporter that is told to (`alias_buffer_mutations`) lets a call write to the constant that a buffer is, or to what
packs it. In a graph nothing is defined twice, so here the call gives a value of its own, which is then stored.
"""

from __future__ import annotations

from dataclasses import replace

from hightide.graph.graph import Graph, OpCall, output_ids
from hightide.graph.values import ListValue, TensorValue, Value
from hightide.ops.views.views import PREPACK

STORE = "hightide.store.default"


def with_states_stored(graph: Graph) -> Graph:
    """The graph with a call that stores each new value of a buffer; as it is where there are none."""
    values: list[Value] = list(graph.values)
    buffers = {v.id for v in values if isinstance(v, TensorValue) and v.constant is not None}
    calls: list[OpCall] = []
    for call in graph.calls:
        changed = [id for id in output_ids(graph, call) if id in buffers]
        if call.name == PREPACK and not changed:
            buffers.update(output_ids(graph, call) if call.args["x"] in buffers else ())
        new = {id: _copied(values, id) for id in changed}
        calls.append(replace(call, out=_renamed(values, call.out, new)))
        for id, made in new.items():
            placeholder = TensorValue(len(values), (1,), "float32", "float32")
            values.append(placeholder)
            calls.append(OpCall(0, STORE, {"x": made, "state": id}, placeholder.id))
    if len(calls) == len(graph.calls):
        return graph
    numbered = tuple(replace(call, index=n) for n, call in enumerate(calls))
    return replace(graph, values=tuple(values), calls=numbered)


def _copied(values: list[Value], id: int) -> int:
    """A new tensor like this one."""
    value = values[id]
    assert isinstance(value, TensorValue)
    values.append(replace(value, id=len(values), constant=None, stored=""))
    return len(values) - 1


def _renamed(values: list[Value], out: int, new: dict[int, int]) -> int:
    value = values[out]
    if not isinstance(value, ListValue):
        return new.get(out, out)
    if new:
        values.append(ListValue(len(values), tuple(new.get(item, item) for item in value.items)))
        return len(values) - 1
    return out
