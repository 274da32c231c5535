"""Qwen3 as a mixture of experts: the shares of a token's experts add up to 1."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.llama import decoder
from hightide.llm.models.mixtures import mixture
from hightide.llm.models.model_builder import ModelBuilder


def build(m: ModelBuilder) -> TensorValue:
    return decoder(m, halves=True, head_norms=True, second=mixture)
