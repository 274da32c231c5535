"""Formulas of live dims: their algebra, and that what is shown is right at every level that a graph takes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import INDEX, PROGRAMS, main_method, steps

from hightide.fuse import fuse
from hightide.graph.graph import Graph, OpCall
from hightide.graph.symbols import evaluate
from hightide.graph.values import Dims, TensorValue
from hightide.ops.contract import REGISTRY, Context, Dispatch, Op, Tensor
from hightide.planning.planner import Planner
from hightide.tools.inspect.graph_trace import Unknown, fit, trace
from hightide.tools.levels.formulas import Extreme, Formula, Live, formula_of
from hightide.tools.opened_file import GraphSource, Part, open_file

MODELS = Path(__file__).parents[1] / "models"
S, T = Formula.of("S"), Formula.of("T")


@pytest.mark.parametrize(
    ("compute", "text"),
    [
        (lambda s, t: s + 1, "S + 1"),
        (lambda s, t: 2 * s + t - 3, "2*S + T - 3"),
        (lambda s, t: s - t, "S - T"),
        (lambda s, t: -(-s // 16), "ceil(S/16)"),
        (lambda s, t: (s + 1) // 2, "ceil(S/2)"),
        (lambda s, t: ((s + 1) // 2 + 1) // 2, "ceil(S/4)"),
        (lambda s, t: s // 2, "S//2"),
        (lambda s, t: (s + 2) // 4, "(S + 2)//4"),
        (lambda s, t: math.prod((s, t, 16)) // (t * 16), "S"),
        (lambda s, t: (s * t * 3) // 3, "S*T"),
        (lambda s, t: (2 * s + 1) // 2, "S"),
        (lambda s, t: s * (t + 1), "S*T + S"),
        (lambda s, t: sum([s, t, s]), "2*S + T"),
        (lambda s, t: s // t, "S//T"),
        (lambda s, t: 3 * s // 2 * t, "((3*S)//2)*T"),
        (lambda s, t: s - s, "0"),
        (lambda s, t: 5 - s, "-S + 5"),
    ],
)
def test_numbers_remember(compute: Any, text: str) -> None:
    for s, t in ((17, 5), (1, 1), (32, 3)):
        made = compute(Live(s, S), Live(t, T))
        assert str(formula_of(made)) == text
        assert formula_of(made).value({"S": s, "T": t}) == int(made) == compute(s, t)


numbers = st.integers(1, 40)
steps_of = st.lists(
    st.tuples(st.sampled_from(["+", "-", "*", "//", "r-", "neg"]), st.one_of(st.just("S"), st.just("T"), numbers)),
    max_size=7,
)


def apply(operations: list[tuple[str, Any]], names: dict[str, int]) -> int:
    value: Any = names["S"]
    for operator, operand in operations:
        other = names[operand] if isinstance(operand, str) else operand
        match operator:
            case "+":
                value = value + other
            case "-":
                value = value - other
            case "r-":
                value = other - value
            case "*":
                value = value * other
            case "//":
                value = value // other
            case _:
                value = -value
    return int(value) if not isinstance(value, Live) else value


@given(steps_of, numbers, numbers, numbers, numbers)
def test_formulas_are_what_was_computed(
    operations: list[tuple[str, Any]], s: int, t: int, other_s: int, other_t: int
) -> None:
    """Arithmetic has no branches, so that a formula holds at every other level too."""
    formula = formula_of(apply(operations, {"S": Live(s, S), "T": Live(t, T)}))
    for level in ({"S": s, "T": t}, {"S": other_s, "T": other_t}):
        assert formula.value(level) == apply(operations, level), str(formula)
        assert from_data(formula.data(), level) == formula.value(level)


def from_data(data: list[Any], level: dict[str, int]) -> int:
    """As the page's script does it."""

    def atom(a: Any) -> int:
        if isinstance(a, str):
            return level[a]
        left, right = from_data(a[1], level), from_data(a[2], level)
        return left // right if a[0] == "floor" else max(left, right) if a[0] == "max" else min(left, right)

    return sum(c * math.prod(map(atom, atoms)) for c, atoms in data)


def test_clamps() -> None:
    clamped = Formula({(Extreme("max", S - T, Formula.of(0)),): 1})
    assert str(clamped) == "max(S - T, 0)"
    assert [clamped.value({"S": s, "T": 3}) for s in (1, 5)] == [0, 2]
    assert from_data(clamped.data(), {"S": 1, "T": 3}) == 0


