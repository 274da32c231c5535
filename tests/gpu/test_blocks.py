"""Weights in GGUF blocks: every type against its dequantised float64 product, at live row counts."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from op_runner import check_blank_parameters

from hightide.gpu.device import Device
from hightide.graph.blob import Blob
from hightide.graph.values import TensorValue
from hightide.ops.blocks.layout import BLOCK_TYPES, table_of
from hightide.ops.builder import GraphBuilder
from hightide.ops.case import Blocks
from hightide.runtime.gpu_session import GpuSession

K, MAX_ROWS = 512, 21


def random_blocks(kind: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Bytes of `rows` rows."""
    return np.frombuffer(Blocks(kind, (rows, K)).make(rng), np.uint8).reshape(rows, -1)


def weight_value(b: GraphBuilder, kind: str, data: np.ndarray) -> TensorValue:
    raw = data.tobytes()
    return b.stored((len(data), K), kind, Blob(raw, 0, len(raw)))


def dequantised(kind: str, data: np.ndarray) -> np.ndarray:
    return quants.dequantize(data, GGMLQuantizationType[kind]).astype(np.float64)


@pytest.mark.parametrize("kind", list(BLOCK_TYPES))
@pytest.mark.parametrize("parts", [1, 3])
def test_a_linear_over_blocks_is_the_product_with_the_dequantised_weight(kind: str, parts: int, device: Device) -> None:
    rng = np.random.default_rng(3)
    n = 27
    data = random_blocks(kind, n, rng)
    exact = dequantised(kind, data)
    bias = rng.normal(size=n).astype(np.float32)
    b = GraphBuilder()
    x = b.input((1, MAX_ROWS, K))
    pieces = [weight_value(b, kind, piece) for piece in np.array_split(data, parts)]
    graph = b.graph(b.call("aten.linear.default", x, pieces if parts > 1 else pieces[0], b.constant(bias)))
    session = GpuSession(graph, device)
    for rows in (MAX_ROWS, 1, 2, 7):
        session.poison()
        value = rng.normal(size=(1, rows, K)).astype(np.float32)
        expected = value @ exact.T + bias
        (got,) = session.run([value])
        check_blank_parameters(session, [value])
        assert np.abs(got - expected).max() <= 2e-6 * np.abs(expected).max()


@pytest.mark.parametrize("kind", list(BLOCK_TYPES))
@pytest.mark.parametrize("parts", [1, 2])
def test_rows_of_a_table_in_blocks_are_exact(kind: str, parts: int, device: Device) -> None:
    rng = np.random.default_rng(4)
    data = random_blocks(kind, 19, rng)
    b = GraphBuilder()
    ids = b.input((1, MAX_ROWS), "int32")
    pieces = [weight_value(b, kind, piece) for piece in np.array_split(data, parts)]
    graph = b.graph(b.call("aten.embedding.default", pieces if parts > 1 else pieces[0], ids))
    session = GpuSession(graph, device)
    for count in (MAX_ROWS, 1, 5):
        session.poison()
        picked = rng.integers(0, 19, (1, count)).astype(np.int32)
        (got,) = session.run([picked])
        check_blank_parameters(session, [picked])
        np.testing.assert_allclose(got, dequantised(kind, data)[picked], rtol=3e-7, atol=1e-9)


def test_blocks_take_no_more_memory_than_in_the_file(device: Device) -> None:
    for kind, block in BLOCK_TYPES.items():
        size = block.offsets((64, K))[-1] - len(table_of(kind))
        assert size == 64 * K // block.elements * block.bytes, kind
