"""LFM2 as a mixture of experts: short convolutions in most layers, and shares that are sigmoids and add up to 1."""

from __future__ import annotations

from hightide.errors import UnsupportedError
from hightide.graph.values import TensorValue
from hightide.llm.models.lfm2 import decoder
from hightide.llm.models.mixtures import mixture
from hightide.llm.models.model_builder import ModelBuilder

SIGMOID = 2  # expert_gating_func


def build(m: ModelBuilder) -> TensorValue:
    if (scoring := m.count("expert_gating_func")) != SIGMOID:
        raise UnsupportedError(f"{m.file.path} scores its experts by function {scoring}; only {SIGMOID} is supported")
    return decoder(m, _experts)


def _experts(m: ModelBuilder, h: TensorValue, n: int) -> TensorValue:
    return mixture(m, h, n, scoring="sigmoid", scale=m.number("expert_weights_scale", 0) or 1.0)
