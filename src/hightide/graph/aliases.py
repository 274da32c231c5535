"""Which tensors are the same memory: a view is an alias of its source, not a copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hightide.errors import ProgramError
from hightide.graph.graph import Graph, input_ids, output_ids
from hightide.graph.values import SymIntValue, TensorValue


@dataclass(frozen=True)
class Aliases:
    root: Mapping[int, int]  # tensor value -> the value whose memory it is (itself, or what it is a view of)
    views: Mapping[int, int]  # op calls that are views, which have no work to do -> the value they view
    state: frozenset[int]  # constants that some op writes in place: they belong to the session


def find_aliases(graph: Graph, viewed: Mapping[int, int], written: set[int]) -> Aliases:
    """Resolve views, given the calls that may be views, each with the value it views, and what ops write in place.

    A view of memory that is later written in place stays a copy: it must keep what it saw. But what is
    written through a view is the memory behind it, so the views on the way there stay views.
    """
    tensors = {v.id: v for v in graph.values if isinstance(v, TensorValue)}
    root = _roots(graph, viewed)
    written_roots = {root[id] for id in written}
    view_of = {call.out: call.index for call in graph.calls if call.index in viewed}
    written_through = set(written)
    for id in written:
        while id in view_of:
            id = viewed[view_of[id]]
            written_through.add(id)
    views = {
        call: viewed[call]
        for id, call in view_of.items()
        if root[viewed[call]] not in written_roots or id in written_through
    }
    root = _roots(graph, views)
    state = {root[id] for id in written if tensors[root[id]].constant is not None}
    return Aliases(root, views, frozenset(state))


def check_order(graph: Graph) -> None:
    """Tensors and SymInts are constants, inputs, or defined by an earlier call; nothing is defined twice.

    Inputs and outputs are tensors and SymInts, and so is what a call defines.
    """
    live = {v.id: v for v in graph.values if isinstance(v, TensorValue | SymIntValue)}
    constants = {id for id, v in live.items() if isinstance(v, TensorValue) and v.constant is not None}
    for id in graph.inputs:
        if id not in live or id in constants:
            what = "a constant" if id in constants else "neither a tensor nor a SymInt"
            raise ProgramError(f"input value {id} is {what}")
    defined = constants | set(graph.inputs)
    given = frozenset(defined)
    for call in graph.calls:
        for id in input_ids(graph, call):
            if id in live and id not in defined:
                what = "tensor" if isinstance(live[id], TensorValue) else "SymInt"
                raise ProgramError(f"{call} reads {what} {id} before anything defines it")
        for id in output_ids(graph, call):
            if id in defined:
                what = "an input or constant" if id in given else "defined by an earlier op"
                raise ProgramError(f"{call} writes value {id}, which is {what}")
            if id not in live:
                raise ProgramError(f"{call} writes value {id}, which is neither a tensor nor a SymInt")
            defined.add(id)
    for id in graph.outputs:
        if id not in live:
            raise ProgramError(f"output value {id} is neither a tensor nor a SymInt")
        if id not in defined:
            what = "tensor" if isinstance(live[id], TensorValue) else "SymInt"
            raise ProgramError(f"output {what} {id} is never defined")


def _roots(graph: Graph, viewed: Mapping[int, int]) -> dict[int, int]:
    root = {v.id: v.id for v in graph.values if isinstance(v, TensorValue)}
    for call in graph.calls:
        if call.index in viewed:
            root[call.out] = root[viewed[call.index]]
    return root
