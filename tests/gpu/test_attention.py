"""Every attention route gives what the reference does, over contexts of several parts, from one plan per S."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from op_cases import CASES
from op_runner import Built, check_blank_parameters, follow_levels

from hightide.gpu.device import Device
from hightide.graph.graph import Graph
from hightide.ops.attention.steps import DECODE, MOST_PARTS, PART_KEYS, PREFILL
from hightide.ops.builder import GraphBuilder
from hightide.ops.pages.work_lists import Ragged, SequenceRows, ragged
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.need import needs_of
from hightide.runtime.small_graph import check_of
from hightide.traits import Traits

CASE = {case.name: case for case in CASES}
CONTEXT = 2 * PART_KEYS + 40
MAX_TOKENS = 24
ROUTES = [
    {DECODE.name: "single", PREFILL.name: "stream"},
    {DECODE.name: "split", PREFILL.name: "tiles"},
]
EVERY_ROUTE = pytest.mark.parametrize("routes", ROUTES, ids=lambda routes: "-".join(routes.values()))
EVERY_RULE = pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (PART_KEYS + 9, 3.0), (5, 0.0)])


def sessions(graph: Graph, device: Device, routes: dict[str, str]) -> tuple[GpuSession, CpuSession]:
    """On the GPU by these routes, and in float64."""
    if not all(choice.possible(device.traits, routes[choice.name]) for choice in (DECODE, PREFILL)):
        pytest.skip("this adapter has no quads")
    return GpuSession(graph, device, choices=routes), CpuSession(graph, dtype="float64")


def long_graph(window: int, softcap: float) -> Graph:
    rng = np.random.default_rng(3)
    b = GraphBuilder()
    q, input_pos = b.input((1, MAX_TOKENS, 6, 8)), b.input((1,), "int32")
    position = b.call("et_vk.select_as_symint.default", input_pos, 0, 0)
    k, v = (b.constant(rng.uniform(-2, 2, (1, CONTEXT, 2, 8)).astype(np.float32)) for _ in range(2))
    return b.graph(b.call("hightide.attend.default", q, k, v, position, True, None, window, softcap))


@EVERY_RULE
@EVERY_ROUTE
def test_long_contexts(device: Device, routes: dict[str, str], window: int, softcap: float) -> None:
    gpu, cpu = sessions(long_graph(window, softcap), device, routes)
    rng = np.random.default_rng(4)
    plans = set()
    for tokens, position in [
        (1, 0),
        (1, PART_KEYS - 1),
        (1, PART_KEYS),
        (3, 2 * PART_KEYS - 2),
        (1, CONTEXT - 1),
        (MAX_TOKENS, CONTEXT - MAX_TOKENS),
        (MAX_TOKENS, 0),
        (8, PART_KEYS + 3),
        (1, 9),
    ]:
        q = rng.uniform(-3, 3, (1, tokens, 6, 8)).astype(np.float32)
        given = [q, np.array([position], np.int32)]
        gpu.poison()
        (got,), (expected,) = gpu.run(given), cpu.run(given)
        assert np.abs(got - expected).max() <= 2e-6 * np.abs(expected).max(), (tokens, position)
        plans.add(id(gpu.level(given)[1]))
    assert len(plans) == 4  # one for each number of tokens, whatever the position


@pytest.mark.parametrize(
    ("depth", "context"),
    [
        (64, PART_KEYS * (MOST_PARTS + 7)),
        (96, 300),
        pytest.param(272, 150, marks=pytest.mark.slow),
        (10, 700),
    ],
)
def test_parts_of_any_depth(device: Device, depth: int, context: int) -> None:
    """Up to as many parts as are joined, and then larger ones."""
    rng = np.random.default_rng(depth)
    b = GraphBuilder()
    q, input_pos = b.input((1, 2, 3, depth)), b.input((1,), "int32")
    position = b.call("et_vk.select_as_symint.default", input_pos, 0, 0)
    k, v = (b.constant(rng.uniform(-2, 2, (1, context, 1, depth)).astype(np.float32)) for _ in range(2))
    graph = b.graph(b.call("hightide.attend.default", q, k, v, position, True, None, 0, 0.0))
    gpu, cpu = GpuSession(graph, device, choices={DECODE.name: "split"}), CpuSession(graph, dtype="float64")
    for tokens, at in [(1, 0), (1, context - 1), (2, context // 2), (2, PART_KEYS - 1), (1, 2 * PART_KEYS)]:
        given = [rng.uniform(-1, 1, (1, tokens, 3, depth)).astype(np.float32), np.array([at], np.int32)]
        gpu.poison()
        (got,), (expected,) = gpu.run(given), cpu.run(given)
        assert np.abs(got - expected).max() <= 3e-6 * np.abs(expected).max(), (tokens, at)


@pytest.mark.parametrize("name", ["sdpa_cache_gqa", "attention_softcap", "attend", "sdpa_mask", "sdpa_cache_mha_odd"])
def test_routes_of_gpus(device: Device, name: str) -> None:
    """Those that a software adapter does not take by itself: follow the levels, and write nothing when blank."""
    routes = {DECODE.name: "split", PREFILL.name: "tiles"}
    follow_levels(CASE[name], device, **routes)
    built = Built(CASE[name], np.random.default_rng(9))
    session = GpuSession(built.graph, device, choices=routes)
    for live in ({}, {"S": 1, "T": 1, "B": 1, "P": 0}):
        check_blank_parameters(session, built.arrays(live))


def test_decoding_is_one_dispatch_on_software_adapters(device: Device) -> None:
    if not device.traits.software or not DECODE.possible(device.traits, "single"):
        pytest.skip("for software adapters with quads")
    session = GpuSession(long_graph(0, 0.0), device)
    q = np.zeros((1, 1, 6, 8), np.float32)
    assert len(session.level([q, np.array([7], np.int32)])[1].steps) == 1
    assert not session.scratch


def test_defaults_by_adapter() -> None:
    software = Traits(software=True, subgroups=True, subgroup_size=8)
    gpu = Traits(subgroups=True, subgroup_size=32)
    plain = Traits(software=True)
    assert (DECODE.default(software), PREFILL.default(software)) == ("single", "stream")
    assert (DECODE.default(gpu), PREFILL.default(gpu)) == ("split", "tiles")
    assert (DECODE.default(plain), PREFILL.default(plain)) == ("split", "tiles")
    assert not DECODE.possible(plain, "single") and not PREFILL.possible(plain, "stream")


PAGE = 16
POOL = 4 * CONTEXT // PAGE * PAGE


def paged_graph(window: int, softcap: float) -> Graph:
    b = GraphBuilder()
    q, longest = b.input((1, 64, 6, 8)), b.input((1,), "int32")
    pools = [b.zeros((1, POOL, 2, 8)) for _ in range(2)]
    k, v = (b.input((1, 64, 2, 8)) for _ in range(2))
    singles, tiles, pages, places = (b.input(dims, "int32") for dims in ((64, 4), (64, 4), (POOL // PAGE,), (64,)))
    keys = b.call("et_vk.select_as_symint.default", longest, 0, 0)
    tables = (singles, tiles, pages, keys, PAGE, 0.35, window, softcap, None)
    return b.graph(b.call("hightide.paged_attention.default", q, *pools, *tables, k, v, places))


def paged_inputs(pieces: list[SequenceRows], rng: np.random.Generator) -> tuple[list[np.ndarray], Ragged]:
    made = ragged(pieces, PAGE, POOL)
    q, k, v = (rng.uniform(-2, 2, (1, made.places.size, heads, 8)).astype(np.float32) for heads in (6, 2, 2))
    longest = np.array([max((piece.keys for piece in pieces), default=0)], np.int32)
    return [q, longest, k, v, made.singles, made.tiles, made.pages, made.places], made


STEPS = [
    [SequenceRows(1, 0)],
    [SequenceRows(1, 2 * PART_KEYS), SequenceRows(1, PART_KEYS - 1), SequenceRows(1, 5)],
    [SequenceRows(40, 0), SequenceRows(1, PART_KEYS), SequenceRows(9, PART_KEYS + 3), SequenceRows(1, 3)],
    [],
    [SequenceRows(33, CONTEXT - 33), SequenceRows(1, CONTEXT - 1)],
]


@EVERY_RULE
@EVERY_ROUTE
def test_ragged_batches(device: Device, routes: dict[str, str], window: int, softcap: float) -> None:
    """Sequences see their own keys only: everything else in the pools is NaN."""
    gpu, cpu = sessions(paged_graph(window, softcap), device, routes)
    rng = np.random.default_rng(4)
    for pieces in STEPS:
        inputs, made = paged_inputs(pieces, rng)
        state = [np.full((1, POOL, 2, 8), np.nan, np.float32) for _ in range(2)]
        for pool in state:
            pool[:, made.own] = rng.uniform(-2, 2, (1, made.own.size, 2, 8))
        for session in (gpu, cpu):
            session.write_state(state)
        gpu.poison()
        (got,), (expected,) = gpu.run(inputs), cpu.run(inputs)
        assert got.shape == expected.shape
        if got.size:
            assert np.abs(got - expected).max() <= 2e-6 * np.abs(expected).max(), pieces


def test_ragged_batches_over_halves(device: Device) -> None:
    if not device.traits.f16:
        pytest.skip("for adapters with 16-bit floats")
    graph = paged_graph(0, 0.0)
    gpu, cpu = GpuSession(graph, device, half_caches=True), CpuSession(graph, dtype="float64")
    rng = np.random.default_rng(4)
    for pieces in ([SequenceRows(20, 0), SequenceRows(1, 0)], [SequenceRows(1, 20), SequenceRows(17, 1)]):
        inputs, _ = paged_inputs(pieces, rng)
        (got,), (expected,) = gpu.run(inputs), cpu.run(inputs)
        assert np.abs(got - expected).max() <= 2e-3 * np.abs(expected).max(), pieces
    assert {pool.dtype for pool in gpu.read_state()} == {np.dtype("float16")}


def test_kernels_on_pages_prove_themselves(device: Device) -> None:
    """With the tables that the op makes for its own arguments, of which no random ones would do."""
    with GpuSession(paged_graph(0, 0.0), device) as session:
        for pieces in STEPS[:3]:
            plan = session.level(paged_inputs(pieces, np.random.default_rng(4))[0])[1]
            for need, call in needs_of(plan).items():
                check = check_of(need, session.planner, plan, call)
                assert check is not None and not check.problem(device)


@pytest.mark.parametrize("name", ["rope_pages_norm", "rope_pages_norm_keys"])
def test_rope_in_parts_where_few_buffers_are_bound(name: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "traits", replace(device.traits, storage_buffers=8))
    built = Built(CASE[name], np.random.default_rng(7))
    with GpuSession(built.graph, device) as session:
        plan = session.level(built.arrays(next(iter(built.levels()))))[1]
        routes = [step.dispatch.kernel.name for step in plan.steps]
    assert routes[:2] == ["rope_cache_q", "rope_cache_kv"]
    follow_levels(CASE[name], device)
