"""DeepSeek V2 and V3: attention over one latent vector per token, and experts of which some are shared.

Keys and values of all heads are products of a token's latent vector. The files have these matrices per head, so that
queries are taken to the latent vectors instead, and what was attended to is brought back from there. The cache holds a
latent vector and one turned key for each token, whatever the number of heads.
"""

from __future__ import annotations

import math

from hightide.errors import ProgramError, UnsupportedError
from hightide.graph.values import TensorValue
from hightide.llm.models.mixtures import head_linear, mixture, shared_expert
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of

SCORINGS = {1: "softmax", 2: "sigmoid"}  # expert_gating_func


def build(m: ModelBuilder) -> TensorValue:
    heads, latent = m.count("attention.head_count"), m.count("attention.kv_lora_rank")
    depth, rotary = m.count("attention.key_length_mla"), m.count("rope.dimension_count")
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
        q = b.call("aten.cat.default", [head_linear(m, q, f"{layer}.attn_k_b"), q_turned], -1)
        k = b.call("aten.cat.default", [kv, k_turned], -1)
        attended = m.heads(m.attend(q, k, kv, scale=scale), heads, latent)
        values = head_linear(m, attended, f"{layer}.attn_v_b")
        x = m.add(x, m.linear(m.joined(values), f"{layer}.attn_output"))
        x = m.add(x, _feed_forward(m, m.norm(x, f"{layer}.ffn_norm"), n))
    return m.head(m.norm(m.last(x), "output_norm"))


def _has_low_rank(m: ModelBuilder, layer: str) -> bool:
    return m.has(f"{layer}.attn_q_a.weight")


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
