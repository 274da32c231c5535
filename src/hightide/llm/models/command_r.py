"""Command R, R+ and Aya 23: attention and feed-forward side by side after one norm, scaled logits.

R+ norms each head of q and k.
"""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, feed_forward, layer_norm_of_heads
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    rope = rope_of(m, halves=False)

    x = m.embed()
    for n in range(m.count("block_count")):
        h = m.layer_norm(x, f"blk.{n}.attn_norm")
        x = m.add(m.add(x, attention(m, h, n, rope, head_norm=layer_norm_of_heads(m))), feed_forward(m, h, n))
    return m.head(m.layer_norm(m.last(x), "output_norm"), scale=m.number("logit_scale", 0) or 1.0)
