"""Phi-1, Phi-1.5 and Phi-2: attention and feed-forward side by side after one norm; part of each head rotated."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, plain_feed_forward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    rope = rope_of(m, halves=True)

    x = m.embed()
    for n in range(m.count("block_count")):
        h = m.layer_norm(x, f"blk.{n}.attn_norm")
        x = m.add(m.add(x, attention(m, h, n, rope)), plain_feed_forward(m, h, n, "gelu_tanh"))
    return m.head(m.layer_norm(m.last(x), "output_norm"))
