"""Command R7B and Command A: as Command R, with a window in three of four layers; the others know no positions."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, feed_forward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of

PATTERN = 4


def build(m: ModelBuilder) -> TensorValue:
    rope = rope_of(m, halves=False)

    x = m.embed()
    for n, window in enumerate(m.windows(PATTERN)):
        h = m.layer_norm(x, f"blk.{n}.attn_norm")
        attended = attention(m, h, n, rope if window else None, window=window)
        x = m.add(m.add(x, attended), feed_forward(m, h, n))
    return m.head(m.layer_norm(m.last(x), "output_norm"), scale=m.number("logit_scale", 0) or 1.0)
