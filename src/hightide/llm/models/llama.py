"""Llama 2 and 3, Mistral, SmolLM2, TinyLlama, Yi: the decoder that the others vary."""

from __future__ import annotations

from hightide.errors import UnsupportedError
from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, feed_forward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of, temperature_of


def build(m: ModelBuilder) -> TensorValue:
    if m.number("expert_count", 0):
        raise UnsupportedError(f"{m.file.path} is a mixture of experts; only dense models are supported")
    return decoder(m, halves=False)


def decoder(m: ModelBuilder, *, halves: bool, head_norms: bool = False) -> TensorValue:
    """Logits of the kept tokens; `halves` says how the rotary embedding pairs elements, `head_norms` that each head of
    q and k is normed before it."""
    rope = rope_of(m, halves=halves)
    head_norm, temperature = m.norm if head_norms else None, temperature_of(m)
    window = int(m.number("attention.sliding_window", 0))  # of Mistral 7B v0.1

    x = m.embed()
    for n in range(m.count("block_count")):
        h = m.norm(x, f"blk.{n}.attn_norm")
        x = m.add(x, attention(m, h, n, rope, head_norm=head_norm, temperature=temperature, window=window))
        x = m.add(x, feed_forward(m, m.norm(x, f"blk.{n}.ffn_norm"), n))
    return m.head(m.norm(m.last(x), "output_norm"))
