"""OLMo 2 and OLMo 3: norms after each part instead of before, and over all heads of q and of k at once.

OLMo 3 has a window in three of four layers; a scaling of the angles is for the others alone.
"""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, feed_forward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of

PATTERN = 4


def build(m: ModelBuilder) -> TensorValue:
    _, _, depth = m.attention_dims()
    everywhere = rope_of(m, halves=True)
    theta = m.number("rope.freq_base_swa", m.number("rope.freq_base", 10_000.0), least=2)
    nearby = m.rope(halves=True, theta=theta, rotary=depth)

    def norm_of_all_heads(x: TensorValue, name: str) -> TensorValue:
        return m.heads(m.norm(m.joined(x), name), *x.dims[2:])

    x = m.embed()
    for n, window in enumerate(m.windows(PATTERN)):
        rope = nearby if window else everywhere
        h = attention(m, x, n, rope, head_norm=norm_of_all_heads, window=window)
        x = m.add(x, m.norm(h, f"blk.{n}.post_attention_norm"))
        x = m.add(x, m.norm(feed_forward(m, x, n), f"blk.{n}.post_ffw_norm"))
    return m.head(m.norm(m.last(x), "output_norm"))
