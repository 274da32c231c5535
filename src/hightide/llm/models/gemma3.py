"""Gemma 3: scaled embeddings, norms before and after each part, GELU, and five layers with a sliding
window and their own rotary base to each one that sees everything.

The file's norm weights already contain the + 1 of the original.
"""

from __future__ import annotations

import math

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, normed_feed_forward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of

LOCAL_THETA = 10_000.0
PATTERN = 6  # every sixth layer is global
LAYERS_27B = 62  # the 27B model scales by its width per head instead of the head dim


def build(m: ModelBuilder) -> TensorValue:
    width, (heads, _, depth) = m.count("embedding_length"), m.attention_dims()
    scale = 1 / math.sqrt(width / heads if m.count("block_count") == LAYERS_27B else depth)
    windows = m.windows(PATTERN)
    everywhere = nearby = rope_of(m, halves=True)
    if any(windows):  # a scaling of the angles is for the global layers alone
        local_theta = m.number("rope.freq_base_swa", LOCAL_THETA, least=2)
        nearby = m.rope(halves=True, theta=local_theta, rotary=depth)

    x = m.scale(m.embed(), math.sqrt(width))
    for n, window in enumerate(windows):
        h = m.norm(x, f"blk.{n}.attn_norm")
        h = attention(m, h, n, nearby if window else everywhere, head_norm=m.norm, scale=scale, window=window)
        x = m.add(x, m.norm(h, f"blk.{n}.post_attention_norm"))
        x = m.add(x, normed_feed_forward(m, x, n, "gelu_tanh"))
    return m.head(m.norm(m.last(x), "output_norm"), m.number("final_logit_softcapping", 0))
