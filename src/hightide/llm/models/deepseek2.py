"""DeepSeek V2 and V3: attention over one latent vector per token, and experts of which some are shared.

Keys and values of all heads are products of a token's latent vector. With these matrices per head, queries are taken to
the latent vectors instead, and what was attended to is brought back from there. The cache holds a latent vector and one
turned key for each token, whatever the number of heads. Files of older converters have both matrices of all heads in
one; they are taken apart as they are read.
"""

from __future__ import annotations

import math

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.gguf import GgufTensor
from hightide.formats.model_tensors import latent_parts
from hightide.graph.values import TensorValue
from hightide.llm.models.mixtures import head_linear, mixture, shared_expert
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of

SCORINGS = {1: "softmax", 2: "sigmoid"}  # expert_gating_func


def build(m: ModelBuilder) -> TensorValue:
    heads, latent = m.count("attention.head_count"), m.count("attention.kv_lora_rank")
    depth = m.count("attention.key_length_mla", m.count("attention.key_length"))  # older files have one length
    rotary = m.count("rope.dimension_count")
    if rotary >= depth:
        raise ProgramError(f"{m.file.path} rotates {rotary} elements of heads that have {depth}")
    rope = rope_of(m, halves=False, depth=rotary, yarn_magnitude=1.0)
    scale = _magnitude(m) ** 2 / math.sqrt(depth)
    b = m.graph_builder

    x = m.embed()
    for n in range(m.count("block_count")):
        layer = f"blk.{n}"
        h = m.norm(x, f"{layer}.attn_norm")
        low = m.norm(m.linear(h, f"{layer}.attn_q_a"), f"{layer}.attn_q_a_norm") if _has_low_rank(m, layer) else h
        q = m.linear(low, f"{layer}.attn_q_b" if _has_low_rank(m, layer) else f"{layer}.attn_q")
        q, q_turned = m.split(m.heads(q, heads, depth), depth - rotary, rotary)
        kv, k_turned = m.split(m.linear(h, f"{layer}.attn_kv_a_mqa"), latent, rotary)
        q_turned, k_turned = m.rotate(q_turned, m.heads(k_turned, 1, rotary), rope)
        kv = m.heads(m.norm(kv, f"{layer}.attn_kv_a_norm"), 1, latent)
        keys, values = _by_head(m, layer, heads, depth - rotary)
        q = b.call("aten.cat.default", [head_linear(m, q, keys), q_turned], -1)
        k = b.call("aten.cat.default", [kv, k_turned], -1)
        attended = m.heads(m.attend(q, k, kv, scale=scale), heads, latent)
        x = m.add(x, m.linear(m.joined(head_linear(m, attended, values)), f"{layer}.attn_output"))
        x = m.add(x, _feed_forward(m, m.norm(x, f"{layer}.ffn_norm"), n))
    return m.head(m.norm(m.last(x), "output_norm"))


def _has_low_rank(m: ModelBuilder, layer: str) -> bool:
    return m.has(f"{layer}.attn_q_a.weight")


def _by_head(m: ModelBuilder, layer: str, heads: int, keys: int) -> tuple[GgufTensor, GgufTensor]:
    """What takes queries to latent vectors [heads, latent, keys], and these to values [heads, values, latent]."""
    both = f"{layer}.attn_kv_b.weight"
    if m.has(f"{layer}.attn_k_b.weight"):
        m.leave_out(both)  # some files have it as well
        return m.tensor(f"{layer}.attn_k_b.weight"), m.tensor(f"{layer}.attn_v_b.weight")
    return latent_parts(m.tensor(both), heads, keys, m.count("attention.value_length"))


def _magnitude(m: ModelBuilder) -> float:
    """What YaRN multiplies queries and keys with."""
    if m.file.get("rope.scaling.type") != "yarn":
        return 1.0
    return 1 + m.number("rope.scaling.yarn_log_multiplier", 0) * math.log(max(m.number("rope.scaling.factor", 1), 1.0))


def _feed_forward(m: ModelBuilder, h: TensorValue, n: int) -> TensorValue:
    scoring = m.count("expert_gating_func", 1)
    if scoring not in SCORINGS:
        raise UnsupportedError(f"{m.file.path} scores its experts by function {scoring}; 1 and 2 are supported")
    routed = mixture(
        m,
        h,
        n,
        scoring=SCORINGS[scoring],
        normalized=m.flag("expert_weights_norm", False),
        scale=m.number("expert_weights_scale", 0) or 1.0,
        groups=(m.count("expert_group_count", 1), m.count("expert_group_used_count", 1)),
    )
    return m.add(routed, shared_expert(m, h, n)) if m.has(f"blk.{n}.ffn_gate_shexp.weight") else routed
