"""Any level, in any order, from one build: plans are kept, bounded, and never decide what comes out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llamas import CONTEXT, INPUTS, MAX_TOKENS, call, llama_session, small_llama
from schedules import PROGRAMS, error_of_range, oracle

from hightide import InputError, UnsupportedError
from hightide.gpu.device import Device
from hightide.graph.graph import Graph
from hightide.ops.builder import GraphBuilder
from hightide.pte.program import load
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession

FLOAT64_ERROR = 2e-5  # of the range of the expected values


@pytest.fixture(scope="module")
def llama(device: Device) -> tuple[GpuSession, CpuSession]:
    graph = small_llama()
    return llama_session(device, graph), CpuSession(graph, **INPUTS, dtype="float64")


# Also what must be refused: no token, one too many, a negative position, one past the context.
single = st.tuples(st.integers(0, MAX_TOKENS + 1), st.integers(-1, CONTEXT)).map(lambda level: [level])
decode = st.tuples(st.integers(2, 5), st.integers(0, CONTEXT)).map(lambda run: [(1, run[1] + n) for n in range(run[0])])


@given(runs=st.lists(st.one_of(single, decode), min_size=2, max_size=6), seed=st.integers(0, 9))
@settings(max_examples=60)
def test_random_calls_agree_with_the_reference(
    llama: tuple[GpuSession, CpuSession], runs: list[list[tuple[int, int]]], seed: int
) -> None:
    gpu, cpu = llama
    gpu.reset()
    cpu.reset()
    for tokens, position in (level for run in runs for level in run):
        inputs = call(tokens, position, seed)
        gpu.poison()
        try:
            (expected,) = cpu.run(inputs)
        except InputError as refused:
            with pytest.raises(InputError) as error:
                gpu.run(inputs)
            assert str(error.value) == str(refused)
            continue
        (got,) = gpu.run(inputs)
        assert error_of_range(got, expected) <= FLOAT64_ERROR, (tokens, position)


@given(order=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 33)), min_size=2, max_size=6))
@settings(max_examples=25)
def test_two_dims_that_vary_at_once_agree_with_the_reference(device: Device, order: list[tuple[int, int]]) -> None:
    program = load(PROGRAMS / "two_dims.pte")
    (gpu,), exact = program.method().sessions, oracle(program, "forward")
    for batch, rows in order:
        x = np.random.default_rng([batch, rows]).standard_normal((batch, rows, 16)).astype(np.float32)
        gpu.poison()  # type: ignore[attr-defined]
        assert error_of_range(gpu.run([x])[0], exact(x)[0]) <= FLOAT64_ERROR, (batch, rows)


def test_a_known_level_plans_nothing(device: Device) -> None:
    session = llama_session(device)
    for tokens in (5, 1, 24):
        session.run(call(tokens, 0))
    planned = session.levels.planned
    assert planned == 3
    for tokens, position in [(1, 7), (24, 50), (5, 3), (1, 79), (1, 0)]:
        session.run(call(tokens, position))
    assert session.levels.planned == planned, "positions are not levels"


def kept_levels(device: Device, count: int) -> GpuSession:
    """A session that keeps fewer plans than usual."""

    class FewLevels(GpuSession):
        max_levels = count

    return FewLevels(small_llama(), device, **INPUTS)


def test_the_least_recently_used_plan_goes_first(device: Device) -> None:
    session = kept_levels(device, 3)

    def plans_made(*order: int) -> int:
        before = session.levels.planned
        for tokens in order:
            session.run(call(tokens, 0))
            assert len(session.levels) <= 3
        return session.levels.planned - before

    assert plans_made(1, 2, 3) == 3
    assert plans_made(1) == 0  # 2 is now the oldest
    assert plans_made(4) == 1
    assert plans_made(1, 3, 4) == 0
    assert plans_made(2) == 1


def test_a_plan_made_again_gives_the_same_bytes(device: Device) -> None:
    session, small = llama_session(device), kept_levels(device, 1)
    for tokens, position in [(9, 0), (1, 9), (9, 10), (1, 19), (1, 20), (1, 21), (3, 22), (9, 0)]:
        inputs = call(tokens, position)
        assert small.run(inputs)[0].tobytes() == session.run(inputs)[0].tobytes()
    assert len(small.levels) == 1


def test_a_level_pinned_by_an_inputs_value_is_right_for_each_value(device: Device) -> None:
    """value_shape takes the first n rows; n is the value of an input, so each n is a level of its own."""
    program = load(PROGRAMS / "value_shape.pte")
    forward, exact = program.method(), oracle(program, "forward")
    (session,) = forward.sessions
    rng = np.random.default_rng(0)
    order = [(s, n) for s in (33, 7, 20) for n in (1, s, s // 2, 2, s - 1, 1, s)]
    for s, n in order:
        x = rng.standard_normal((s, 12)).astype(np.float32)
        got, want = forward(x, [n]), exact(x, [n])
        assert got[0].shape == (n, 10) and got[1].shape == (n * 2, 6)
        assert max(error_of_range(*pair) for pair in zip(got, want, strict=True)) <= FLOAT64_ERROR
    planned = session.levels.planned  # type: ignore[attr-defined]
    assert planned == len(set(order))
    forward(np.zeros((33, 12), np.float32), [33])
    assert session.levels.planned == planned  # type: ignore[attr-defined]
    for n in (34, -1):
        with pytest.raises(InputError):
            forward(np.zeros((33, 12), np.float32), [n])


def test_a_full_parameter_buffer_starts_anew(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    session = llama_session(device)
    plan = session.level(call(1, 0))[1]
    blocks = len({(step.dispatch.kernel, step.dispatch.params) for step in plan.steps})
    monkeypatch.setattr("hightide.runtime.ready_plans.PARAMS_BLOCKS", blocks + 8)  # room for one plan, not for two
    tight = llama_session(device)
    # Repeats have commands encoded ahead, which hold offsets of parameters that are then overwritten.
    order = [*(1,) * 4, 7, 7, 7, 1, 1, *range(1, MAX_TOKENS + 1), 1, 1]
    for n, tokens in enumerate(order):
        inputs = call(tokens, n)
        assert tight.run(inputs)[0].tobytes() == session.run(inputs)[0].tobytes()
        assert len(tight.levels) <= 2
    monkeypatch.setattr("hightide.runtime.ready_plans.PARAMS_BLOCKS", blocks - 1)
    with pytest.raises(UnsupportedError, match=f"a plan needs more than {blocks - 1} different sets of parameters"):
        llama_session(device)


def softmax_of_linear() -> Graph:
    b = GraphBuilder()
    rng = np.random.default_rng(0)
    x = b.input((9, 12))
    weight = b.constant(rng.standard_normal((5, 12)).astype(np.float32))
    y = b.call("aten.linear.default", x, weight, None)
    rows = b.call("sym_size.int", y, 0)
    view = b.call("aten.view_copy.default", b.call("aten._softmax.default", y, -1, False), [rows, 5, 1])
    return b.graph(view, b.call("aten.cat.default", [y, y], 0), rows, x)


def test_no_rows_give_empty_results_where_the_ops_are_defined_on_none(device: Device) -> None:
    graph = softmax_of_linear()
    gpu, cpu = GpuSession(graph, device), CpuSession(graph, dtype="float64")
    for rows in (3, 0, 9, 0, 0, 1):
        x = np.random.default_rng(rows).standard_normal((rows, 12)).astype(np.float32)
        gpu.poison()
        got, want = gpu.run([x]), cpu.run([x])
        assert [a.shape for a in got] == [(rows, 5, 1), (2 * rows, 5), (), (rows, 12)]
        assert max(error_of_range(*pair) for pair in zip(got, want, strict=True)) <= FLOAT64_ERROR


def test_no_tokens_are_refused_with_a_sentence(llama: tuple[GpuSession, CpuSession]) -> None:
    with pytest.raises(InputError, match=r"op \d+ \(aten.select_copy.int\)"):
        llama[0].run(call(0, 0))


def test_a_new_level_costs_no_more_writes_than_its_parameters(device: Device) -> None:
    session = llama_session(device)
    session.run(call(3, 0))
    before = session.counters.param_bytes
    session.run(call(11, 0))
    steps = len(session.level(call(11, 0))[1].steps)
    assert 0 < session.counters.param_bytes - before <= steps * 256
    before = session.counters.param_bytes
    session.run(call(3, 14))
    session.run(call(11, 17))
    assert session.counters.param_bytes == before


def test_a_live_start_below_0_counts_from_the_end(device: Device) -> None:
    """x[n:] and x[n:] = 0 for any n."""
    b = GraphBuilder()
    x, n = b.input((9, 3)), b.input((1,), "int32")
    start = b.call("et_vk.select_as_symint.default", n, 0, 0)
    tail = b.call("aten.slice_copy.Tensor", x, 0, start, dims=[(9, 3)])
    cut = b.call("aten.slice_scatter.default", x, b.call("aten.mul.Scalar", tail, 0.0), 0, start)
    session = GpuSession(b.graph(tail, cut), device)
    for rows, value in [(9, -4), (5, -4), (5, 2), (5, -1), (5, 0), (3, -3), (9, 8), (9, -4)]:
        given = np.arange(3.0 * rows, dtype=np.float32).reshape(rows, 3) + 1
        got, left = session.run([given, np.array([value], np.int32)])
        wanted = given.copy()
        wanted[value:] = 0
        np.testing.assert_array_equal(got, given[value:])
        np.testing.assert_array_equal(left, wanted)
    with pytest.raises(InputError, match=r"aten.slice_copy.Tensor"):
        session.run([given[:3], np.array([-7], np.int32)])
