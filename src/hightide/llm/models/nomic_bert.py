"""Nomic's BERT: rotary halves instead of vectors of positions, and a gated SiLU."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.encoder_builder import EncoderBuilder
from hightide.llm.models.layer_parts import attention, feed_forward
from hightide.llm.models.rope import rope_of


def build(m: EncoderBuilder) -> TensorValue:
    rope = rope_of(m, halves=True)
    x = m.layer_norm(m.embed_typed(), "token_embd_norm")
    for n in range(m.layers()):
        x = m.layer_norm(m.add(x, attention(m, x, n, rope)), f"blk.{n}.attn_output_norm")
        x = m.layer_norm(m.add(x, feed_forward(m, x, n)), f"blk.{n}.layer_output_norm")
    return x
