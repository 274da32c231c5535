"""Qwen2 and Qwen2.5: a Llama with rotary halves, and biases on q, k and v (taken wherever a file has them)."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.llama import decoder
from hightide.llm.models.model_builder import ModelBuilder


def build(m: ModelBuilder) -> TensorValue:
    return decoder(m, halves=True)
