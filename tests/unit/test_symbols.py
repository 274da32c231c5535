"""Live integers: what is kept symbolic evaluates to what Python computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hightide import InputError
from hightide.graph.graph import Graph, OpCall
from hightide.graph.symbols import Element, Sym, SymExpr, add, ceil_div, element, elements, evaluate, floordiv, mul
from hightide.graph.values import LiteralValue, SymIntValue, TensorValue, Value
from hightide.ops.builder import GraphBuilder
from hightide.planning.levels import MaxElements, live_symint
from hightide.planning.planner import Planner
from hightide.runtime.cpu_session import CpuSession

NAMES = (Element(0, 0), Element(1, 2), Element(1, 3))
values = st.integers(-50, 50)
leaves = st.one_of(values, st.sampled_from(NAMES))
trees = st.recursive(
    leaves, lambda inner: st.tuples(st.sampled_from(["add", "sub", "mul", "floordiv"]), inner, inner), max_leaves=8
)


def symbolic(tree: Any) -> SymExpr:
    if isinstance(tree, tuple) and not isinstance(tree, Element):
        kind, left, right = tree[0], symbolic(tree[1]), symbolic(tree[2])
        if kind == "add":
            return add(left, right)
        if kind == "sub":
            return add(left, mul(right, -1))
        return mul(left, right) if kind == "mul" else floordiv(left, right)
    return element(tree.position, tree.flat) if isinstance(tree, Element) else tree


def plain(tree: Any, env: dict[Element, int]) -> int:
    if isinstance(tree, tuple) and not isinstance(tree, Element):
        kind, left, right = tree[0], plain(tree[1], env), plain(tree[2], env)
        return {
            "add": lambda: left + right,
            "sub": lambda: left - right,
            "mul": lambda: left * right,
            "floordiv": lambda: left // right,
        }[kind]()
    return env[tree] if isinstance(tree, Element) else tree


@given(tree=trees, numbers=st.tuples(values, values, values))
def test_formulas_evaluate_to_what_python_computes(tree: Any, numbers: tuple[int, int, int]) -> None:
    """Floors of negatives included; a division by zero is an InputError wherever it happens."""
    env = dict(zip(NAMES, numbers, strict=True))
    try:
        expected = plain(tree, env)
    except ZeroDivisionError:
        # A product with 0 drops the formula that would have divided.
        try:
            evaluate(symbolic(tree), env)
        except InputError as error:
            assert str(error).endswith("by 0")
        return
    try:
        expr = symbolic(tree)
    except InputError:
        raise AssertionError("a formula that can be computed was refused") from None
    assert evaluate(expr, env) == expected
    assert elements(expr) <= set(NAMES)


def test_what_cancels_is_a_plain_number() -> None:
    """(pos + S) - pos is S: a slice of the tables has a length, whatever the position."""
    position = element(1, 0)
    end = position + 7
    assert end - position == 7 and isinstance(end - position, int)
    assert 7 - (7 - position) == position
    assert position * 0 == 0 and position - position == 0
    assert mul(position, 3) - position - position - position == 0
    assert floordiv(position, 1) is position


@pytest.mark.parametrize(("left", "right"), [(-7, 2), (7, -2), (-7, -2), (-8, 4), (0, -3), (-1, 64)])
def test_floor_division_of_negatives_is_pythons(left: int, right: int) -> None:
    env = {Element(0, 0): left}
    assert evaluate(floordiv(element(0, 0), right), env) == left // right == floordiv(left, right)
    assert evaluate(floordiv(left, element(0, 0)), {Element(0, 0): right}) == left // right


@given(value=st.integers(0, 10**6), step=st.integers(1, 300))
def test_ceil_div_rounds_up(value: int, step: int) -> None:
    assert evaluate(ceil_div(element(0, 0), step), {Element(0, 0): value}) == -(-value // step)


def test_equal_formulas_are_equal_and_hash_alike() -> None:
    """Grids are looked up by formula at every step."""
    a, b = element(0, 0) * 2 + 3, 3 + 2 * element(0, 0)
    assert isinstance(a, Sym) and a == b and hash(a) == hash(b) and len({a, b}) == 1
    assert str(element(0, 0) * 2 - element(1, 5) - 3) == "2*in0[0] - 1*in1[5] - 3"
    assert str(floordiv(element(0, 0) + 63, 64)) == "((in0[0] + 63) // 64)"


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_a_symint_must_fit_32_bits(value: int) -> None:
    expr = element(0, 0) * 2
    with pytest.raises(InputError, match=f"would be {value * 2}, which does not fit 32 bits"):
        live_symint(expr, {Element(0, 0): value})
    assert live_symint(expr, {Element(0, 0): 2**30 - 1}) == 2**31 - 2


# ---- the ops on SymInts


def outputs_of(session: CpuSession, *inputs: np.ndarray) -> list[int]:
    return [int(a) for a in session.run(inputs)]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_select_as_symint_counts_from_the_live_end(dtype: str) -> None:
    b = GraphBuilder()
    x = b.input((3, 5), dtype)
    picks = [(1, 0), (1, -1), (1, 2), (0, -1), (-1, -1), (-2, 1)]
    session = CpuSession(b.graph(*(b.call("et_vk.select_as_symint.default", x, dim, n) for dim, n in picks)))
    for dims in ((3, 5), (2, 3), (2, 4)):
        given = np.arange(np.prod(dims)).reshape(dims).astype(dtype) * 7 - 20
        assert outputs_of(session, given) == [
            given[0, 0],
            given[0, -1],
            given[0, 2],
            given[-1, 0],
            given[0, -1],
            given[1, 0],
        ]
    with pytest.raises(InputError, match=r"op 2 .*element 2 is outside dim 1 of an input of \[2, 2\]"):
        session.run([np.zeros((2, 2), dtype)])
    with pytest.raises(InputError, match=r"element 0 is outside dim 1 of an input of \[0, 5\]"):
        session.run([np.zeros((0, 5), dtype)])


def test_a_symint_of_a_computed_tensor_is_refused() -> None:
    b = GraphBuilder()
    x = b.input((4,), "int32")
    y = b.call("aten.add.Tensor", x, x, 1, dtype="int32")
    with pytest.raises(InputError, match="from a graph input only"):
        b.call("et_vk.select_as_symint.default", y, 0, 0)


def test_a_symint_of_a_view_of_an_input_is_that_of_the_input() -> None:
    values: list[Value] = [TensorValue(0, (2, 6), "int64", "int64"), TensorValue(1, (12,), "int64", "int64")]
    values += [SymIntValue(2, 0), LiteralValue(3, (-1,)), LiteralValue(4, 0), LiteralValue(5, -1)]
    calls = (
        OpCall(0, "aten.view_copy.default", {"x": 0, "sizes": 3}, 1),
        OpCall(1, "et_vk.select_as_symint.default", {"x": 1, "dim": 4, "index": 5}, 2),
    )
    session = CpuSession(Graph(tuple(values), calls, (0,), (2,)))
    for dims in ((2, 6), (1, 4), (2, 1)):
        given = np.arange(np.prod(dims)).reshape(dims)
        assert outputs_of(session, given) == [given.reshape(-1)[-1]]


def test_sym_size_of_an_intermediate_is_its_live_dim() -> None:
    """After a cat, a slice and a view, each of another length."""
    b = GraphBuilder()
    x, y = b.input((8, 6)), b.input((5, 6))
    both = b.call("aten.cat.default", [x, y], 0)
    tail = b.call("aten.slice_copy.Tensor", both, 0, 2, None, 1)
    n = b.call("sym_size.int", both, 0)
    halves = b.call("aten.view_copy.default", both, [b.call("mul", n, 2), 3])
    sizes = [n, b.call("sym_size.int", tail, -2), b.call("sym_size.int", halves, 0), b.call("floordiv", n, 2)]
    session = CpuSession(b.graph(*sizes, b.call("sub", n, 20)))
    for s, t in [(8, 5), (1, 1), (3, 4), (8, 1)]:
        got = outputs_of(session, np.zeros((s, 6), np.float32), np.zeros((t, 6), np.float32))
        assert got == [s + t, s + t - 2, 2 * (s + t), (s + t) // 2, s + t - 20]


def test_a_position_is_no_level_and_a_shape_is() -> None:
    b = GraphBuilder()
    table, n = b.constant(np.zeros((64, 4), np.float32)), b.input((1,), "int32")
    start = b.call("et_vk.select_as_symint.default", n, 0, 0)
    window = b.call("aten.slice_copy.Tensor", table, 0, start, b.call("add", start, 5), 1, dims=[(5, 4)])
    plan = Planner(b.graph(window)).plan([(1,)], MaxElements(9))
    assert not plan.pins and plan.dims[window.id] == (5, 4) and plan.bounds
    prefix = b.call("aten.slice_copy.Tensor", table, 0, 0, start, 1, dims=[(64, 4)])
    plan = Planner(b.graph(window, prefix)).plan([(1,)], MaxElements(9))
    assert list(plan.pins.values()) == [9] and plan.dims[prefix.id] == (9, 4)
