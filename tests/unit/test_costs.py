"""Costs by hand for the kinds of work there are, and sane ones for every case of every op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hightide.graph.graph import Graph
from hightide.graph.values import TensorValue
from hightide.ops import REGISTRY
from hightide.ops.attention.attention_cost import SOFTMAX, visible_pairs
from hightide.ops.builder import GraphBuilder
from hightide.ops.case import Case, all_cases
from hightide.ops.choices import Choices
from hightide.ops.contract import Tensor
from hightide.ops.cost import Cost
from hightide.ops.storage import gpu_bytes
from hightide.planning.costs import cost_of
from hightide.planning.levels import InputElements, graph_inputs
from hightide.planning.planner import Plan, Planner
from hightide.runtime.case_graph import CaseGraph
from hightide.traits import Traits

WITH_SUBGROUPS = Traits(software=True, subgroups=True, subgroup_size=8)


def costs(graph: Graph, *inputs: np.ndarray, choices: Choices | None = None) -> tuple[Plan, list[Cost]]:
    planner = Planner(graph, choices=choices)
    specs = graph_inputs(graph, None, None)
    env = InputElements(inputs, specs)
    plan = planner.plan([array.shape for array in inputs], env)
    return plan, [cost_of(step, env, plan) for step in plan.steps]


def total(graph: Graph, *inputs: np.ndarray) -> Cost:
    return sum(costs(graph, *inputs)[1], Cost())


def floats(*dims: int) -> np.ndarray:
    return np.ones(dims, np.float32)


def test_a_linear_is_two_operations_per_weight_and_row_and_reads_its_packed_weight_once() -> None:
    b = GraphBuilder()
    x = b.input((1, 12, 64))
    weight, scales = b.constant(np.zeros((96, 32), np.uint8)), b.constant(floats(2, 96))
    graph = b.graph(b.call("et_vk.linear_q4gsw.default", x, weight, scales, 32))
    cost = total(graph, floats(1, 5, 64))
    assert cost.flops == 2 * 5 * 64 * 96
    assert cost.bytes_read == 5 * 64 * 4 + 96 * 32 + 2 * 96 * 4
    assert cost.bytes_written == 5 * 96 * 4


@pytest.mark.parametrize(
    ("op", "x", "y", "operations"),
    [
        ("aten.mm.default", (5, 7), (7, 3), 2 * 5 * 7 * 3),
        ("aten.bmm.default", (4, 5, 7), (4, 7, 3), 4 * 2 * 5 * 7 * 3),
        ("et_vk.linear_dW.default", (5, 7), (5, 3), 2 * 5 * 7 * 3),
    ],
)
def test_products(op: str, x: tuple[int, ...], y: tuple[int, ...], operations: int) -> None:
    b = GraphBuilder()
    graph = b.graph(b.call(op, b.input(x), b.input(y)))
    cost = total(graph, floats(*x), floats(*y))
    assert cost.flops == operations
    assert cost.bytes_read == floats(*x).nbytes + floats(*y).nbytes


def test_a_convolution_counts_the_taps_of_its_outputs_and_transposed_those_of_its_inputs() -> None:
    for transposed, weight, sized in ((False, (6, 4, 3, 3), (2, 6, 8, 8)), (True, (4, 6, 3, 3), (2, 4, 8, 8))):
        b = GraphBuilder()
        x = b.input((2, 4, 8, 8))
        args = (None, [1, 1], [1, 1], [1, 1], transposed, [0, 0], 1)
        graph = b.graph(b.call("aten.convolution.default", x, b.constant(floats(*weight)), *args))
        per_pixel = 2 * weight[1] * 9
        assert total(graph, floats(2, 4, 8, 8)).flops == int(np.prod(sized)) * per_pixel


def test_an_embedding_reads_the_rows_it_picks() -> None:
    b = GraphBuilder()
    table, tokens = b.constant(floats(1000, 16)), b.input((1, 9), "int64")
    graph = b.graph(b.call("aten.embedding.default", table, tokens))
    cost = total(graph, np.zeros((1, 3), np.int64))
    assert (cost.bytes_read, cost.bytes_written, cost.flops) == (3 * 16 * 4 + 3 * 4, 3 * 16 * 4, 0)


def test_a_slice_reads_what_it_writes_and_a_cat_writes_each_part_once() -> None:
    b = GraphBuilder()
    x = b.input((100, 8))
    graph = b.graph(b.call("aten.slice_copy.Tensor", x, 0, 10, 14, 1))
    assert total(graph, floats(100, 8)) == Cost(4 * 8 * 4, 4 * 8 * 4, 0)
    b = GraphBuilder()
    x, y = b.input((3, 8)), b.input((5, 8))
    cost = total(b.graph(b.call("aten.cat.default", [x, y], 0)), floats(3, 8), floats(5, 8))
    assert cost == Cost(8 * 8 * 4, 8 * 8 * 4, 0)


def attention(tokens: int, position: int, window: int = 0, **choices: str) -> list[tuple[str, Cost]]:
    """Of 4 heads that share 2 kv heads of 8, in a context of 64: by route."""
    b = GraphBuilder()
    q, k, v = b.input((1, 16, 4, 8)), b.input((1, 16, 2, 8)), b.input((1, 16, 2, 8))
    caches = b.zeros((1, 64, 2, 8)), b.zeros((1, 64, 2, 8))
    pos = b.call("et_vk.select_as_symint.default", b.input((1,), "int32"), 0, 0)
    graph = b.graph(b.call("hightide.attention.default", q, k, v, *caches, pos, 0.35, window, 0.0))
    inputs = (floats(1, tokens, 4, 8), floats(1, tokens, 2, 8), floats(1, tokens, 2, 8), np.array([position], np.int32))
    chosen = Choices(WITH_SUBGROUPS, {f"attention.{name}": option for name, option in choices.items()})
    plan, found = costs(graph, *inputs, choices=chosen)
    return [(step.dispatch.kernel.name, cost) for step, cost in zip(plan.steps, found, strict=True)]


@pytest.mark.parametrize(("tokens", "position", "window"), [(1, 40, 0), (1, 40, 8), (7, 0, 0), (5, 30, 4)])
def test_attention_counts_the_keys_that_are_seen(tokens: int, position: int, window: int) -> None:
    pairs = sum(
        max(0, at - window + 1 if window else 0) <= key <= at
        for at in range(position, position + tokens)
        for key in range(position + tokens)
    )
    assert visible_pairs(tokens, position, position + tokens, True, window) == pairs
    found = attention(tokens, position, window, decode="single", prefill="stream")
    split = attention(tokens, position, window, decode="split")
    updates = sum((cost for name, cost in found if name.endswith("update")), Cost())
    assert updates.bytes_written == 2 * tokens * 2 * 8 * 4
    rest = sum((cost for name, cost in found if not name.endswith("update")), Cost())
    products = 2 * 4 * pairs * (8 + 8)
    assert rest.flops == products + SOFTMAX * 4 * pairs
    seen = position + tokens - max(0, position - window + 1 if window else 0)
    assert rest.bytes_read == 2 * seen * 2 * 8 * 4 + tokens * 4 * 8 * 4
    assert rest.bytes_written == tokens * 4 * 8 * 4
    parts = sum((cost for name, cost in split if not name.endswith("update")), Cost())
    assert parts.bytes_read > rest.bytes_read and parts.flops > rest.flops  # parts are joined in a second dispatch


def test_the_cost_of_attention_follows_the_position_though_its_plan_does_not() -> None:
    near, far = (sum((cost for _, cost in attention(1, position)), Cost()) for position in (3, 60))
    assert near.bytes_read * 4 < far.bytes_read and near.flops * 4 < far.flops


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: f"{case.op}-{case.name}")
def test_every_case_has_a_cost_within_what_it_binds(case: Case) -> None:
    built = CaseGraph(case, np.random.default_rng(0))
    specs = graph_inputs(built.graph, None, None)
    planner = Planner(built.graph)
    for live in built.levels():
        inputs = built.arrays(live)
        env: Any = InputElements(inputs, specs)
        plan = planner.plan([array.shape for array in inputs], env)
        op, written, flops = REGISTRY[case.op], 0, 0
        for step in plan.steps:
            cost, bound = cost_of(step, env, plan), (*step.dispatch.reads, *step.dispatch.writes)
            most = sum(
                gpu_bytes(b.dtype, b.dims) if isinstance(b, Tensor) else 2 * plan.scratch_sizes[b] for b in bound
            )
            assert 0 <= cost.bytes <= most + 4 * len(bound), f"{step.dispatch.kernel.name} at {live}: {cost} of {most}"
            written += cost.bytes_written
            flops += cost.flops if step.call.name == case.op else 0
        if plan.steps and all(array.size for array in inputs):
            assert (flops > 0) == (op.flops_per_element > 0)
        if plan.steps and not op.mutates:
            values = (built.graph.values[id] for id in built.graph.outputs)
            assert written >= sum(gpu_bytes(v.dtype, plan.dims[v.id]) for v in values if isinstance(v, TensorValue))
