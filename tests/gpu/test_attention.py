"""Every attention route gives what the reference does, over contexts of several parts, from one plan per S."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import CASES
from op_runner import Built, check_blank_parameters, follow_levels

from hightide.gpu.device import Device
from hightide.graph.graph import Graph
from hightide.ops.attention.steps import DECODE, PART_KEYS, PREFILL
from hightide.ops.builder import GraphBuilder
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession
from hightide.traits import Traits

CASE = {case.name: case for case in CASES}
CONTEXT = 2 * PART_KEYS + 40
MAX_TOKENS = 24
ROUTES = [
    {DECODE.name: "single", PREFILL.name: "stream"},
    {DECODE.name: "split", PREFILL.name: "tiles"},
]


def possible(device: Device, routes: dict[str, str]) -> None:
    if not all(choice.possible(device.traits, routes[choice.name]) for choice in (DECODE, PREFILL)):
        pytest.skip("this adapter has no quads")


def long_graph(window: int, softcap: float) -> Graph:
    rng = np.random.default_rng(3)
    b = GraphBuilder()
    q, input_pos = b.input((1, MAX_TOKENS, 6, 8)), b.input((1,), "int32")
    position = b.call("et_vk.select_as_symint.default", input_pos, 0, 0)
    k, v = (b.constant(rng.uniform(-2, 2, (1, CONTEXT, 2, 8)).astype(np.float32)) for _ in range(2))
    return b.graph(b.call("hightide.attend.default", q, k, v, position, True, None, window, softcap))


@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (PART_KEYS + 9, 3.0), (5, 0.0)])
@pytest.mark.parametrize("routes", ROUTES, ids=lambda routes: "-".join(routes.values()))
def test_long_contexts(device: Device, routes: dict[str, str], window: int, softcap: float) -> None:
    possible(device, routes)
    graph = long_graph(window, softcap)
    gpu, cpu = GpuSession(graph, device, choices=routes), CpuSession(graph, dtype="float64")
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
