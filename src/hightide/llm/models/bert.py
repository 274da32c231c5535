"""BERT, RoBERTa and XLM-R: vectors of positions, norms behind each part, GELU."""

from __future__ import annotations

from hightide.graph.values import TensorValue
from hightide.llm.models.encoder_builder import EncoderBuilder
from hightide.llm.models.layer_parts import attention, plain_feed_forward


def build(m: EncoderBuilder) -> TensorValue:
    x = m.layer_norm(m.embed_typed(), "token_embd_norm")
    for n in range(m.layers()):
        x = m.layer_norm(m.add(x, attention(m, x, n)), f"blk.{n}.attn_output_norm")
        x = m.layer_norm(m.add(x, plain_feed_forward(m, x, n, "gelu")), f"blk.{n}.layer_output_norm")
    return x
