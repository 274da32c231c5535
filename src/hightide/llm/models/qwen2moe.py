"""Qwen2 and Qwen1.5 as mixtures of experts: shares are the softmax of all scores, and one expert is every token's."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.llama import decoder
from hightide.llm.models.mixtures import mixture, shared_expert
from hightide.llm.models.model_builder import ModelBuilder


def build(m: ModelBuilder) -> TensorValue:
    return decoder(m, halves=True, second=_feed_forward)


def _feed_forward(m: ModelBuilder, h: TensorValue, n: int) -> TensorValue:
    return m.add(mixture(m, h, n, normalized=False), shared_expert(m, h, n))
