"""GPT-2: learned positions, layer norms, q, k and v in one matrix, and no gate."""

from __future__ import annotations

from hightide.errors import ProgramError
from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, plain_feed_forward
from hightide.llm.models.model_builder import ModelBuilder


def build(m: ModelBuilder) -> TensorValue:
    positions, learned = m.array("position_embd.weight"), m.count("context_length")
    if len(positions) != learned:
        raise ProgramError(
            f"{m.file.path} has a context of {learned} tokens, but has learned {len(positions)} positions"
        )

    x = m.add(m.embed(), m.at_positions(positions[: m.context]))
    for n in range(m.count("block_count")):
        x = m.add(x, attention(m, m.layer_norm(x, f"blk.{n}.attn_norm"), n))
        x = m.add(x, plain_feed_forward(m, m.layer_norm(x, f"blk.{n}.ffn_norm"), n, "gelu_tanh"))
    return m.head(m.layer_norm(m.last(x), "output_norm"))
