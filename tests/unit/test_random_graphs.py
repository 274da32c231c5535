"""Random graphs through every pass: the same numbers on NumPy, and every plan that a GPU session is built from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from random_graphs import RandomGraph, exact_results

from hightide.errors import HightideError
from hightide.fuse import PASSES, fuse
from hightide.fuse.rewriter import Rewriter
from hightide.graph.graph import Graph
from hightide.ops.choices import Choices
from hightide.planning.levels import InputElements, graph_inputs
from hightide.planning.planner import Planner
from hightide.runtime.session_plan import plan_session
from hightide.traits import SOFTWARE, Traits

SUBGROUPS = Traits(f16=True, subgroups=True, subgroup_size=32, invocations=1024, workgroup_bytes=32768)
LIMIT = 1e-7  # in float64, after chains of sums that cancel


def plan_all(graph: Graph, calls: Sequence[list[np.ndarray]], traits: Traits) -> None:
    """Everything that a session on a GPU of these traits plans, at its build and for these calls."""
    planner, specs = Planner(graph, choices=Choices(traits)), graph_inputs(graph, None, None)
    plan_session(planner, specs)
    for given in calls:
        planner.plan([array.shape for array in given], InputElements(given, specs))


def assert_close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    finite = np.isfinite(want)
    assert np.array_equal(finite, np.isfinite(got))
    reach = max(float(np.abs(want[finite]).max(initial=0)), 1e-9)
    assert float(np.abs(got[finite] - want[finite]).max(initial=0)) <= LIMIT * reach


class Example:
    """A random graph with what it gives, to compare fused ones with."""

    def __init__(self, seed: int, every: bool = True) -> None:
        made = RandomGraph(seed)
        self.graph, self.traits = made.graph, (SOFTWARE, SUBGROUPS) if every else (SOFTWARE,)
        calls = made.calls() if every else made.calls()[::2]
        outputs, self.state = exact_results(self.graph, calls)
        self.calls = [given for given, out in zip(calls, outputs, strict=True) if out is not None]
        self.outputs = [out for out in outputs if out is not None]
        assert len(self.calls) >= 2, "too few calls to tell a difference"
        plan_all(self.graph, self.calls, SOFTWARE)

    def check(self, fused: Graph) -> None:
        outputs, state = exact_results(fused, self.calls)
        for got, want in zip(outputs, self.outputs, strict=True):
            assert got is not None, "a call is refused that the graph runs"
            for pair in zip(got, want, strict=True):
                assert_close(*pair)
        for pair in zip(state, self.state, strict=True):
            assert_close(*pair)
        for traits in self.traits:
            plan_all(fused, self.calls, traits)


def check_seed(seed: int, every: bool) -> None:
    """All passes; each alone and all but it; all in another order. Not `every`: one of each, and fewer calls."""
    example = Example(seed, every)
    rng = np.random.default_rng(seed)
    names = list(PASSES)
    some = names if every else [names[rng.integers(len(names))]]
    chosen = [names, *([name] for name in some), *([n for n in names if n != name] for name in some)]
    for only in chosen:
        _check(example, seed, only)
    _check(example, seed, list(rng.permutation(names)))


def _check(example: Example, seed: int, names: Sequence[str]) -> None:
    rewriter = Rewriter(example.graph)
    try:
        for name in names:
            PASSES[name](rewriter)
        example.check(rewriter.finish())
    except (AssertionError, HightideError, LookupError, ValueError) as error:
        raise AssertionError(f"seed {seed}, passes {', '.join(names)}: {error}\n{example.graph}") from error


@pytest.mark.parametrize("start", range(14, 30, 8))
def test_passes_keep_what_random_graphs_give(start: int) -> None:
    for seed in range(start, start + 8):
        check_seed(seed, every=False)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 1200, 100))
def test_every_pass_alone_and_all_but_it_keep_what_random_graphs_give(start: int) -> None:
    for seed in range(start, start + 100):
        check_seed(seed, every=True)


def test_random_graphs_have_what_every_pass_looks_for() -> None:
    changed = dict.fromkeys(PASSES, 0)
    for seed in range(60):
        graph = RandomGraph(seed).graph
        before = [(call.name, tuple(call.args.items())) for call in fuse(graph, ()).calls]
        for name in PASSES:
            changed[name] += before != [(call.name, tuple(call.args.items())) for call in fuse(graph, [name]).calls]
    assert min(changed.values()) >= 2, changed
