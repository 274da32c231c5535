"""SmolLM3: a Llama in which every fourth layer knows no positions."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, feed_forward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of

WITHOUT_ROPE = 4


def build(m: ModelBuilder) -> TensorValue:
    rope = rope_of(m, halves=False)

    x = m.embed()
    for n in range(m.count("block_count")):
        h = m.norm(x, f"blk.{n}.attn_norm")
        x = m.add(x, attention(m, h, n, rope if (n + 1) % WITHOUT_ROPE else None))
        x = m.add(x, feed_forward(m, m.norm(x, f"blk.{n}.ffn_norm"), n))
    return m.head(m.norm(m.last(x), "output_norm"))
