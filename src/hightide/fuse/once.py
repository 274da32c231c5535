"""A graph in two: what depends on one input alone, and the rest.

A text decoder is called for every token with the same output of an encoder, from which it computes the same keys
and values. Taken apart, they are computed once. Not a pass, since it makes two graphs of one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hightide.fuse.rewriter import Rewriter
from hightide.graph.graph import Graph, OpCall, input_ids, output_ids
from hightide.graph.values import SymIntValue, TensorValue
from hightide.ops.binding import graph_aliases, mutated_ids


@dataclass(frozen=True)
class SplitGraph:
    first: Graph  # takes the input
    rest: Graph  # takes the other inputs, then what `first` gives, then the input if something else needs it
    keeps_input: bool


def split_at_input(graph: Graph, position: int) -> SplitGraph | None:
    """Calls that read nothing live but this input, or what such calls give, go into `first`; None if there are none."""
    given = graph.inputs[position]
    root = graph_aliases(graph).root
    written = {root[id] for call in graph.calls for id in mutated_ids(call)}
    fixed: set[int] = {given}
    known: set[int] = set()  # before any input is
    moved: list[OpCall] = []
    stays: list[OpCall] = []
    for call in graph.calls:
        reads = input_ids(graph, call)
        tensors = all(isinstance(graph.values[id], TensorValue) for id in output_ids(graph, call))
        pure = tensors and not any(root.get(id) in written for id in (*reads, *output_ids(graph, call)))
        live = {id for id in reads if _is_live(graph, id)} - known
        if pure and not live:  # of constants alone: in both, and dropped where nobody reads it
            known.update(output_ids(graph, call))
            moved.append(call)
            stays.append(call)
        elif pure and live <= fixed:
            fixed.update(output_ids(graph, call))
            moved.append(call)
        else:
            stays.append(call)
    used = dict.fromkeys([*(id for call in stays for id in input_ids(graph, call)), *graph.outputs])
    crossing = [id for id in used if id in fixed and id != given]
    if not crossing:
        return None
    others = [id for id in graph.inputs if id != given]
    kept = [given] if given in used else []
    return SplitGraph(
        _part(graph, moved, [given], crossing),
        _part(graph, stays, [*others, *crossing, *kept], graph.outputs),
        bool(kept),
    )


def _part(graph: Graph, calls: list[OpCall], inputs: list[int], outputs: list[int] | tuple[int, ...]) -> Graph:
    """Without the constants and calls that it does not need."""
    numbered = tuple(replace(call, index=n) for n, call in enumerate(calls))
    return Rewriter(Graph(graph.values, numbered, tuple(inputs), tuple(outputs))).finish()


def _is_live(graph: Graph, id: int) -> bool:
    value = graph.values[id]
    return isinstance(value, SymIntValue) or (isinstance(value, TensorValue) and value.constant is None)
