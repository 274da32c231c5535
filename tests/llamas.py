"""A small 4-bit Llama with random weights, and calls of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from llama_graph import llama_graph

from hightide.gpu.device import Device
from hightide.graph.graph import Graph
from hightide.runtime.gpu_session import GpuSession

MAX_TOKENS, CONTEXT, VOCAB = 24, 80, 96
INPUTS = {"dynamic": [True, False], "names": ["tokens", "input_pos"]}


def small_llama(max_tokens: int = MAX_TOKENS, context: int = CONTEXT, layers: int = 2) -> Graph:
    return llama_graph(64, layers, heads=4, kv_heads=2, hidden=96, vocab=VOCAB, max_tokens=max_tokens, context=context)


def llama_session(device: Device, graph: Graph | None = None, **options: Any) -> GpuSession:
    return GpuSession(graph or small_llama(), device, **INPUTS, **options)


def call(tokens: int, position: int, seed: int = 0) -> list[np.ndarray]:
    """Inputs of one step: `tokens` random ids at `position`; the same for the same arguments."""
    rng = np.random.default_rng([seed, tokens, abs(position)])
    return [rng.integers(0, VOCAB, (1, tokens)).astype(np.int32), np.array([position], np.int32)]
