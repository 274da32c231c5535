"""GLM-4-0414, GLM-Z1: norms before and after each part, gate and up in one matrix, half of each head rotated."""

from __future__ import annotations

from hightide.errors import ProgramError, UnsupportedError
from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, normed_feed_forward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    if any(m.file.get("rope.dimension_sections") or ()):
        raise UnsupportedError(f"{m.file.path} is part of a vision model (glm4.rope.dimension_sections)")
    rope = rope_of(m, halves=False)

    # The last layers of some files guess tokens ahead, and take no part in the next one's logits.
    layers = m.layers()
    ahead = int(m.number("nextn_predict_layers", 0))
    if ahead > layers:
        raise ProgramError(f"{m.file.path}: glm4.nextn_predict_layers is {ahead}, but there are {layers} layers")
    for n in range(layers - ahead, layers):
        m.leave_out(f"blk.{n}.")

    x = m.embed()
    for n in range(layers - ahead):
        h = attention(m, m.norm(x, f"blk.{n}.attn_norm"), n, rope)
        x = m.add(x, m.norm(h, f"blk.{n}.post_attention_norm"))
        x = m.add(x, normed_feed_forward(m, x, n))
    return m.head(m.norm(m.last(x), "output_norm"))
