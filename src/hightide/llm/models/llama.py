"""Llama 2 and 3, Mistral, Mixtral, SmolLM2, TinyLlama, Yi: the decoder that the others vary."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, feed_forward
from hightide.llm.models.mixtures import FeedForward, mixture
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of, temperature_of


def build(m: ModelBuilder) -> TensorValue:
    return decoder(m, halves=False, second=mixture if m.number("expert_count", 0) else feed_forward)


def decoder(
    m: ModelBuilder, *, halves: bool, head_norms: bool = False, second: FeedForward = feed_forward
) -> TensorValue:
    """Logits of the kept tokens; `halves` says how the rotary embedding pairs elements, `head_norms` that each head of
    q and k is normed before it, `second` what the second half of a layer is."""
    rope = rope_of(m, halves=halves)
    head_norm, temperature = m.norm if head_norms else None, temperature_of(m)
    window = int(m.number("attention.sliding_window", 0))  # of Mistral 7B v0.1

    x = m.embed()
    for n in range(m.count("block_count")):
        h = m.norm(x, f"blk.{n}.attn_norm")
        x = m.add(x, attention(m, h, n, rope, head_norm=head_norm, temperature=temperature, window=window))
        x = m.add(x, second(m, m.norm(x, f"blk.{n}.ffn_norm"), n))
    return m.head(m.norm(m.last(x), "output_norm"))
