"""Phi-3: q, k, v in one matrix, gate and up in another; rotary halves, long-context factors, a window."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, feed_forward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    window = int(m.number("attention.sliding_window", 0))
    rope = rope_of(m, halves=True)

    x = m.embed()
    for n in range(m.count("block_count")):
        x = m.add(x, attention(m, m.norm(x, f"blk.{n}.attn_norm"), n, rope, window=window))
        x = m.add(x, feed_forward(m, m.norm(x, f"blk.{n}.ffn_norm"), n))
    return m.head(m.norm(m.last(x), "output_norm"))
