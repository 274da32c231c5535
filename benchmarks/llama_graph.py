"""A 4-bit Llama of any size with random weights, as the exporter lays it out; for benchmarks and tests."""

from __future__ import annotations

import numpy as np

from hightide.graph.graph import Graph
from hightide.graph.values import TensorValue
from hightide.ops.builder import GraphBuilder


def llama_graph(
    dim: int = 256,
    layers: int = 16,
    heads: int = 4,
    kv_heads: int = 2,
    hidden: int = 704,
    vocab: int = 1024,
    max_tokens: int = 128,
    context: int = 256,
    group: int = 32,
    seed: int = 0,
) -> Graph:
    """forward(tokens [1, S], input_pos [1]) -> logits [1, vocab], with S up to `max_tokens`."""
    rng = np.random.default_rng(seed)
    b = GraphBuilder()
    depth = dim // heads

    def weight(rows: int, columns: int) -> tuple[TensorValue, TensorValue]:
        packed = rng.integers(0, 256, (rows, columns // 2), dtype=np.uint8)
        scales = rng.uniform(0.5, 1.5, (columns // group, rows)).astype(np.float32) / np.sqrt(columns * 20)
        return b.constant(packed), b.constant(scales.astype(np.float32))

    def linear(x: TensorValue, rows: int, columns: int) -> TensorValue:
        return b.call("et_vk.linear_q4gsw.default", x, *weight(rows, columns), group, None)

    def norm(x: TensorValue) -> TensorValue:
        scale = b.constant(rng.uniform(0.5, 1.5, dim).astype(np.float32))
        return b.call("et_vk.rms_norm.default", x, scale, 1e-5)

    angles = np.outer(np.arange(context), 1 / 10000 ** (np.arange(0, depth, 2) / depth))
    cos, sin = b.constant(np.cos(angles).astype(np.float32)), b.constant(np.sin(angles).astype(np.float32))
    tokens, input_pos = b.input((1, max_tokens), "int32"), b.input((1,), "int32")
    length = b.call("sym_size.int", tokens, 1)
    position = b.call("et_vk.select_as_symint.default", input_pos, 0, -1)
    end = b.call("add", position, length)
    cos = b.call("aten.slice_copy.Tensor", cos, 0, position, end, 1, dims=[(max_tokens, depth // 2)])
    sin = b.call("aten.slice_copy.Tensor", sin, 0, position, end, 1, dims=[(max_tokens, depth // 2)])
    table = b.constant(rng.integers(0, 256, (vocab, dim // 2), dtype=np.uint8))
    table_scales = b.constant(rng.uniform(0.05, 0.15, (vocab, dim // group)).astype(np.float32))
    x = b.call("et_vk.embedding_q4gsw.default", table, table_scales, group, tokens, True)
    for _ in range(layers):
        h = norm(x)
        q = b.call("aten.view_copy.default", linear(h, heads * depth, dim), [1, length, heads, depth])
        k = b.call("aten.view_copy.default", linear(h, kv_heads * depth, dim), [1, length, kv_heads, depth])
        v = b.call("aten.view_copy.default", linear(h, kv_heads * depth, dim), [1, length, kv_heads, depth])
        q, k = b.call("et_vk.apply_rotary_emb.default", q, k, cos, sin)
        k_cache = b.constant(np.zeros((1, context, kv_heads, depth), np.float32))
        v_cache = b.constant(np.zeros((1, context, kv_heads, depth), np.float32))
        attended = b.call("sdpa_with_kv_cache.default", q, k, v, k_cache, v_cache, position, 1, None, 0.0, True, None)
        attended = b.call("aten.view_copy.default", attended, [1, length, heads * depth])
        x = b.call("aten.add.Tensor", x, linear(attended, dim, heads * depth), 1)
        h = norm(x)
        gate = linear(h, hidden, dim)
        gate = b.call("aten.mul.Tensor", gate, b.call("aten.sigmoid.default", gate))
        x = b.call(
            "aten.add.Tensor", x, linear(b.call("aten.mul.Tensor", gate, linear(h, hidden, dim)), dim, hidden), 1
        )
    last = b.call("aten.select_copy.int", norm(x), 1, -1)
    return b.graph(linear(last, vocab, dim))
