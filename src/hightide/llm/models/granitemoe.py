"""Granite as a mixture of experts: a Llama whose embeddings, scores, residuals and logits are scaled.

There may be a shared expert.
"""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention
from hightide.llm.models.mixtures import mixture, shared_expert
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    rope, scale = rope_of(m, halves=False), m.number("attention.scale", 0) or None
    residual = m.number("residual_scale", 1.0)

    x = m.scale(m.embed(), m.number("embedding_scale", 1.0))
    for n in range(m.count("block_count")):
        attended = attention(m, m.norm(x, f"blk.{n}.attn_norm"), n, rope, scale=scale)
        x = m.add(x, m.scale(attended, residual))
        h = m.norm(x, f"blk.{n}.ffn_norm")
        made = mixture(m, h, n)
        if m.has(f"blk.{n}.ffn_gate_shexp.weight"):
            made = m.add(made, shared_expert(m, h, n))
        x = m.add(x, m.scale(made, residual))
    return m.head(m.norm(m.last(x), "output_norm"), scale=1 / m.number("logit_scale", 1.0, least=1e-6))
