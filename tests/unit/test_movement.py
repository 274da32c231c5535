"""Ops that move elements: what they refuse, and plans that stay the same while a position moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hightide.errors import HightideError, InputError, UnsupportedError
from hightide.graph.graph import Graph
from hightide.ops.builder import GraphBuilder
from hightide.planning.levels import InputElements, MaxElements, graph_inputs
from hightide.planning.planner import Plan, Planner
from hightide.runtime.cpu_session import CpuSession


def graph_of(name: str, tensors: list[tuple[tuple[int, ...], str]], *args: Any, dtype: str = "float32") -> Graph:
    b = GraphBuilder()
    out = b.call(name, *[b.input(*tensor) for tensor in tensors], *args, dtype=dtype)
    return b.graph(*(out if isinstance(out, tuple) else (out,)))


def plan_at(graph: Graph, *arrays: np.ndarray) -> Plan:
    elements = InputElements(list(arrays), graph_inputs(graph, None, None))
    return Planner(graph).plan([a.shape for a in arrays], elements)


X = ((4, 6), "float32")


@pytest.mark.parametrize(
    ("name", "tensors", "args", "message"),
    [
        ("aten.slice_scatter.default", [X, ((2, 6), "float32")], (0, 1, 4), r"\[2, 6\] in place of a part of \[3, 6\]"),
        ("aten.slice_scatter.default", [X, X], (0, 0, 4, 0), "a slice with step 0"),
        ("aten.select_scatter.default", [X, ((6,), "float32")], (0, 4), "index 4 is outside dim 0 of 4"),
        ("aten.select_scatter.default", [X, ((4,), "float32")], (0, 1), r"\[4\] in place of a part of \[6\]"),
        ("aten.roll.default", [X], ([1, 2], [0]), "2 shifts along 1 dims"),
        ("aten.roll.default", [X], ([1], [2]), "dim 2 is outside a tensor of rank 2"),
        ("aten.tril.default", [((4,), "float32")], (), r"\[4\] is no matrix"),
        ("aten.split_copy.Tensor", [X], (0,), "pieces of 0 elements"),
        ("aten.split_copy.Tensor", [((2**40,), "float32")], (1,), "1099511627776 pieces of one tensor"),
        ("aten.unbind_copy.int", [((2**40,), "float32")], (), "1099511627776 pieces of one tensor"),
        ("aten.unbind_copy.int", [((), "float32")], (), "dim 0 of a tensor without dims"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, tensors: Any, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        graph_of(name, tensors, *args)


def test_tensors_of_other_dims_are_not_stacked() -> None:
    b = GraphBuilder()
    with pytest.raises(InputError, match=r"\[1, 4\] and \[1, 5\] cannot be joined"):
        b.call("aten.stack.default", [b.input((4,)), b.input((5,))])


@pytest.mark.parametrize("source", ["uint8", "float32"])
def test_types_are_not_converted_on_the_way(source: str) -> None:
    graph = graph_of("aten.slice_scatter.default", [((4,), "bool"), ((2,), source)], 0, 1, 3, dtype="bool")
    with pytest.raises(UnsupportedError, match="has no kernel"):
        Planner(graph).plan_max(MaxElements())


def test_a_split_has_as_many_pieces_as_the_program_expects() -> None:
    graph = graph_of("aten.split_copy.Tensor", [((9,), "float32")], 4)
    assert len(plan_at(graph, np.zeros(9, np.float32)).steps) == 3
    with pytest.raises(HightideError, match="the program expects 3 outputs, the op gives 2"):
        plan_at(graph, np.zeros(8, np.float32))


def test_a_position_that_moves_keeps_the_plan() -> None:
    """Both where rows are put and where a diagonal lies are read by the kernels."""
    b = GraphBuilder()
    cache, rows, position = b.input((16, 6)), b.input((4, 6)), b.input((1,), "int32")
    at = b.call("et_vk.select_as_symint.default", position, 0, 0)
    end = b.call("add", at, b.call("sym_size.int", rows, 0))
    put = b.call("aten.slice_scatter.default", cache, rows, 0, at, end)
    graph = b.graph(put, b.call("aten.triu.default", put, at))
    given = [np.zeros((16, 6), np.float32), np.ones((3, 6), np.float32)]
    plans = [plan_at(graph, *given, np.array([p], np.int32)) for p in (0, 7)]
    assert plans[0].pins == plans[1].pins and not plans[0].pins
    assert [s.dispatch.params for s in plans[0].steps] == [s.dispatch.params for s in plans[1].steps]
    with pytest.raises(InputError, match="rows 14 to \\+3 of a dim of 16 are asked for"):
        CpuSession(graph).run([*given, np.array([14], np.int32)])


def test_the_number_of_elements_is_a_symint() -> None:
    b = GraphBuilder()
    x = b.input((4, 6))
    graph = b.graph(b.call("aten.full.default", [b.call("aten.sym_numel.default", x)], 2.5))
    for dims in ((4, 6), (3, 5), (0, 6)):
        (got,) = CpuSession(graph).run([np.zeros(dims, np.float32)])
        assert got.shape == (dims[0] * dims[1],) and (got == 2.5).all()
