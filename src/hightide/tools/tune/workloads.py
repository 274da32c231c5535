"""What routes are measured on: linears, attention and norms of language models, at common sizes.

A workload is a chain of several ops of one kind, each with its own weights, so that a run takes long enough to be timed
and weights do not stay in a cache. On a software adapter it is smaller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hightide.graph.blob import Blob
from hightide.graph.graph import Graph
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.builder import GraphBuilder
from hightide.traits import Traits

GROUP = 32


@dataclass(frozen=True)
class Workload:
    """`build` gives the graph and the inputs of a run on an adapter of such traits."""

    name: str
    build: Callable[[Traits], tuple[Graph, list[np.ndarray]]]


def workloads() -> list[Workload]:
    return [
        _linear("q4, 1 row", _q4, 1),
        _linear("q4, 8 rows", _q4, 8),
        _linear("q4, 128 rows", _q4, 128),
        _linear("Q4_0, 1 row", _blocks("Q4_0"), 1),
        _linear("Q4_0, 128 rows", _blocks("Q4_0"), 128),
        _linear("Q4_K, 1 row", _blocks("Q4_K"), 1),
        _linear("Q8_0, 1 row", _blocks("Q8_0"), 1),
        _linear("Q8_0, 128 rows", _blocks("Q8_0"), 128),
        _attention("decode after 512, depth 64", 1, 512, 32, 8, 64),
        _attention("decode after 4000, depth 64", 1, 4000, 32, 8, 64),
        _attention("decode after 4000, depth 128", 1, 4000, 32, 8, 128),
        _attention("prefill 128", 128, 0, 32, 8, 64),
        _attention("prefill 128 after 1024", 128, 1024, 32, 8, 64),
        _attention("prefill 512, depth 128", 512, 0, 32, 8, 128),
        _norm("1 row", 1),
        _norm("128 rows", 128),
    ]


AddLinear = Callable[[GraphBuilder, object, int, int, np.random.Generator], object]


def _linear(name: str, add: AddLinear, rows: int) -> Workload:
    """Up and down between the hidden and the inner size, as in a feed-forward layer."""

    def build(traits: Traits) -> tuple[Graph, list[np.ndarray]]:
        hidden, inner, layers = (1024, 2048, 1) if traits.software else (2048, 8192, 8)
        rng = np.random.default_rng(5)
        b = GraphBuilder()
        x: object = b.input((1, rows, hidden))
        for _ in range(layers):
            x = add(b, x, hidden, inner, rng)
            x = add(b, x, inner, hidden, rng)
        return b.graph(x), [rng.uniform(-1, 1, (1, rows, hidden)).astype(np.float32)]  # type: ignore[arg-type]

    return Workload(f"linear {name}", build)


def _q4(b: GraphBuilder, x: object, k: int, n: int, rng: np.random.Generator) -> object:
    weight = rng.integers(0, 256, (n, k // 2), dtype=np.uint8)
    scales = rng.uniform(0.001, 0.002, (k // GROUP, n)).astype(np.float32)
    return b.call("et_vk.linear_q4gsw.default", x, b.constant(weight), b.constant(scales), GROUP, None)


def _blocks(kind: str) -> AddLinear:
    def add(b: GraphBuilder, x: object, k: int, n: int, rng: np.random.Generator) -> object:
        block = BLOCK_TYPES[kind]
        data = bytes(n * k // block.elements * block.bytes)  # zeros: how long it takes does not depend on the values
        return b.call("aten.linear.default", x, b.stored((n, k), kind, Blob(data, 0, len(data))), None)

    return add


def _attention(name: str, rows: int, position: int, heads: int, kv_heads: int, depth: int) -> Workload:
    """Over a cache that ends where the attention does, several in a chain."""

    def build(traits: Traits) -> tuple[Graph, list[np.ndarray]]:
        # A quarter of the heads in the same proportion.
        few, kv_few, layers = (heads // 4, kv_heads // 4, 1) if traits.software else (heads, kv_heads, 8)
        rng = np.random.default_rng(6)
        b = GraphBuilder()
        q = b.input((1, rows, few, depth))
        k, v = (b.input((1, rows, kv_few, depth)) for _ in range(2))
        at = b.call("et_vk.select_as_symint.default", b.input((1,), "int32"), 0, -1)
        x = q
        for _ in range(layers):
            caches = [b.zeros((1, position + rows, kv_few, depth)) for _ in range(2)]
            x = b.call("sdpa_with_kv_cache.default", x, k, v, *caches, at, rows, None, 0.0, True, None)
        inputs = [rng.uniform(-1, 1, (1, rows, n, depth)).astype(np.float32) for n in (few, kv_few, kv_few)]
        return b.graph(x), [*inputs, np.array([position], np.int32)]

    return Workload(f"attention {name}", build)


def _norm(name: str, rows: int) -> Workload:
    """As many as the layers of a model have."""

    def build(traits: Traits) -> tuple[Graph, list[np.ndarray]]:
        width = 1024 if traits.software else 4096
        b = GraphBuilder()
        x = b.input((1, rows, width))
        y = x
        for _ in range(32):
            y = b.call("et_vk.rms_norm.default", y, b.constant(np.ones(width, np.float32)), 1e-5)
        return b.graph(y), [np.random.default_rng(7).uniform(-1, 1, (1, rows, width)).astype(np.float32)]

    return Workload(f"norm {name}", build)
