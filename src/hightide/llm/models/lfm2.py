"""LFM2: short convolutions along the tokens in most layers, and attention with normed heads in the others.

A convolution sees what it sees through a cache with a row for each position, as attention does: see `ops/short_conv`.
"""

from __future__ import annotations

import numpy as np

from hightide.errors import ProgramError, UnsupportedError
from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import attention, feed_forward
from hightide.llm.models.mixtures import FeedForward
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of


def build(m: ModelBuilder) -> TensorValue:
    return decoder(m, feed_forward)


def decoder(m: ModelBuilder, second: FeedForward) -> TensorValue:
    """`second` is what the second half of a layer is. A layer without heads of keys and values is a convolution."""
    if not m.flag("attention.causal", True) or m.has("dense_2.weight"):
        raise UnsupportedError(f"{m.file.path} gives vectors, not answers: {m.file.architecture} encoders do not run")
    attends = [m.number("attention.head_count_kv", layer=n) > 0 for n in range(m.layers())]
    rope = rope_of(m, halves=True, depth=m.attention_dims(attends.index(True))[2]) if any(attends) else None
    window = int(m.number("attention.sliding_window", 0))

    x = m.embed()
    for n, is_attention in enumerate(attends):
        h = m.norm(x, f"blk.{n}.attn_norm")
        if is_attention:
            x = m.add(x, attention(m, h, n, rope, head_norm=m.norm, window=window))
        else:
            x = m.add(x, _short_conv(m, h, n))
        x = m.add(x, second(m, m.norm(x, f"blk.{n}.ffn_norm"), n))
    return m.head(m.norm(m.last(x), "token_embd_norm"))  # the converter's name for the norm at the end


def _short_conv(m: ModelBuilder, h: TensorValue, n: int) -> TensorValue:
    b, layer, width, taps = m.graph_builder, f"blk.{n}.shortconv", h.dims[-1], m.count("shortconv.l_cache")
    weight = m.array(f"{layer}.conv.weight")
    if weight.shape != (width, taps):
        raise ProgramError(f"{m.file.path}: {layer}.conv.weight has dims {list(weight.shape)}, not {[width, taps]}")
    mixed = m.linear(h, f"{layer}.in_proj")
    cache = b.zeros((1, m.context, 1, width))
    made = b.call("hightide.short_conv.default", mixed, b.constant(np.ascontiguousarray(weight.T)), cache, m.position)
    return m.linear(made, f"{layer}.out_proj")
