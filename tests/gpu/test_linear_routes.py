"""Every route of a linear gives what the reference gives, whatever the adapter would choose."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import CASES
from op_runner import check_blank_parameters, follow_levels, of_four_lanes
from test_blocks import K, dequantised, random_blocks, weight_value

from hightide import InputError
from hightide.gpu.device import Device
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.builder import GraphBuilder
from hightide.ops.choices import Choices
from hightide.ops.linear.routes import ACTIVATIONS, GEMM, GEMV, rounded_to_codes
from hightide.runtime.gpu_session import GpuSession
from hightide.traits import Traits

Q4_CASES = ("q4_bias", "q4_silu_aligned", "q4_gelu", "q4_norm_silu")
CASE = {case.name: case for case in CASES if case.name in Q4_CASES}
ROUTES = [
    {GEMV.name: gemv, GEMM.name: gemm}
    for gemv, gemm in [
        ("registers", "registers"),
        ("broadcast", "broadcast"),
        ("quads", "quads"),
        ("split", "shared"),
        ("subgroups", "shared"),
    ]
]


def able(device: Device, route: dict[str, str]) -> Device:
    return of_four_lanes(device) if route[GEMV.name] == "quads" else device


def possible(device: Device, route: dict[str, str]) -> dict[str, str]:
    for choice in (GEMV, GEMM):
        if not choice.possible(device.traits, route[choice.name]):
            pytest.skip(f"{device.adapter.name} cannot run {route[choice.name]}")
    return route


LONG = {  # to compile on llvmpipe
    "quads": ("q4_gelu", "q4_silu_aligned", "q4_norm_silu"),
    "split": ("q4_gelu", "q4_silu_aligned", "q4_bias"),
    "subgroups": ("q4_gelu", "q4_bias"),
}


@pytest.mark.parametrize(
    ("route", "name"),
    [
        pytest.param(route, name, marks=[pytest.mark.slow] * (name in LONG.get(route[GEMV.name], ())))
        for name in Q4_CASES
        for route in ROUTES
    ],
    ids=lambda given: given if isinstance(given, str) else given[GEMV.name],
)
def test_a_route_of_a_4_bit_linear_is_right(route: dict[str, str], name: str, device: Device) -> None:
    device = able(device, route)
    follow_levels(CASE[name], device, **possible(device, route))


FAST = ("Q4_1",)  # the others take long to compile
TURNED = ("Q4_1", "Q5_1", "Q6_K", "Q8_0", "F16")  # one for each way of blocks/turned.wgsl


@pytest.mark.parametrize(
    ("kind", "route", "half"),
    [
        pytest.param(
            kind,
            route,
            half,
            marks=[pytest.mark.slow] * (kind not in FAST or half == 9 or route[GEMV.name] in ("quads", "split")),
        )
        for kind in BLOCK_TYPES
        for route in ROUTES
        for half in (9, 12)  # columns: odd, and whole vec4s
        if (kind in TURNED if half == 9 else route[GEMV.name] != "quads" or kind in FAST)
    ],
    ids=lambda given: given[GEMV.name] if isinstance(given, dict) else str(given),
)
def test_a_gated_linear_over_blocks_is_right(kind: str, route: dict[str, str], half: int, device: Device) -> None:
    rng, device = np.random.default_rng(5), able(device, route)
    data = random_blocks(kind, 2 * half, rng)
    exact = dequantised(kind, data)
    bias = rng.normal(size=2 * half).astype(np.float32)
    b = GraphBuilder()
    x, residual = b.input((1, 19, K)), b.input((1, 19, half))
    weight = weight_value(b, kind, data)
    graph = b.graph(b.call("hightide.linear.default", x, weight, b.constant(bias), residual, "silu"))
    session = GpuSession(graph, device, choices=possible(device, route))
    for rows in (19, 1, 3, 6, 11):
        session.poison()
        given = [rng.normal(size=(1, rows, width)).astype(np.float32) for width in (K, half)]
        gate, up = np.split(given[0] @ exact.T + bias, 2, axis=-1)
        with np.errstate(over="ignore"):  # of exp, where silu is 0
            expected = gate / (1 + np.exp(-gate)) * up + given[1]
        (got,) = session.run(given)
        check_blank_parameters(session, given)
        assert np.abs(got - expected).max() <= 4e-6 * np.abs(expected).max(), rows


@pytest.mark.parametrize(
    "route",
    [pytest.param(route, marks=[pytest.mark.slow] * (route[GEMV.name] == "split")) for route in ROUTES],
    ids=lambda route: route[GEMV.name],
)
@pytest.mark.parametrize("gated", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_linear_over_floats_is_right(route: dict[str, str], gated: bool, device: Device) -> None:
    rng, device = np.random.default_rng(5), able(device, route)
    weight, bias = (rng.normal(size=dims).astype(np.float32) for dims in ((42, 96), (42,)))
    columns = 21 if gated else 42
    b = GraphBuilder()
    x, residual = b.input((1, 35, 96)), b.input((1, 35, columns))
    ends = (b.constant(bias), residual, "silu", None, 0.0, gated)
    graph = b.graph(b.call("hightide.linear.default", x, b.constant(weight), *ends))
    session = GpuSession(graph, device, choices=possible(device, route))
    for rows in (35, 1, 2, 4, 7, 12):
        session.poison()
        given = [rng.normal(size=(1, rows, width)).astype(np.float32) for width in (96, columns)]
        product = given[0].astype(np.float64) @ weight.T.astype(np.float64) + bias
        gate, up = np.split(product, 2, axis=-1) if gated else (product, 1.0)
        expected = gate / (1 + np.exp(-gate)) * up + given[1]
        (got,) = session.run(given)
        check_blank_parameters(session, given)
        assert np.abs(got - expected).max() <= 4e-6 * np.abs(expected).max(), rows


def test_large_tiles_of_floats_are_right(device: Device) -> None:
    rng = np.random.default_rng(8)
    weight = rng.normal(size=(4099, 64)).astype(np.float32)
    b = GraphBuilder()
    graph = b.graph(b.call("aten.linear.default", b.input((1, 66, 64)), b.constant(weight)))
    session = GpuSession(graph, device, choices={GEMM.name: "shared"})
    for rows in (66, 40):
        given = rng.normal(size=(1, rows, 64)).astype(np.float32)
        (got,) = session.run([given])
        assert {step.dispatch.kernel.name for step in session.level([given])[1].steps} == {"float_large"}
        expected = given.astype(np.float64) @ weight.T
        assert np.abs(got - expected).max() <= 4e-6 * np.abs(expected).max(), rows


@pytest.mark.parametrize(
    ("kind", "route", "gated"),
    [
        pytest.param(kind, route, gated, marks=[pytest.mark.slow] * (kind not in FAST or not gated or route == "split"))
        for kind in BLOCK_TYPES
        for route in ("split", "subgroups")  # alike, but for the sum over lanes
        for gated in (False, True)
        if kind in TURNED or (gated and route == "subgroups")
    ],
)
def test_a_norm_within_a_linear_is_right(kind: str, route: str, gated: bool, device: Device) -> None:
    """In one dispatch for few rows, in two for many."""
    choices = possible(device, {GEMV.name: route, GEMM.name: "shared"})
    rng = np.random.default_rng(6)
    data = random_blocks(kind, 24, rng)
    factors = rng.normal(size=K).astype(np.float32)
    b = GraphBuilder()
    x, weight = b.input((1, 7, K)), weight_value(b, kind, data)
    graph = b.graph(
        b.call("hightide.linear.default", x, weight, None, None, "silu" if gated else "", b.constant(factors), 0.25)
    )
    session = GpuSession(graph, device, choices=choices)
    for rows, dispatches in ((7, 2), (1, 1), (2, 1), (4, 1)):
        given = rng.normal(size=(1, rows, K)).astype(np.float32)
        exact = given.astype(np.float64)
        normed = exact / np.sqrt((exact * exact).mean(-1, keepdims=True) + 0.25) * factors
        expected = normed @ dequantised(kind, data).T
        if gated:
            gate, up = np.split(expected, 2, axis=-1)
            expected = gate / (1 + np.exp(-gate)) * up
        session.poison()
        (got,) = session.run([given])
        assert len(session.level([given])[1].steps) == dispatches
        assert np.abs(got - expected).max() <= 4e-6 * np.abs(expected).max(), rows


@pytest.mark.parametrize("kind", [k if k in FAST else pytest.param(k, marks=pytest.mark.slow) for k in BLOCK_TYPES])
@pytest.mark.parametrize("gated", [False, True])
def test_large_tiles_are_right(kind: str, gated: bool, device: Device) -> None:
    """The last of them not full of rows, or of columns."""
    rng = np.random.default_rng(8)
    n = 4098 if gated else 4099
    data = random_blocks(kind, n, rng)
    exact = dequantised(kind, data)
    b = GraphBuilder()
    x, weight = b.input((1, 130, K)), weight_value(b, kind, data)
    call = b.call("hightide.linear.default", x, weight, None, None, "silu" if gated else "")
    session = GpuSession(b.graph(call), device, choices={GEMM.name: "shared"})
    for rows in (130, 64, 40):
        given = [rng.normal(size=(1, rows, K)).astype(np.float32)]
        assert session.level(given)[1].steps[0].dispatch.kernel.name.endswith("_large")
        session.poison()
        expected = given[0] @ exact.T
        if gated:
            gate, up = np.split(expected, 2, axis=-1)
            with np.errstate(over="ignore"):  # of exp, where silu is 0
                expected = gate / (1 + np.exp(-gate)) * up
        (got,) = session.run(given)
        check_blank_parameters(session, given)
        assert np.abs(got - expected).max() <= 4e-6 * np.abs(expected).max(), rows


@pytest.mark.parametrize("kind", ["Q4", pytest.param("Q4_1", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("gemv", "gemm"), [("registers", "registers"), ("subgroups", "shared")])
def test_activations_in_8_bits_change_results_by_a_percent(kind: str, gemv: str, gemm: str, device: Device) -> None:
    rng = np.random.default_rng(6)
    n, b = 70, GraphBuilder()
    x = b.input((1, 67, K))
    if kind == "Q4":
        codes, scales = rng.integers(0, 256, (n, K // 2), dtype=np.uint8), rng.uniform(0.01, 0.1, (K // 32, n))
        nibbles = np.stack([codes & 15, codes >> 4], axis=-1).reshape(n, K) - 8.0
        exact = nibbles * np.repeat(scales.T, 32, axis=1)
        held = b.constant(codes), b.constant(scales.astype(np.float32))
        out = b.call("hightide.linear_q4.default", x, *held, 32, None, None, "")
    else:
        data = random_blocks(kind, n, rng)
        exact = dequantised(kind, data)
        out = b.call("hightide.linear.default", x, weight_value(b, kind, data), None, None, "")
    route = possible(device, {GEMV.name: gemv, GEMM.name: gemm})
    session = GpuSession(b.graph(out), device, choices={**route, ACTIVATIONS.name: "int8"})
    for rows in (67, 9, 17, 1, 4):
        session.poison()
        given = rng.normal(size=(1, rows, K)).astype(np.float32)
        given[0, 0, :32] = 0
        expected = given @ exact.T
        (got,) = session.run([given])
        check_blank_parameters(session, [given])
        error = np.abs(got - expected).max() / np.abs(expected).max()
        if rows <= 4:  # as they are
            assert error <= 4e-6, rows
            continue
        assert 1e-5 < error < 0.015, f"{error} at {rows} rows"  # rounded, and no more than that
        rounded = rounded_to_codes(given.astype(np.float64)) @ exact.T
        assert np.abs(got - rounded).max() <= 4e-6 * np.abs(rounded).max(), rows


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q4_K"])
def test_a_gated_linear_with_activations_in_8_bits_is_right(kind: str, device: Device) -> None:
    rng = np.random.default_rng(7)
    half, b = 37, GraphBuilder()
    data = random_blocks(kind, 2 * half, rng)
    x, residual = b.input((1, 67, K)), b.input((1, 67, half))
    bias = rng.normal(size=2 * half).astype(np.float32)
    call = b.call("hightide.linear.default", x, weight_value(b, kind, data), b.constant(bias), residual, "silu")
    session = GpuSession(b.graph(call), device, choices={GEMM.name: "shared", ACTIVATIONS.name: "int8"})
    for rows in (67, 16, 32, 33):
        session.poison()
        given = [rng.normal(size=(1, rows, width)).astype(np.float32) for width in (K, half)]
        assert session.level(given)[1].steps[-1].dispatch.kernel.name.startswith(f"{kind.lower()}_int8")
        product = rounded_to_codes(given[0].astype(np.float64)) @ dequantised(kind, data).T + bias
        gate, up = np.split(product, 2, axis=-1)
        with np.errstate(over="ignore"):  # of exp, where silu is 0
            expected = gate / (1 + np.exp(-gate)) * up + given[1]
        (got,) = session.run(given)
        check_blank_parameters(session, given)
        assert np.abs(got - expected).max() <= 4e-6 * np.abs(expected).max(), rows


@pytest.mark.parametrize(
    ("traits", "gemv", "gemm"),
    [
        (Traits(software=True, subgroups=True, subgroup_size=8), "broadcast", "broadcast"),
        (Traits(software=True, subgroups=True, subgroup_size=4), "quads", "quads"),
        (Traits(software=True), "registers", "registers"),
        (Traits(subgroups=True, subgroup_size=32), "subgroups", "shared"),
        (Traits(), "split", "shared"),
    ],
)
def test_routes_follow_the_adapter(traits: Traits, gemv: str, gemm: str) -> None:
    assert (Choices(traits)(GEMV), Choices(traits)(GEMM)) == (gemv, gemm)
    forced = Choices(traits, {GEMV.name: "subgroups"})
    assert forced(GEMV) == ("subgroups" if traits.subgroup_size >= 8 else gemv)
    assert Choices(traits)(ACTIVATIONS) == "f32"


def test_routes_can_be_chosen_in_the_environment(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    b = GraphBuilder()
    weight, scales = np.zeros((8, 32), np.uint8), np.ones((2, 8), np.float32)
    x = b.input((8, 64))
    graph = b.graph(b.call("et_vk.linear_q4gsw.default", x, b.constant(weight), b.constant(scales), 32, None))

    def routes() -> list[str]:
        _, plan, _ = GpuSession(graph, device).level([np.ones((8, 64), np.float32)])
        return [step.dispatch.kernel.name for step in plan.steps]

    assert "activations_int8" not in routes()
    monkeypatch.setenv("HIGHTIDE_ROUTES", "linear.activations=int8, linear.gemm=shared")
    assert routes()[0] == "activations_int8"
    for wrong, message in (("linear.gem=split", "no choice of routes 'linear.gem'"), ("linear.gemv=x", "no route 'x'")):
        monkeypatch.setenv("HIGHTIDE_ROUTES", wrong)
        with pytest.raises(InputError, match=message):
            routes()
