"""Gemma 2: norms before and after each part, soft caps on scores and logits, a window in every other layer.

The file's norm weights already contain the + 1 of the original.
"""

from __future__ import annotations

import math

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, normed_feed_forward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of

WINDOW = 4096  # of files that say nothing
LAYERS_27B = 46  # the 27B model scales by its width per head instead of the head dim


def build(m: ModelBuilder) -> TensorValue:
    width, (heads, _, depth) = m.count("embedding_length"), m.attention_dims()
    scale = 1 / math.sqrt(width / heads if m.count("block_count") == LAYERS_27B else depth)
    softcap = m.number("attn_logit_softcapping", 0)
    rope = rope_of(m, halves=True)

    x = m.scale(m.embed(), math.sqrt(width))
    for n, window in enumerate(m.windows(pattern=2, window=WINDOW)):
        h = m.norm(x, f"blk.{n}.attn_norm")
        h = attention(m, h, n, rope, scale=scale, window=window, softcap=softcap)
        x = m.add(x, m.norm(h, f"blk.{n}.post_attention_norm"))
        x = m.add(x, normed_feed_forward(m, x, n, "gelu_tanh"))
    return m.head(m.norm(m.last(x), "output_norm"), m.number("final_logit_softcapping", 0))
