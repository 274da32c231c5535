"""Which tensors are one memory, and that calls come in an order that can run."""

from __future__ import annotations

import pytest

from hightide import ProgramError
from hightide.graph.aliases import check_order, find_aliases
from hightide.graph.blob import Blob
from hightide.graph.graph import Graph, OpCall
from hightide.graph.values import ListValue, TensorValue, Value
from hightide.ops.builder import GraphBuilder
from hightide.planning.planner import Planner


def graph_of(
    *calls: tuple[int, ...], inputs: tuple[int, ...] = (0,), outputs: tuple[int, ...] = (), constants: str = ""
) -> Graph:
    """Tensors 0, 1, 2, …; each call is (arguments x, y, …, output); the digits in `constants` have data."""
    count = 1 + max(id for ids in (*calls, inputs, outputs) for id in ids)
    data = Blob(bytes(16), 0, 16)
    values: list[Value] = [
        TensorValue(id, (4,), "float32", "float32", data if str(id) in constants else None) for id in range(count)
    ]
    ops = (OpCall(n, "test.op", dict(zip("xyz", ids, strict=False)), out) for n, (*ids, out) in enumerate(calls))
    return Graph(tuple(values), tuple(ops), inputs, outputs)


def test_a_view_of_a_view_is_its_source() -> None:
    graph = graph_of((0, 1), (1, 2), (2, 3), (3, 4), outputs=(4, 2))
    aliases = find_aliases(graph, viewed={1: 1, 2: 2}, written=set())
    assert dict(aliases.root) == {0: 0, 1: 1, 2: 1, 3: 1, 4: 4}
    assert aliases.views == {1: 1, 2: 2} and not aliases.state


def test_views_of_memory_that_is_written_are_copies_but_not_those_on_the_way_to_the_write() -> None:
    """5 = view(0) stays a copy; 1 = view(0), 2 = view(1) is what call 2 writes, so the memory of 0."""
    graph = graph_of((0, 1), (1, 2), (9, 2, 3), (0, 5), (9, 6), inputs=(9,), constants="0")
    aliases = find_aliases(graph, viewed={0: 0, 1: 1, 3: 0, 4: 9}, written={2})
    assert aliases.views == {0: 0, 1: 1, 4: 9} and aliases.state == {0}
    assert [aliases.root[n] for n in (1, 2, 5, 6)] == [0, 0, 5, 9]


def test_state_is_the_constants_that_are_written() -> None:
    graph = graph_of((0, 1, 2), (0, 3, 4), inputs=(0, 3), constants="1")
    assert find_aliases(graph, {}, written={1, 3}).state == {1}


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (graph_of((1, 2), (0, 1)), r"op 0 \(test.op\) reads tensor 1 before anything defines it"),
        (graph_of((0, 1), (0, 1)), r"op 1 \(test.op\) writes value 1, which is defined by an earlier op"),
        (graph_of((1, 0)  , (0, 2), constants="1"), r"op 0 \(test.op\) writes value 0, which is an input or constant"),
        (graph_of((0, 1), constants="1"), r"op 0 \(test.op\) writes value 1, which is an input or constant"),
        (graph_of((0, 1), outputs=(2,)), "output tensor 2 is never defined"),
    ],
)  # fmt: skip
def test_an_order_that_cannot_run_is_refused(graph: Graph, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        check_order(graph)


def test_lists_are_opened_in_the_order_check() -> None:
    values: list[Value] = [TensorValue(n, (4,), "float32", "float32") for n in range(3)]
    values.append(ListValue(3, (0, 2)))
    with pytest.raises(ProgramError, match="reads tensor 2 before"):
        check_order(Graph(tuple(values), (OpCall(0, "aten.cat.default", {"tensors": 3}, 1),), (0,), (1,)))


def test_a_planner_counts_views_of_inputs_as_inputs() -> None:
    b = GraphBuilder()
    x, y = b.input((4, 6), "int64"), b.input((3,))
    view = b.call("aten.view_copy.default", x, [24], dtype="int64")
    planner = Planner(b.graph(view, b.call("aten.neg.default", y)))
    assert {id: planner.input_positions[id] for id in (x.id, view.id, y.id)} == {x.id: 0, view.id: 0, y.id: 1}
