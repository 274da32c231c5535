"""Gemma 3: scaled embeddings, norms before and after each part, GELU, and five layers with a sliding
window and their own rotary base to each one that sees everything.

The file's norm weights already contain the + 1 of the original.
"""

from __future__ import annotations

import math

from hightide.graph.values import TensorValue
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of

LOCAL_THETA = 10_000.0
PATTERN = 6  # every sixth layer is global


def build(m: ModelBuilder) -> TensorValue:
    width = m.count("embedding_length")
    heads, kv_heads, depth = m.attention_dims()
    layers = m.count("block_count")
    # The 27B model (62 layers) scales by its width per head instead of the head dim.
    scale = 1 / math.sqrt(width / heads if layers == 62 else depth)
    window = int(m.number("attention.sliding_window", 0))
    pattern = m.count("attention.sliding_window_pattern", PATTERN)
    everywhere = nearby = rope_of(m, halves=True, depth=depth)
    if window:  # a scaling of the angles is for the global layers alone
        local_theta = m.number("rope.freq_base_swa", LOCAL_THETA, least=2)
        nearby = m.rope(halves=True, theta=local_theta, rotary=depth)

    x = m.scale(m.embed(), math.sqrt(width))
    for n in range(layers):
        layer, is_global = f"blk.{n}", not window or (n + 1) % pattern == 0
        h = m.norm(x, f"{layer}.attn_norm")
        q = m.norm(m.heads(m.linear(h, f"{layer}.attn_q"), heads, depth), f"{layer}.attn_q_norm")
        k = m.norm(m.heads(m.linear(h, f"{layer}.attn_k"), kv_heads, depth), f"{layer}.attn_k_norm")
        v = m.heads(m.linear(h, f"{layer}.attn_v"), kv_heads, depth)
        q, k = m.rotate(q, k, everywhere if is_global else nearby)
        attended = m.attend(q, k, v, scale=scale, window=0 if is_global else window)
        h = m.linear(attended, f"{layer}.attn_output")
        x = m.add(x, m.norm(h, f"{layer}.post_attention_norm"))
        h = m.norm(x, f"{layer}.ffn_norm")
        h = m.gated(m.linear(h, f"{layer}.ffn_gate"), m.linear(h, f"{layer}.ffn_up"), "gelu")
        x = m.add(x, m.norm(m.linear(h, f"{layer}.ffn_down"), f"{layer}.post_ffw_norm"))
    return m.head(m.norm(m.last(x), "output_norm"), m.number("final_logit_softcapping", 0))
