"""The picture of a graph: nodes, edges, and where they are, laid out in layers by igraph.

Layers of a model that repeat are groups that can be opened: the picture is laid out with every group as one
node, and each group by itself, with ports where values come in and go out. The page puts the two together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hightide.errors import HightideError
from hightide.graph.graph import Graph, input_ids, output_ids
from hightide.graph.values import TensorValue
from hightide.tools.inspect.repeats import Repetition

Point = tuple[float, int]  # (place in the layer, layer)


@dataclass(frozen=True)
class Edge:
    source: str
    target: str
    value: int  # the tensor that goes along it
    via: tuple[Point, ...] = ()  # where it passes the layers between


@dataclass(frozen=True)
class Placed:
    """Nodes in layers, and the edges between them."""

    at: dict[str, Point]
    edges: tuple[Edge, ...]

    def data(self) -> dict[str, Any]:
        edges = [[e.source, e.target, e.value, [[round(x, 2), y] for x, y in e.via]] for e in self.edges]
        return {"at": {n: [round(x, 2), y] for n, (x, y) in self.at.items()}, "edges": edges}


@dataclass(frozen=True)
class Picture:
    """`top` has nodes and groups; `groups` what is in each, with ports named `in:VALUE` and `out:VALUE`."""

    top: Placed
    groups: dict[str, Placed]
    labels: dict[str, str] = field(default_factory=dict)  # of groups


def draw(graph: Graph, names: Mapping[int, str], repeat: Repetition | None) -> Picture:
    """The picture of the tensors' way through a graph; SymInts and constants are not in it."""
    nodes = dict.fromkeys([f"i{id}" for id in names], -1)
    nodes |= {f"n{call.index}": call.index for call in graph.calls if _makes_tensors(graph, call.out)}
    nodes |= {f"o{n}": -1 for n, id in enumerate(graph.outputs) if isinstance(graph.values[id], TensorValue)}
    return draw_flows(nodes, _flows(graph), repeat)


def draw_flows(
    nodes: Mapping[str, int], flows: Iterable[tuple[str, str, int]], repeat: Repetition | None = None
) -> Picture:
    """The picture of nodes, each with its place in the list that repeats (or -1), and what flows between them."""
    group_of = {node: _group(repeat, index) for node, index in nodes.items()}
    members: dict[str, list[str]] = {}
    for node, group in group_of.items():
        if group is not None:
            members.setdefault(group, []).append(node)

    outer = [node for node, group in group_of.items() if group is None]
    order = {node: n for n, node in enumerate(nodes)}
    items = sorted([*outer, *members], key=lambda item: order[members[item][0]] if item in members else order[item])
    crossing: dict[Edge, None] = {}
    inner: dict[str, dict[Edge, None]] = {group: {} for group in members}
    for source, target, value in flows:
        a, b = group_of[source], group_of[target]
        if a is not None and a == b:
            inner[a][Edge(source, target, value)] = None
            continue
        crossing[Edge(a or source, b or target, value)] = None
        if a is not None:
            inner[a][Edge(source, f"out:{value}", value)] = None
        if b is not None:
            inner[b][Edge(f"in:{value}", target, value)] = None
    groups = {group: _placed([*_ports(inner[group]), *members[group]], list(inner[group])) for group in members}
    labels = {group: f"layer {n + 1}" for n, group in enumerate(members)}
    return Picture(_placed(items, list(crossing)), groups, labels)


def _flows(graph: Graph) -> Iterable[tuple[str, str, int]]:
    """(source, target, value) for every tensor that one node gives another."""
    made = {id: f"i{id}" for id in graph.inputs}
    for call in graph.calls:
        if not _makes_tensors(graph, call.out):
            continue
        for id in dict.fromkeys(input_ids(graph, call)):
            if id in made and isinstance(graph.values[id], TensorValue):
                yield made[id], f"n{call.index}", id
        made |= dict.fromkeys(output_ids(graph, call), f"n{call.index}")
    for n, id in enumerate(graph.outputs):
        if id in made and isinstance(graph.values[id], TensorValue):
            yield made[id], f"o{n}", id


def _makes_tensors(graph: Graph, last: int) -> bool:
    value = graph.values[last]
    first = graph.values[value.items[0]] if hasattr(value, "items") and value.items else value
    return isinstance(first, TensorValue)


def _group(repeat: Repetition | None, index: int) -> str | None:
    layer = None if repeat is None or index < 0 else repeat.layer(index)
    return None if layer is None else f"g{layer}"


def _ports(edges: Iterable[Edge]) -> list[str]:
    ends = dict.fromkeys(end for edge in edges for end in (edge.source, edge.target) if ":" in end)
    return list(ends)


# ---- layout


def _placed(nodes: Sequence[str], edges: Sequence[Edge]) -> Placed:
    """Layers by the longest way from the start, places within them by igraph."""
    layers = _layers(nodes, edges)
    vertices = list(nodes)
    lines: list[tuple[int, int]] = []
    number = {node: n for n, node in enumerate(vertices)}
    depth = [layers[node] for node in vertices]
    passed: list[list[int]] = []
    for edge in edges:
        last, between = number[edge.source], []
        for layer in range(layers[edge.source] + 1, layers[edge.target]):  # a place in every layer that it passes
            vertices.append("")
            depth.append(layer)
            lines.append((last, len(vertices) - 1))
            last = len(vertices) - 1
            between.append(last)
        lines.append((last, number[edge.target]))
        passed.append(between)
    x = _columns(len(vertices), lines, depth)
    at = {node: (x[number[node]], layers[node]) for node in nodes}
    routed = [
        Edge(e.source, e.target, e.value, tuple((x[v], depth[v]) for v in between))
        for e, between in zip(edges, passed, strict=True)
    ]
    return Placed(at, tuple(routed))


def _layers(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    before: dict[str, list[str]] = {node: [] for node in nodes}
    after: dict[str, list[str]] = {node: [] for node in nodes}
    for edge in edges:
        before[edge.target].append(edge.source)
        after[edge.source].append(edge.target)
    layer: dict[str, int] = {}
    waiting = {node: len(before[node]) for node in nodes}
    ready = [node for node in nodes if not waiting[node]]
    while ready:
        node = ready.pop(0)
        layer[node] = max((layer[source] + 1 for source in before[node]), default=0)
        for target in after[node]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    for node in nodes:  # a source is drawn right above what first reads it
        if not before[node] and after[node]:
            layer[node] = min(layer[target] for target in after[node]) - 1
    last = max((n + 1 for node, n in layer.items() if not node.startswith("out:")), default=0)
    for node in nodes:  # ports are on the border
        if node.startswith("in:"):
            layer[node] = 0
        elif node.startswith("out:"):
            layer[node] = last
    return layer


def _columns(count: int, lines: Sequence[tuple[int, int]], depth: Sequence[int]) -> list[float]:
    try:
        from igraph import Graph as Drawn
    except ImportError:
        raise HightideError("the picture needs igraph: pip install 'hightide[html]'") from None
    if not count:
        return []
    drawn = Drawn(n=count, edges=list(lines), directed=True)
    placed = drawn.layout_sugiyama(layers=list(depth), hgap=1, vgap=1, maxiter=200)
    return [float(placed[n][0]) for n in range(count)]
