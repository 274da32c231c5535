"""Every float op on tensors held as halves: at every live shape, against the float64 reference of the same halves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from op_cases import CASES, Case
from op_runner import LEVELS, Built, check_blank_parameters, one_of_each_family
from schedules import PROGRAMS, relative_error, steps

from hightide.gpu.device import Device
from hightide.graph.graph import Graph
from hightide.graph.values import TensorValue, Value
from hightide.ops.builder import GraphBuilder
from hightide.pte.program import load
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession

ROUNDING = 1e-3  # of the range: half a unit in the last of a half's 11 bits, twice where an op reads what it wrote
# Where an op attends to keys that it has rounded itself: scores of its cases reach 20, and an exponential follows them.
ROUNDED_KEYS = {"hightide.rope_attend.default": 6e-3, "hightide.rope_attend_pages.default": 6e-3}
AT_TIES = {"torchao.choose_qparams_affine.default"}  # halves meet ties that float32 and float64 divide differently


def in_halves(graph: Graph) -> Graph:
    """Every float32 tensor as float16; the caller still gives and gets float32, as under forced fp16."""

    def half(value: Value) -> Value:
        if not isinstance(value, TensorValue) or value.dtype != "float32":
            return value
        return replace(value, dtype="float16", stored="float32" if value.constant else "")

    return replace(graph, values=tuple(half(value) for value in graph.values))


def has_floats(case: Case) -> bool:
    graph = Built(case, np.random.default_rng(7)).graph
    return any(isinstance(v, TensorValue) and v.dtype == "float32" for v in graph.values)


@pytest.fixture(autouse=True)
def _needs_halves(device: Device) -> None:
    if not device.traits.f16:
        pytest.skip("the adapter has no halves")


@pytest.mark.parametrize("case", one_of_each_family(filter(has_floats, CASES)))
def test_op_in_halves(case: Case, device: Device) -> None:
    built = Built(case, np.random.default_rng(7))
    graph = in_halves(built.graph)
    gpu, cpu = GpuSession(graph, device), CpuSession(graph, dtype="float64")
    levels = [*LEVELS, {"S": 0, "T": 1}, {"S": 5}] if case.empty else LEVELS
    for live in levels:
        inputs = [a.astype(np.float16).astype(a.dtype) if a.dtype == np.float32 else a for a in built.arrays(live)]
        gpu.poison()
        for got, expected in zip(gpu.run(inputs), cpu.run(inputs), strict=True):
            assert got.shape == expected.shape
            if got.dtype.kind != "f":
                np.testing.assert_allclose(got, expected, rtol=0, atol=int(case.op in AT_TIES), err_msg=f"at {live}")
            elif got.size:
                np.testing.assert_array_equal(got, got.astype(np.float16), err_msg="not rounded to halves")
                reach = max(float(np.abs(expected).max()), 1e-2)
                error = float(np.abs(got - expected).max()) / reach
                steps = len(levels) if "output" in case.extra else 1  # what an op writes in place is rounded each time
                limit = max(ROUNDING * steps, case.tolerance, ROUNDED_KEYS.get(case.op, 0.0))
                assert error <= limit, f"at {live}: error {error:.2e} of the range"
    check_blank_parameters(gpu, built.arrays({}))


@pytest.mark.parametrize("f16", ["1", "0"])
def test_a_forced_fp16_program_agrees_with_the_eager_model(f16: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHTIDE_F16", f16)
    method = load(PROGRAMS / "llama_fp16.pte").method("forward")
    (session,) = method.sessions
    held = {v.dtype for v in session.graph.values if isinstance(v, TensorValue) and v.dtype.startswith("float")}
    assert held == {"float16" if f16 == "1" else "float32"}
    for _, inputs, goldens in steps("llama_fp16"):
        assert max(relative_error(*pair) for pair in zip(method(*inputs), goldens, strict=True)) < 1e-3


def cache_session(device: Device, half_caches: bool) -> GpuSession:
    graph = load(PROGRAMS / "llama_gqa.pte").single_graph("forward")
    assert graph is not None
    return GpuSession(graph, device, [True, False], half_caches=half_caches)


def test_caches_in_halves_take_half_the_memory_and_agree(device: Device) -> None:
    whole, half = cache_session(device, False), cache_session(device, True)
    assert half.device_bytes()["state"] * 2 == whole.device_bytes()["state"]
    worst = 0.0
    for _, inputs, goldens in steps("llama_gqa"):
        (got,), (golden,) = half.run(inputs), goldens
        worst = max(worst, relative_error(got, golden))
    assert 0 < worst < 1e-3  # rounded, and no more than that


def test_state_moves_between_halves_and_floats(device: Device) -> None:
    """What one kind of cache saved, the other reads; halves come back byte for byte."""
    whole, half = cache_session(device, False), cache_session(device, True)
    order = [inputs for _, inputs, _ in steps("llama_gqa")]
    half.run(order[0])
    saved = half.read_state()
    assert {array.dtype for array in saved} == {np.dtype(np.float16)}
    whole.write_state(saved)
    assert all(np.array_equal(a, b) for a, b in zip(whole.read_state(), saved, strict=True))
    snapshot = half.snapshot()
    half.run(order[1])
    half.restore(snapshot)
    assert [a.tobytes() for a in half.read_state()] == [a.tobytes() for a in saved]
    half.reset()
    half.write_state(whole.read_state())
    assert [a.tobytes() for a in half.read_state()] == [a.tobytes() for a in saved]


def test_only_caches_become_halves(device: Device) -> None:
    """State that other ops touch stays what the program says."""
    (case,) = (case for case in CASES if case.name == "adamw_in_place")
    session = GpuSession(Built(case, np.random.default_rng(7)).graph, device, half_caches=True)
    assert session.planner.aliases.state
    assert not any(isinstance(v, TensorValue) and v.dtype == "float16" for v in session.graph.values)


def test_odd_counts_infinities_and_nan_go_through(device: Device) -> None:
    """Three halves are no whole words; what is over 65504 becomes infinite, as in eager."""
    builder = GraphBuilder()
    x = builder.input((7,), "float16")
    session = GpuSession(builder.graph(builder.call("aten.add.Tensor", x, x, dtype="float16")), device)
    for given in ([1.0, 2.0, 3.0], [60000.0], [np.inf, -np.inf, np.nan, -40000.0, 6e-8], [0.5] * 7):
        array = np.array(given, np.float16)
        (got,) = session.run([array])
        assert got.dtype == np.float16
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(got, array + array)
