"""StarCoder2 and the larger Granite Code models: layer norms and biases, rotary halves, and no gate."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, plain_feed_forward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    rope = rope_of(m, halves=True)

    x = m.embed()
    for n in range(m.count("block_count")):
        x = m.add(x, attention(m, m.layer_norm(x, f"blk.{n}.attn_norm"), n, rope))
        x = m.add(x, plain_feed_forward(m, m.layer_norm(x, f"blk.{n}.ffn_norm"), n, "gelu_tanh"))
    return m.head(m.layer_norm(m.last(x), "output_norm"))
