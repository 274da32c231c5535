"""Scales, zero points and codes have the bits that float32 arithmetic gives, however the adapter divides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from planted import change_kernels

from hightide.gpu.device import Device
from hightide.graph.graph import Graph
from hightide.ops.builder import GraphBuilder
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession

ESTIMATE = "f32(above) / f32(below)"
COARSE = "f32(above) * (1.0 / f32(below)) * 1.0000004"  # four units in the last place off: more than WGSL allows
WIDTH = 64
SIZES = [1 << 10, pytest.param(1 << 14, marks=pytest.mark.slow)]  # rows: with 64 elements each, a million


@pytest.fixture(params=["the adapter's division", "a coarse one"])
def divider(request: pytest.FixtureRequest, device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    if request.param == "a coarse one":
        change_kernels(monkeypatch, lambda text: text.replace(ESTIMATE, COARSE))
        return Device(device.adapter)
    return device


def rows(count: int) -> np.ndarray:
    """Rows of all magnitudes: of zeros, of one sign, of one value, of multiples of their scale."""
    rng = np.random.default_rng(count)
    x = rng.normal(size=(count, WIDTH)) * np.exp2(rng.uniform(-100, 100, (count, 1)))
    x[0::16] = np.abs(x[0::16])
    x[1::16] = -np.abs(x[1::16])
    x[2::64] = 0
    x[3::64] = x[3::64, :1]
    steps = rng.integers(-127, 128, (len(x[4::16]), WIDTH)) + rng.choice([0, 0.5], (len(x[4::16]), WIDTH))
    x[4::16] = steps * np.exp2(rng.integers(-30, 30, (len(steps), 1)))  # ties
    x[4::16, 0], x[4::16, 1] = -128 * (ends := np.exp2(rng.integers(-30, 30, len(steps)))), 127 * ends
    return x.astype(np.float32)


def assert_same_bits(graph: Graph, device: Device, *inputs: np.ndarray) -> None:
    wanted = CpuSession(graph).run(inputs)
    with GpuSession(graph, device) as session:
        for got, want in zip(session.run(inputs), wanted, strict=True):
            different = np.flatnonzero(got.reshape(-1) != want.reshape(-1))
            assert not different.size, (different[:5], got.reshape(-1)[different[:5]], want.reshape(-1)[different[:5]])


@pytest.mark.parametrize("count", [1 << 16, pytest.param(1 << 21, marks=pytest.mark.slow)])
def test_every_quotient_is_the_nearest_float(count: int, divider: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """choose_qparams.wgsl with another use of its function: the quotient of the two elements of a row."""
    planned = "max(quotient(high - low, params.q_max - params.q_min), params.eps)"
    pair = "quotient(load_x((first + r) * params.width), load_x((first + r) * params.width + 1u))"
    found: list[bool] = []

    def change(text: str) -> str:
        found.append(planned in text)
        return text.replace(planned, pair)

    change_kernels(monkeypatch, change)
    rng = np.random.default_rng(count)
    bits = rng.integers(0, 1 << 23, (count, 2)) | (rng.integers(64, 191, (count, 2)) << 23)
    bits[::4, 1] = bits[::4, 0] + rng.integers(-3, 4, count // 4)  # quotients next to powers of two
    bits[1::4, 1] &= ~0x7FFFF  # short divisors
    x = (bits | rng.integers(0, 2, (count, 2)) << 31).astype(np.uint32).view(np.float32)
    with GpuSession(qparams(count, 2), Device(divider.adapter)) as session:
        got = session.run([x])[0]
    assert any(found), "the kernel's text has changed: use it anew"
    assert np.array_equal(got, x[:, 0] / x[:, 1])


def qparams(count: int, width: int = WIDTH) -> Graph:
    b = GraphBuilder()
    x = b.input((count, width))
    options: list[Any] = ["ASYMMETRIC", [1, width], None, -128, 127, 1e-30, None, None, False]
    return b.graph(*b.call("torchao.choose_qparams_affine.default", x, *options, dtype=("float32", "int8")))


def rows_of_a_linear(count: int) -> Graph:
    """Activations as their codes see them: a linear with the identity for its weight."""
    b = GraphBuilder()
    x = b.input((count, WIDTH))
    options: list[Any] = ["ASYMMETRIC", [1, WIDTH], None, -128, 127, 1e-30, None, None, False]
    scale, zero = b.call("torchao.choose_qparams_affine.default", x, *options, dtype=("float32", "int8"))
    codes = np.eye(WIDTH, dtype=np.uint8) + 8
    weight = b.constant(codes[:, ::2] | codes[:, 1::2] << 4)
    sums, scales = (b.constant(np.ones((8, WIDTH), dtype)) for dtype in (np.int32, np.float32))
    return b.graph(b.call("et_vk.linear_dq8ca_q4gsw.default", x, scale, zero, weight, sums, scales, 8, None))


def per_token(count: int) -> Graph:
    b = GraphBuilder()
    x = b.input((count, WIDTH))
    name = "quantized_decomposed.choose_qparams_per_token_asymmetric.default"
    scale, zero = b.call(name, x, None, dtype=("float32", "int64"))
    name = "quantized_decomposed.quantize_per_token.default"
    return b.graph(scale, zero, b.call(name, x, scale, zero, -128, 127, None, dtype="int8"))


def per_tensor(count: int) -> Graph:
    b = GraphBuilder()
    x = b.input((count, WIDTH))
    name = "quantized_decomposed.choose_qparams.tensor"
    return b.graph(*b.call(name, x, -128, 127, 1e-30, None, dtype=("float32", "int64")))


def per_channel(count: int) -> Graph:
    b = GraphBuilder()
    x = b.input((count, WIDTH))
    scales = b.constant(np.exp2(np.random.default_rng(2).uniform(-20, 20, WIDTH)).astype(np.float32))
    zeros = b.constant(np.zeros(WIDTH, np.int32))
    name = "quantized_decomposed.quantize_per_channel.default"
    return b.graph(b.call(name, x, scales, zeros, 1, -128, 127, None, dtype="int8"))


def weights_to_codes(count: int) -> Graph:
    b = GraphBuilder()
    x, scales = b.input((count, WIDTH)), b.input((2, count))
    return b.graph(b.call("et_vk.q4gsw_requant.default", x, scales, 32, dtype="uint8"))


@pytest.mark.parametrize("make", [qparams, rows_of_a_linear, per_token, per_tensor, per_channel, weights_to_codes])
@pytest.mark.parametrize("count", SIZES)
def test_codes_and_scales_are_those_of_float32(count: int, divider: Device, make: Callable[[int], Graph]) -> None:
    x = rows(count)
    if make is weights_to_codes:
        scales = np.abs(np.stack([x[:, :32].max(axis=1), x[:, 32:].min(axis=1)])) / np.float32(7)
        assert_same_bits(make(count), divider, x, scales)
    else:
        assert_same_bits(make(count), divider, x)
