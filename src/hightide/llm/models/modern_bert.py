"""ModernBERT: norms before each part, a gated GELU, and layers that see only their neighbours between those that see
everything, each kind with a rotary base of its own."""

from __future__ import annotations

from hightide.errors import ProgramError, UnsupportedError
from hightide.graph.values import TensorValue
from hightide.llm.models.encoder_builder import EncoderBuilder
from hightide.llm.models.layer_parts import attention, feed_forward
from hightide.llm.models.model_builder import Rope
from hightide.llm.models.rope import rope_of

EVERY = 3  # a layer of so many sees everything, the first one too


def build(m: EncoderBuilder) -> TensorValue:
    activation = m.file.get("hidden_activation", "gelu")
    if activation not in ("gelu", "silu"):
        raise UnsupportedError(f"{m.file.path} has the activation {activation!r}; gelu and silu are supported")
    reach = int(m.number("attention.sliding_window", 0)) // 2  # to each side
    far, near = rope_of(m, halves=True), _near_rope(m)

    x = m.layer_norm(m.embed(), "token_embd_norm")
    for n in range(m.layers()):
        first, local = f"blk.{n}.attn_norm", reach > 0 and _is_local(m, n)
        h = m.layer_norm(x, first) if m.has(f"{first}.weight") else x  # the first layer has none
        x = m.add(x, attention(m, h, n, near if local else far, window=reach + 1 if local else 0))
        x = m.add(x, feed_forward(m, m.layer_norm(x, f"blk.{n}.ffn_norm"), n, activation))
    return m.layer_norm(x, "output_norm")


def _near_rope(m: EncoderBuilder) -> Rope:
    _, _, depth = m.attention_dims()
    theta = m.number("rope.freq_base_swa", 10_000.0, least=2)
    return m.rope(halves=True, theta=theta, rotary=m.count("rope.dimension_count", depth))


def _is_local(m: EncoderBuilder, n: int) -> bool:
    pattern = m.file.get("attention.sliding_window_pattern", EVERY)
    if isinstance(pattern, list) and n < len(pattern):
        return bool(pattern[n])
    if isinstance(pattern, bool) or not isinstance(pattern, int) or pattern < 1:
        raise ProgramError(f"{m.file.path} does not say which layers see everything: {pattern!r}")
    return n % pattern != 0
