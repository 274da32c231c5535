"""Mistral Small 3.1 and Ministral 3: a Llama whose queries grow with the position."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.llama import decoder
from hightide.llm.models.model_builder import ModelBuilder


def build(m: ModelBuilder) -> TensorValue:
    return decoder(m, halves=False)
