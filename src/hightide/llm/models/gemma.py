"""Gemma: a Llama with scaled embeddings and GELU.

The file's norm weights already contain the + 1 of the original.
"""

from __future__ import annotations

import math

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, feed_forward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    rope = rope_of(m, halves=True)

    x = m.scale(m.embed(), math.sqrt(m.count("embedding_length")))
    for n in range(m.count("block_count")):
        x = m.add(x, attention(m, m.norm(x, f"blk.{n}.attn_norm"), n, rope))
        x = m.add(x, feed_forward(m, m.norm(x, f"blk.{n}.ffn_norm"), n, "gelu_tanh"))
    return m.head(m.norm(m.last(x), "output_norm"))
