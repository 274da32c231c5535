"""Which tensors of a graph are float16: all of them made float32, or the KV caches made float16.

A tensor's `dtype` is what it is held as; the bytes of a constant stay as they are in the file (`stored`).
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace

from hightide.graph.graph import Graph, input_ids, output_ids
from hightide.graph.values import TensorValue, Value
from hightide.ops import REGISTRY
from hightide.ops.binding import graph_aliases
from hightide.ops.contract import CACHING
from hightide.traits import Traits


def widened(graph: Graph) -> Graph:
    """The graph with every float16 tensor held as float32, for an adapter that has no halves."""
    return _held_as(
        graph, {v.id for v in graph.values if isinstance(v, TensorValue) and v.dtype == "float16"}, "float32"
    )


def held(graph: Graph, traits: Traits, f16: bool | None = None, half_caches: bool = False) -> Graph:
    """The graph as an adapter of these traits holds it: float16 is float32 where there are no halves, or none wanted.

    `f16` None is yes unless HIGHTIDE_F16 is 0; `half_caches` makes float32 KV caches halves.
    """
    wanted = os.environ.get("HIGHTIDE_F16") != "0" if f16 is None else f16
    if not (wanted and traits.f16):
        return widened(graph)
    return with_half_caches(graph) if half_caches else graph


def with_half_caches(graph: Graph) -> Graph:
    """The graph with its float32 KV caches as float16: state that only `CACHING` ops touch."""
    aliases = graph_aliases(graph)
    family: dict[int, list[int]] = {}  # the tensors that share one memory
    for id, root in aliases.root.items():
        family.setdefault(root, []).append(id)
    others = {*graph.inputs, *graph.outputs}
    for call in graph.calls:
        op = REGISTRY[call.name]
        others.update(call.args[name] for name in op.no_halves if name in call.args)
        if op.family not in CACHING and call.index not in aliases.views:
            others.update(input_ids(graph, call), output_ids(graph, call))
    caches = {
        id
        for root in aliases.state
        if not others.intersection(family[root])
        for id in family[root]
        if _dtype(graph.values[id]) == "float32"
    }
    return _held_as(graph, caches, "float16")


def _held_as(graph: Graph, ids: Collection[int], dtype: str) -> Graph:
    if not ids:
        return graph
    values = list(graph.values)
    for id in ids:
        value = values[id]
        assert isinstance(value, TensorValue)
        stored = value.stored_dtype
        values[id] = replace(value, dtype=dtype, stored="" if stored == dtype else stored)
    return replace(graph, values=tuple(values))


def _dtype(value: Value) -> str:
    return value.dtype if isinstance(value, TensorValue) else ""
