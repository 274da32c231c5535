"""gpt-oss: experts with biases and a clamped SwiGLU, a sink in each head, and a window in every other layer."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention
from hightide.llm.models.mixtures import mixture
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of

PATTERN = 2  # every second layer sees everything


def build(m: ModelBuilder) -> TensorValue:
    rope = rope_of(m, halves=True, whole=False)

    x = m.embed()
    for n, window in enumerate(m.windows(PATTERN)):
        x = m.add(x, attention(m, m.norm(x, f"blk.{n}.attn_norm"), n, rope, window=window))
        h = m.norm(x, f"blk.{n}.post_attention_norm")
        x = m.add(x, mixture(m, h, n, activation="clamped_swiglu"))
    return m.head(m.norm(m.last(x), "output_norm"))