@pytest.mark.parametrize("name", [name for name in INDEX if name != "wide"])
def test_formulas_of_programs_hold_at_every_step(name: str) -> None:
    """At levels that were not used to make them: those of the program's schedule."""
    parts = open_file(PROGRAMS / f"{name}.pte", method=main_method(name)).parts
    checked = 0
    for part in (*parts[:3], *parts[-1:]):
        for graph in (part.graph, fuse(part.graph)):
            formulas = trace(part, graph)
            assert not formulas.unknown
            planner = Planner(graph, dispatch=False)
            for method, inputs, _ in steps(name):
                if method != main_method(name):
                    continue
                level = {}
                for symbol in part.source.symbols:
                    array = inputs[symbol.places[0].input] if symbol.places else inputs[symbol.element[0]]  # type: ignore[index]
                    level[symbol.name] = (
                        array.shape[symbol.places[0].axis] if symbol.places else int(array.reshape(-1)[0])
                    )
                dims, env = part.level_at(level)
                plan = planner.plan(dims, env)
                for id, live in plan.dims.items():
                    assert tuple(f.value(level) for f in formulas.dims[id] if isinstance(f, Formula)) == live
                for id, expr in plan.symints.items():
                    formula = formulas.symints[id]
                    assert isinstance(formula, Formula) and formula.value(level) == evaluate(expr, env)
                checked += 1
    assert checked


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama_gqa.pte", {"[1, S, 64]", "[S, 8]"}),
        ("symints.pte", {"[2*S + T, 12]", "[S//2, 10]", "[2, S + T, 6]"}),
        ("two_dims.pte", {"[3*S, T, T]", "[S*T, 16]"}),
        ("slices.pte", {"[max(S - T, 0), 12]", "[min(3, U)]", "[S - 2, 12]"}),
        ("value_shape.pte", {"[2*in1, 6]"}),
        ("resnet18.pte", {"[S, 13, ceil(T/32), ceil(U/32)]"}),
    ],
)
def test_what_is_shown(name: str, expected: set[str]) -> None:
    shown: set[str] = set()
    for part in open_file(PROGRAMS / name).parts:
        shown |= {f"[{', '.join(map(str, dims))}]" for dims in trace(part).dims.values()}
    assert expected <= shown


def test_symints_of_a_model() -> None:
    (part,) = open_file(MODELS / "llama.gguf").parts
    assert {str(f) for f in trace(part).symints.values()} == {"S", "pos", "pos + S", "keep", "S - keep"}


class Odd(Op):
    """Dims that no formula describes: S rounded up to a power of two, made in a way that leaves no trace."""

    x: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        return [(1 << (self.x.dims[0] - 1).bit_length(),)]

    def plan(self, ctx: Context, out: Tensor) -> list[Dispatch]:
        return []


def test_a_dim_without_a_formula_is_shown_with_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "test.odd", Odd)
    x, y = TensorValue(0, (64,), "float32", "float32"), TensorValue(1, (64,), "float32", "float32")
    graph = Graph((x, y), (OpCall(0, "test.odd", {"x": 0}, 1),), (0,), (1,))
    part = Part("odd", graph, (True,), ("x",), GraphSource(graph, (True,), ("x",)))
    formulas = trace(part)
    (dim,) = formulas.dims[1]
    assert isinstance(dim, Unknown) and str(dim) == "?"
    assert all(value == 1 << (dict(level)["S"] - 1).bit_length() for level, value in dim.samples)
    assert str(formulas.dims[0][0]) == "S"


def test_a_fit_is_exact_or_nothing() -> None:
    levels = [{"S": s, "T": t} for s, t in ((1, 1), (2, 5), (3, 2), (7, 3), (11, 4), (5, 9), (8, 8), (6, 1))]
    assert str(fit([(level, 3 * level["S"] - 2) for level in levels])) == "3*S - 2"
    assert str(fit([(level, level["S"] * level["T"]) for level in levels])) == "S*T"
    assert fit([(level, min(level["S"], 6)) for level in levels]) is None
    assert str(fit([(level, 4) for level in levels])) == "4"
    assert fit([({"S": 1, "T": 1}, 1), ({"S": 2, "T": 2}, 2)]) is None  # too few to tell S from T


def test_numbers_that_remember_are_plain_for_numpy() -> None:
    assert np.zeros((Live(3, S), 2)).shape == (3, 2)
