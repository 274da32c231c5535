"""Qwen3: norms on the heads of q and k before the rotation, a head dim of its own, no biases."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.llama import decoder
from hightide.llm.models.model_builder import ModelBuilder


def build(m: ModelBuilder) -> TensorValue:
    return decoder(m, halves=True, head_norms=True)
