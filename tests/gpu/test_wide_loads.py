"""Kernels that read 64 bits at a time: the same bits as those that read number by number."""

from __future__ import annotations

import numpy as np
import pytest

from hightide.gpu.device import Device
from hightide.gpu.wide_loads import wide_loads
from hightide.graph.blob import Blob
from hightide.graph.graph import Graph
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.builder import GraphBuilder
from hightide.runtime.gpu_session import GpuSession

K, N, M = 256, 40, 35


def linear(kind: str) -> Graph:
    b = GraphBuilder()
    rng = np.random.default_rng(7)
    x = b.input((M, K))
    if kind == "F32":
        weight = b.constant(rng.standard_normal((N, K), np.float32))
    else:
        block = BLOCK_TYPES[kind]
        data = rng.integers(0, 60, N * K // block.elements * block.bytes, np.uint8).tobytes()
        weight = b.stored((N, K), kind, Blob(data, 0, len(data)))
    return b.graph(b.call("aten.linear.default", x, weight))


@pytest.mark.parametrize("kind", ["F32", "Q4_0", "Q4_1", "Q5_1", "Q8_0", "Q4_K", "Q6_K"])
def test_products_have_the_same_bits(device: Device, kind: str) -> None:
    wide, plain = device, Device(device.adapter)
    if not wide.wide_loads:
        pytest.skip("this adapter reads as kernels say")
    plain.wide_loads = False
    sessions = [GpuSession(linear(kind), one) for one in (wide, plain)]
    rng = np.random.default_rng(8)
    for rows in (M, 1, 7, 16):
        x = rng.standard_normal((rows, K)).astype(np.float32)
        first, second = (session.collect(session.launch([x]))[0] for session in sessions)
        np.testing.assert_array_equal(first, second)


def test_halves_are_widened_alike(device: Device) -> None:
    """Every half there is, NaN and infinities included."""
    if not (device.wide_loads and device.traits.f16):
        pytest.skip("this adapter reads as kernels say")
    b = GraphBuilder()
    x = b.input((256, 256), "float16")
    session = GpuSession(b.graph(b.call("aten.abs.default", x)), device)
    given = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(256, 256)
    (found,) = session.collect(session.launch([given]))
    np.testing.assert_array_equal(found, np.abs(given))


def test_only_vectors_that_are_read_change() -> None:
    text = "\n".join(
        (
            "@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;",
            "fn load_x(i: u32) -> vec4<f32> { return x[i]; }",
            "@group(0) @binding(3) var<storage, read> words: array<u32>;",
            "@group(0) @binding(4) var<storage, read> checked: array<vec4<u32>>;",
            "fn load_checked(i: u32) -> vec4<u32> { return checked[inside(i)]; }",
            "@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;",
            "fn load_out(i: u32) -> vec4<f32> { return out[i]; }",
            "fn store_out(i: u32, value: vec4<f32>) { out[i] = value; }",
        )
    )
    changed = wide_loads(text).splitlines()
    assert changed[0] == "@group(0) @binding(2) var<storage, read> x: array<vec2<u64>>;"
    assert changed[1].startswith("fn load_x(i: u32) -> vec4<f32> { let wide = x[i]; return bitcast<vec4<f32>>(")
    assert changed[2:] == text.splitlines()[2:]
