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


def test_halves_that_are_read_and_written_are_rounded_alike(device: Device) -> None:
    """Values go to a cache of halves as they are: ties, numbers that are too large or too small, infinities."""
    if not (device.wide_loads and device.traits.f16):
        pytest.skip("this adapter reads as kernels say")
    depth, rows = 16, 64
    b = GraphBuilder()
    qkv, at = b.input((1, 1, 3 * depth)), b.input((1,), "int32")
    position = b.call("et_vk.select_as_symint.default", at, 0, 0)
    cos, sin = (b.constant(np.zeros((rows, depth), np.float32)) for _ in range(2))
    caches = [b.zeros((1, rows, 1, depth)) for _ in range(2)]
    sizes = (1, 1, depth, "halves", None, None, 0.0)
    out = b.call("hightide.rope_attend.default", qkv, cos, sin, *caches, *sizes, position, 1.0, 0, 0.0, None, True)
    session = GpuSession(b.graph(out), device, half_caches=True)
    rng = np.random.default_rng(9)
    halves = rng.integers(0, 1 << 16, (rows, depth), dtype=np.uint16).view(np.float16).astype(np.float32)
    with np.errstate(all="ignore"):
        given = np.where(np.isnan(halves), np.inf, halves) * rng.choice(
            [1, 1 + 2**-11, 1 - 2**-12, 2, 2**-9], (rows, depth)
        )
        expected = given.astype(np.float32).astype(np.float16)
    for row in range(rows):
        joined = np.concatenate([np.zeros(2 * depth, np.float32), given[row].astype(np.float32)])
        session.run([joined[None, None], np.array([row], np.int32)])
    values = session.read_state()[1]
    assert values.dtype == np.float16
    np.testing.assert_array_equal(values[0, :, 0].view(np.uint16), expected.view(np.uint16))


def test_only_vectors_that_are_read_change() -> None:
    text = "\n".join(
        (
            "@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;",
            "fn load_x(i: u32) -> vec4<f32> { return x[i]; }",
            "@group(0) @binding(3) var<storage, read> words: array<u32>;",
            "@group(0) @binding(4) var<storage, read> checked: array<vec4<u32>>;",
            "fn load_checked(i: u32) -> vec4<u32> { return checked[inside(i)]; }",
            "@group(0) @binding(5) var<storage, read_write> pairs: array<vec2<u32>>;",
            "fn load_pairs(i: u32) -> vec2<u32> { return pairs[i]; }",
            "@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;",
            "fn store_out(i: u32, value: vec4<f32>) { out[i] = value; }",
            "@group(0) @binding(7) var<storage, read_write> both: array<vec4<f32>>;",
            "fn load_both(i: u32) -> vec4<f32> { return both[i]; }",
            "fn store_both(i: u32, value: vec4<f32>) { both[i] = value; }",
        )
    )
    changed = wide_loads(text).splitlines()
    assert changed[0] == "@group(0) @binding(2) var<storage, read> x: array<vec2<u64>>;"
    assert changed[1].startswith("fn load_x(i: u32) -> vec4<f32> { let wide = x[i]; return bitcast<vec4<f32>>(")
    assert changed[2:-3] == text.splitlines()[2:-3]
    assert changed[-3].endswith("both: array<vec2<u64>>;") and "both[i] = vec2<u64>(u64(" in changed[-1]
