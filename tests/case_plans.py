"""The plans of op cases, without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from hightide.ops.case import all_cases, cases_of
from hightide.ops.choices import Choices
from hightide.planning.levels import InputElements, graph_inputs
from hightide.planning.planner import Plan, Planner
from hightide.runtime.case_graph import CaseGraph

CASES = [*all_cases(), *cases_of("blocks")]


def plans(built: CaseGraph, choices: Choices) -> Iterator[Plan]:
    """At every level of the case."""
    planner, specs = Planner(built.graph, choices=choices), graph_inputs(built.graph, None, None)
    for live in built.levels():
        inputs = built.arrays(live)
        yield planner.plan([array.shape for array in inputs], InputElements(inputs, specs))
