"""Llama and what follows it: Llama 2 and 3, SmolLM2, Mistral, TinyLlama."""

from __future__ import annotations

from hightide.errors import UnsupportedError
from hightide.graph.values import TensorValue
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    if m.number("expert_count", 0):
        raise UnsupportedError(f"{m.file.path} is a mixture of experts; only dense models are supported")
    return decoder(m, halves=False)


def decoder(m: ModelBuilder, *, halves: bool, head_norms: bool = False) -> TensorValue:
    """Logits of the kept tokens; `halves` says how the rotary embedding pairs elements, `head_norms` that each head of
    q and k is normed before it."""
    heads, kv_heads, depth = m.attention_dims()
    rope = rope_of(m, halves=halves, depth=depth)
    window = int(m.number("attention.sliding_window", 0))  # of Mistral 7B v0.1

    x = m.embed()
    for n in range(m.count("block_count")):
        layer = f"blk.{n}"
        h = m.norm(x, f"{layer}.attn_norm")
        q = m.heads(m.linear(h, f"{layer}.attn_q"), heads, depth)
        k = m.heads(m.linear(h, f"{layer}.attn_k"), kv_heads, depth)
        v = m.heads(m.linear(h, f"{layer}.attn_v"), kv_heads, depth)
        if head_norms:
            q, k = m.norm(q, f"{layer}.attn_q_norm"), m.norm(k, f"{layer}.attn_k_norm")
        q, k = m.rotate(q, k, rope)
        x = m.add(x, m.linear(m.attend(q, k, v, window=window), f"{layer}.attn_output"))
        h = m.norm(x, f"{layer}.ffn_norm")
        h = m.gated(m.linear(h, f"{layer}.ffn_gate"), m.linear(h, f"{layer}.ffn_up"))
        x = m.add(x, m.linear(h, f"{layer}.ffn_down"))
    return m.head(m.norm(m.last(x), "output_norm"))
