"""GPT-NeoX and Pythia: layer norms, part of each head rotated, attention and feed-forward side by side in most."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, plain_feed_forward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    rope = rope_of(m, halves=True)
    is_parallel = m.flag("use_parallel_residual", True)

    x = m.embed()
    for n in range(m.count("block_count")):
        after = m.add(x, attention(m, m.layer_norm(x, f"blk.{n}.attn_norm"), n, rope))
        h = m.layer_norm(x if is_parallel else after, f"blk.{n}.ffn_norm")
        x = m.add(after, plain_feed_forward(m, h, n, "gelu"))
    return m.head(m.layer_norm(m.last(x), "output_norm"))
