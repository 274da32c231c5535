"""Plans are pure: dims forward, checks, missing ops, folded grids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hightide import InputError, UnsupportedError
from hightide.graph.graph import Graph, OpCall
from hightide.graph.values import Dims, TensorValue
from hightide.ops import REGISTRY
from hightide.ops.builder import GraphBuilder
from hightide.ops.contract import Context, Dispatch, Op, Tensor, has_kernel
from hightide.planning.levels import InputSpec, Levels, MaxElements
from hightide.planning.planner import Planner, missing_ops, resolve_ops
from hightide.wgsl.grid import GROUPS_PER_DIM, fold


@given(groups=st.one_of(st.integers(0, 200_000), st.integers(0, GROUPS_PER_DIM**2)))
def test_folded_grids_have_all_groups_and_few_more(groups: int) -> None:
    x, y = fold(groups)
    assert x <= GROUPS_PER_DIM and y <= GROUPS_PER_DIM
    assert groups <= x * y < groups + y
    assert y == 1 or groups > GROUPS_PER_DIM


def test_more_groups_than_two_dimensions_have_are_refused() -> None:
    assert fold(GROUPS_PER_DIM**2) == (GROUPS_PER_DIM, GROUPS_PER_DIM)
    with pytest.raises(InputError, match="workgroups are more than a WebGPU dispatch can have"):
        fold(GROUPS_PER_DIM**2 + 1)


def unary(*names: str) -> Graph:
    values = tuple(TensorValue(n, (4,), "float32", "float32") for n in range(len(names) + 1))
    calls = tuple(OpCall(n, name, {"x": n}, n + 1) for n, name in enumerate(names))
    return Graph(values, calls, (0,), (len(names),))


def test_all_missing_ops_are_listed_at_once_with_their_places() -> None:
    graph = unary("a.b", "aten.neg.default", "c.d", "a.b", "aten.nonzero.default")
    assert not has_kernel(REGISTRY["aten.nonzero.default"])
    with pytest.raises(UnsupportedError) as error:
        resolve_ops(graph)
    assert str(error.value) == (
        "3 ops of this program are not supported: a.b (op 0, 3); c.d (op 2); "
        "aten.nonzero.default, which has a reference but no GPU kernel (op 4)"
    )
    assert missing_ops(graph, dispatch=False) == ["a.b (op 0, 3)", "c.d (op 2)"]


def test_dims_over_the_max_are_refused_with_the_op_and_both_dims() -> None:
    b = GraphBuilder()
    x, y = b.input((4,)), b.input((4,))
    graph = b.graph(b.call("aten.cat.default", [x, y], 0, dims=[(6,)]))
    planner = Planner(graph)
    assert planner.plan([(3,), (3,)], {}).dims[graph.outputs[0]] == (6,)
    with pytest.raises(
        InputError, match=r"op 0 \(aten.cat.default\): the output would be \[7\], over its max dims \[6\]"
    ):
        planner.plan([(3,), (4,)], {})


class Doubles(Op):
    """Says two outputs where the program has one."""

    x: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        return [self.x.dims, self.x.dims]

    def plan(self, ctx: Context, out: Tensor) -> list[Dispatch]:
        return []


def test_another_number_of_outputs_than_the_programs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "test.doubles", Doubles)
    with pytest.raises(UnsupportedError, match="the program expects 1 output, the op gives 2"):
        Planner(unary("test.doubles")).plan([(4,)], {})


def test_planning_at_the_max_takes_a_program_whose_shapes_come_from_values() -> None:
    """The values are not known then: the rows of x / n, and -1 columns, for n = 0."""
    b = GraphBuilder()
    x, n = b.input((12, 4)), b.input((1,), "int32")
    parts = b.call("et_vk.select_as_symint.default", n, 0, 0)
    rows = b.call("floordiv", b.call("sym_size.int", x, 0), parts)
    y = b.call("aten.view_copy.default", x, [rows, -1], dims=[(12, 48)])
    planner = Planner(b.graph(y))
    assert planner.plan_max(MaxElements()).dims[y.id] == (12, 48)
    assert planner.plan([(12, 4), (1,)], MaxElements(3)).dims[y.id] == (4, 12)
    assert planner.plan([(6, 4), (1,)], MaxElements(2)).dims[y.id] == (3, 8)


def test_values_that_a_shape_needs_are_levels_of_their_own() -> None:
    b = GraphBuilder()
    table, n = b.constant(np.zeros((64, 4), np.float32)), b.input((1,), "int32")
    start = b.call("et_vk.select_as_symint.default", n, 0, 0)
    rows = b.call("aten.slice_copy.Tensor", table, 0, 0, start, 1, dims=[(64, 4)])
    levels = Levels(Planner(b.graph(rows)), capacity=2)
    made = []
    for value in (5, 5, 7, 5, 9, 7, 5):  # two of them are kept
        assert levels.find(((1,),), MaxElements(value), lambda plan: plan).dims[rows.id] == (value, 4)
        made.append(levels.planned)
    assert made == [1, 1, 2, 2, 3, 4, 5] and len(levels) == 2


@pytest.mark.parametrize(
    ("dtype", "given", "expected"),
    [
        ("int64", [1, 2], "int64"),
        ("int32", [1, 2], "int32"),
        ("uint8", [0, 255], "uint8"),
        ("float32", [1, 2.5], "float32"),
        ("float32", [1, 2], "float32"),
        ("bool", [True, False], "bool"),
        ("int64", np.array([1, 2], np.int32), "int64"),
        ("float32", np.array([1, 2], np.float16), "float32"),
    ],
)
def test_inputs_are_widened_but_never_narrowed(dtype: str, given: object, expected: str) -> None:
    assert InputSpec("x", (2,), dtype, False).array(given).dtype == expected


@pytest.mark.parametrize(
    ("dtype", "given", "message"),
    [
        ("uint8", [0, 256], "input x has 256, which does not fit uint8"),
        ("int8", [-129, 0], "input x has -129, which does not fit int8"),
        ("int32", [2**31, 0], "input x has 2147483648, which does not fit int32"),
        ("int32", [1.5, 0], "input x is float64; the program takes int32"),
        ("int32", np.array([1, 2], np.int64), "input x is int64; the program takes int32"),
        ("float32", np.array([1, 2], np.float64), "input x is float64; the program takes float32"),
        ("float32", [{}, 1], "input x is a list, not an array of numbers"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(dtype: str, given: object, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        InputSpec("x", (2,), dtype, False).array(given)
