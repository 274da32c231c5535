"""Graphs, plans, methods and explanations as people see them: in a console and in a notebook."""

from __future__ import annotations

import numpy as np
import pytest
from schedules import PROGRAMS

from hightide.notebook import MOST_ROWS, table
from hightide.planning.explain import Explanation, Explanations
from hightide.pte.program import Method, load

TOKENS, POSITION = np.zeros((1, 5), np.int64), np.array([3])


@pytest.fixture(scope="module")
def forward() -> Method:
    return load(PROGRAMS / "llama_gqa.pte", device="cpu").method("forward")


def test_a_graph_is_a_line_and_a_list(forward: Method) -> None:
    graph = forward.sessions[0].graph
    assert repr(graph).startswith("<Graph: 60 op calls, int32[1, 47], int32[1] -> float32[1, 160], ")
    assert "\n" not in repr(graph) and len(str(graph).splitlines()) == 61
    html = graph._repr_html_()
    assert html.count("<tr>") == 61 and "et_vk.linear_q4gsw.default" in html


def test_a_plan_is_a_line_and_a_list(forward: Method) -> None:
    from hightide.planning.planner import Planner

    graph = forward.sessions[0].graph
    plan = Planner(graph).plan([(1, 5), (1,)], {})
    assert repr(plan).startswith(f"<Plan: {len(plan.steps)} dispatches of ")
    assert len(str(plan).splitlines()) == len(plan.steps) + 1
    assert plan._repr_html_().count("<tr>") == len(plan.steps) + 1


def test_explanations(forward: Method) -> None:
    explanation = forward.explain(TOKENS, POSITION)
    assert isinstance(explanation, Explanation)
    assert explanation.summary.startswith("NumPy, inputs [1, 5] [1]: ")
    assert "FLOPs" in str(explanation).splitlines()[1] and repr(explanation) == str(explanation)
    assert explanation._repr_html_().count("<tr>") == 61


@pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")
def test_explanations_of_several_parts() -> None:
    partial = load(PROGRAMS / "partial.pte", device="cpu").method("forward")
    explanations = partial.explain(np.zeros((7, 12), np.float32))
    assert isinstance(explanations, Explanations) and len(explanations) == 2
    assert str(explanations).count("NumPy, inputs [7, 1") == 2
    assert explanations._repr_html_().count("<table>") == 2


def test_a_method_shows_what_it_takes_and_gives(forward: Method) -> None:
    html = forward._repr_html_()
    assert "tokens" in html and "int64[1, ≤47]" in html and "gives" in html


def test_what_is_in_a_table_is_text() -> None:
    assert "<script>" not in table("<script>", ["<script>"], [["<script>"]])
    assert "and 5 more rows" in table("", ["n"], ([str(n)] for n in range(MOST_ROWS + 5)))
