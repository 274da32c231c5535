"""Granite: a Llama with multipliers of the embedding, the scores, what layers add and the logits."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, feed_forward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    scale = m.number("attention.scale", 0) or None
    residual = m.number("residual_scale", 0) or 1.0
    rope = rope_of(m, halves=False) if m.flag("rope.scaling.finetuned", True) else None

    x = m.scale(m.embed(), m.number("embedding_scale", 0) or 1.0)
    for n in range(m.count("block_count")):
        h = attention(m, m.norm(x, f"blk.{n}.attn_norm"), n, rope, scale=scale)
        x = m.add(x, m.scale(h, residual))
        h = feed_forward(m, m.norm(x, f"blk.{n}.ffn_norm"), n)
        x = m.add(x, m.scale(h, residual))
    return m.head(m.norm(m.last(x), "output_norm"), scale=1 / m.number("logit_scale", least=1e-9))
