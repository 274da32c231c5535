"""Phi-3: q, k, v in one matrix, gate and up in another; rotary halves, long-context factors, a window."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    heads, kv_heads, depth = m.attention_dims()
    hidden = m.count("feed_forward_length")
    window = int(m.number("attention.sliding_window", 0))
    rope = rope_of(m, halves=True, depth=depth)

    x = m.embed()
    for n in range(m.count("block_count")):
        layer = f"blk.{n}"
        h = m.norm(x, f"{layer}.attn_norm")
        q, k, v = m.split(m.linear(h, f"{layer}.attn_qkv"), heads * depth, kv_heads * depth, kv_heads * depth)
        q, k = m.rotate(m.heads(q, heads, depth), m.heads(k, kv_heads, depth), rope)
        attended = m.attend(q, k, m.heads(v, kv_heads, depth), window=window)
        x = m.add(x, m.linear(attended, f"{layer}.attn_output"))
        h = m.norm(x, f"{layer}.ffn_norm")
        gate, up = m.split(m.linear(h, f"{layer}.ffn_up"), hidden, hidden)
        x = m.add(x, m.linear(m.gated(gate, up), f"{layer}.ffn_down"))
    return m.head(m.norm(m.last(x), "output_norm"))
