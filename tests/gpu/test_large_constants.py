"""Constants over the binding limit are uploaded in parts, whichever op reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hightide.errors import DeviceError
from hightide.gpu.device import Device
from hightide.graph.values import TensorValue
from hightide.ops.builder import GraphBuilder
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession

LIMIT = 16_384  # bytes: what the adapter is said to bind
WIDTH, ROWS = 64, 200
RANDOM = np.random.default_rng(0)


def floats(*dims: int) -> np.ndarray:
    return RANDOM.standard_normal(dims).astype(np.float32)


def octets(*dims: int) -> np.ndarray:
    return RANDOM.integers(0, 256, dims).astype(np.uint8)


def tokens(b: GraphBuilder) -> TensorValue:
    return b.input((1, 9), "int32")


def float_table(b: GraphBuilder) -> Any:
    return b.call("aten.embedding.default", b.constant(floats(ROWS, WIDTH)), tokens(b))


def half_table(b: GraphBuilder) -> Any:
    table = floats(2 * ROWS, WIDTH).astype(np.float16)
    return b.call("aten.embedding.default", b.constant(table), tokens(b))


def four_bit_table(b: GraphBuilder) -> Any:
    table, scales = b.constant(octets(3 * ROWS, WIDTH // 2)), b.constant(floats(3 * ROWS, WIDTH // 32))
    return b.call("et_vk.embedding_q4gsw.default", table, scales, 32, tokens(b), True)


def four_bit_table_with_zeros(b: GraphBuilder) -> Any:
    table, scales, zeros = octets(3 * ROWS, WIDTH // 2), floats(3 * ROWS, 2), floats(3 * ROWS, 2)
    given = [b.constant(array) for array in (table, scales, zeros)]
    return b.call("quantized_decomposed.embedding_4bit.default", *given, -8, 7, tokens(b))


def byte_table(b: GraphBuilder) -> Any:
    table, scales = b.constant(octets(2 * ROWS, WIDTH)), b.constant(floats(2 * ROWS))
    return b.call("quantized_decomposed.embedding_byte.default", table, scales, None, 0, 255, tokens(b))


def float_linear(b: GraphBuilder) -> Any:
    x = b.input((1, 3, WIDTH))
    return b.call("aten.linear.default", x, b.constant(floats(ROWS, WIDTH)), b.constant(floats(ROWS)))


def gated_linear(b: GraphBuilder) -> Any:
    x = b.input((1, 3, WIDTH))
    weight = b.constant(floats(ROWS, WIDTH))
    return b.call("hightide.linear.default", x, weight, None, None, "silu")


def four_bit_linear(b: GraphBuilder) -> Any:
    x, residual = b.input((1, 3, WIDTH)), b.input((1, 3, 3 * ROWS))
    weight, scales = b.constant(octets(3 * ROWS, WIDTH // 2)), b.constant(floats(2, 3 * ROWS))
    bias = b.constant(floats(3 * ROWS))
    return b.call("hightide.linear_q4.default", x, weight, scales, 32, bias, residual)


MADE = (
    float_table,
    half_table,
    four_bit_table,
    four_bit_table_with_zeros,
    byte_table,
    float_linear,
    gated_linear,
    four_bit_linear,
)


@pytest.mark.parametrize("make", MADE)
def test_a_large_constant_is_bound_in_parts(
    make: Callable[[GraphBuilder], Any], device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = GraphBuilder()
    graph = b.graph(make(b))
    given = [
        RANDOM.integers(0, 200, v.dims).astype(v.dtype) if v.dtype == "int32" else floats(*v.dims)
        for v in (graph.values[id] for id in graph.inputs)
        if isinstance(v, TensorValue)
    ]
    monkeypatch.setattr(device, "max_binding", LIMIT)
    monkeypatch.setattr(device, "check_size", lambda size, label: None)  # of parameters
    with GpuSession(graph, device) as session, CpuSession(graph) as reference:
        assert max(session.memory.plan.own.values()) <= LIMIT
        for array in (given, [g[:, :2] for g in given]):
            (got,), (expected,) = session.run(array), reference.run(array)
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_what_no_op_takes_in_parts_is_refused(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    b = GraphBuilder()
    graph = b.graph(b.call("aten.add.Tensor", b.input((ROWS, WIDTH)), b.constant(floats(ROWS, WIDTH)), 1))
    monkeypatch.setattr(device, "max_binding", LIMIT)
    with pytest.raises(DeviceError, match=f"needs {ROWS * WIDTH * 4} bytes; .* binds at most {LIMIT}"):
        GpuSession(graph, device)
