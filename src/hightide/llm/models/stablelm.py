"""StableLM: layer norms, part of each head rotated; the 12B model has both parts side by side and norms heads."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, feed_forward, layer_norm_of_heads
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    rope = rope_of(m, halves=True)

    x = m.embed()
    for n in range(m.count("block_count")):
        h = m.layer_norm(x, f"blk.{n}.attn_norm")
        x = m.add(x, attention(m, h, n, rope, head_norm=layer_norm_of_heads(m)))
        h = m.layer_norm(x, f"blk.{n}.ffn_norm") if m.has_in_layers("ffn_norm.weight") else h
        x = m.add(x, feed_forward(m, h, n))
    return m.head(m.layer_norm(m.last(x), "output_norm"))
