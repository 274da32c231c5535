"""Falcon 7B, 11B and 40B: attention and feed-forward side by side; the 40B model norms x for each by itself."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, plain_feed_forward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    rope = rope_of(m, halves=True)

    x = m.embed()
    for n in range(m.count("block_count")):
        h = own = m.layer_norm(x, f"blk.{n}.attn_norm")
        if m.has_in_layers("attn_norm_2.weight"):
            own = m.layer_norm(x, f"blk.{n}.attn_norm_2")
        x = m.add(m.add(x, attention(m, own, n, rope)), plain_feed_forward(m, h, n, "gelu"))
    return m.head(m.layer_norm(m.last(x), "output_norm"))
