"""Qwen3: norms on the heads of q and k before the rotation, a head dim of its own, no biases."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    heads, kv_heads, depth = m.attention_dims()
    rope = rope_of(m, halves=True, depth=depth)

    x = m.embed()
    for n in range(m.count("block_count")):
        layer = f"blk.{n}"
        h = m.norm(x, f"{layer}.attn_norm")
        q = m.norm(m.heads(m.linear(h, f"{layer}.attn_q"), heads, depth), f"{layer}.attn_q_norm")
        k = m.norm(m.heads(m.linear(h, f"{layer}.attn_k"), kv_heads, depth), f"{layer}.attn_k_norm")
        v = m.heads(m.linear(h, f"{layer}.attn_v"), kv_heads, depth)
        q, k = m.rotate(q, k, rope)
        x = m.add(x, m.linear(m.attend(q, k, v), f"{layer}.attn_output"))
        h = m.norm(x, f"{layer}.ffn_norm")
        h = m.gated(m.linear(h, f"{layer}.ffn_gate"), m.linear(h, f"{layer}.ffn_up"))
        x = m.add(x, m.linear(h, f"{layer}.ffn_down"))
    return m.head(m.norm(m.last(x), "output_norm"))
