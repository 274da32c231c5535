"""The two halves of a decoder's layer, as most architectures have them: attention and feed-forward.

Both take the normed x [1, S, width] and give what is added to it.
"""

from __future__ import annotations

from collections.abc import Callable

from hightide.graph.values import TensorValue
from hightide.llm.models.model_builder import ModelBuilder, Rope


def attention(
    m: ModelBuilder,
    h: TensorValue,
    n: int,
    rope: Rope | None = None,
    *,
    head_norm: Callable[[TensorValue, str], TensorValue] | None = None,
    temperature: TensorValue | None = None,
    scale: float | None = None,
    window: int = 0,
    softcap: float = 0.0,
) -> TensorValue:
    """Of layer `n`. Queries and keys go through `head_norm`, then `rope`; queries are multiplied by `temperature`."""
    layer, (heads, kv_heads, depth) = f"blk.{n}", m.attention_dims(n)
    if m.has_in_layers("attn_qkv.weight"):
        rows = (heads * depth, kv_heads * depth, kv_heads * depth)
        q, k, v = m.split(m.linear(h, f"{layer}.attn_qkv"), *rows)
    else:
        q, k, v = (m.linear(h, f"{layer}.attn_{name}") for name in "qkv")
    q, k, v = m.heads(q, heads, depth), m.heads(k, kv_heads, depth), m.heads(v, kv_heads, depth)
    if head_norm is not None:
        q, k = head_norm(q, f"{layer}.attn_q_norm"), head_norm(k, f"{layer}.attn_k_norm")
    if rope is not None:
        q, k = m.rotate(q, k, rope)
    if temperature is not None:
        q = m.multiply(q, temperature)
    attended = m.attend(q, k, v, scale=scale, window=window, softcap=softcap, sinks=m.sinks(layer))
    return m.linear(attended, f"{layer}.attn_output")


def layer_norm_of_heads(m: ModelBuilder) -> Callable[[TensorValue, str], TensorValue] | None:
    """For `head_norm`, where only the larger models of an architecture have it."""
    return m.layer_norm if m.has_in_layers("attn_q_norm.weight") else None


def feed_forward(m: ModelBuilder, h: TensorValue, n: int, activation: str = "silu") -> TensorValue:
    """Of layer `n`: down(activation(gate) * up), where gate and up may be one matrix."""
    layer = f"blk.{n}"
    if m.has_in_layers("ffn_gate.weight"):
        gate, up = m.linear(h, f"{layer}.ffn_gate"), m.linear(h, f"{layer}.ffn_up")
    else:
        hidden = m.count("feed_forward_length", layer=n)
        gate, up = m.split(m.linear(h, f"{layer}.ffn_up"), hidden, hidden)
    return m.linear(m.gated(gate, up, activation), f"{layer}.ffn_down")


def plain_feed_forward(m: ModelBuilder, h: TensorValue, n: int, activation: str) -> TensorValue:
    """Of layer `n`: down(activation(up)), without a gate."""
    up = m.activate(m.linear(h, f"blk.{n}.ffn_up"), activation)
    return m.linear(up, f"blk.{n}.ffn_down")


def normed_feed_forward(m: ModelBuilder, x: TensorValue, n: int, activation: str = "silu") -> TensorValue:
    """Of layer `n`, with a norm before and one after it; takes x as it is."""
    h = feed_forward(m, m.norm(x, f"blk.{n}.ffn_norm"), n, activation)
    return m.norm(h, f"blk.{n}.post_ffw_norm")
