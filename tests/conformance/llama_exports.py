"""Llama variants for `model_exports.py`: switches of the exporter's command line, and arguments of its model.

Those of `make_programs.py` are kept in the repository and run in more ways; these are smaller and go through more
backends. The exporter's Llama ignores some arguments of its own (multipliers of Granite, soft caps, layers without
rope): such decoders are in `decoders.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KV = "-kv --use_sdpa_with_kv_cache"
STATIC = "--disable_dynamic_shape"
Q4 = "-qmode 4w -G 32 -E 4,32"
SMALL = dict(
    dim=32, n_layers=2, n_heads=4, n_kv_heads=2, hidden_dim=64, vocab_size=64, norm_eps=1e-5, max_seq=24, context=40
)
TINY = dict(dim=16, head_dim=8, hidden_dim=32, vocab_size=48)  # of those that are kept in the repository
HYBRID = dict(
    **TINY, n_layers=3, rms_norm_add_unit_offset=True, use_hf_rope=True, use_qk_norm=True, qk_norm_before_rope=True
)
QWEN3_5 = dict(
    **HYBRID,
    partial_rotary_factor=0.5,
    use_q_gate=True,
    layer_types=["linear_attention", "linear_attention", "full_attention"],
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
)
LFM2 = dict(
    **TINY,
    n_layers=3,
    use_hf_rope=True,
    use_qk_norm=True,
    qk_norm_before_rope=True,
    layer_types=["conv", "full_attention", "conv"],
)
RING = dict(**TINY, max_seq=12)  # a ring of 16 holds no more at once
GROUPS = dict(dim=64, hidden_dim=96)  # two and three groups of 32: the exporter fails at one
GATES = dict(use_residual_gate=True, use_ffn_learnable_scales=True)
EXPERTS = dict(**TINY, moe=True, num_experts=4, num_activated_experts=2)
SIGMOID = dict(moe_score_func="sigmoid", moe_route_scale=2.5, moe_use_expert_bias=True, moe_shared_expert_hidden_dim=32)
STATES_LOST = "the file does not say"
EVERY_THIRD = dict(enumerate(range(0, 48, 3)))  # token of the pruned vocabulary -> its old number


@dataclass(frozen=True)
class Llama:
    about: str
    switches: str  # `{folder}` has the files
    changes: dict[str, Any] = field(default_factory=dict)  # what differs from SMALL
    files: dict[str, Any] = field(default_factory=dict)  # name: what it holds, as JSON
    adapter: bool = False  # a LoRA adapter's weights, in `adapter.safetensors`
    tokens: int = 0  # how many it knows, if that is not all of the vocabulary
    least: int = 1  # the least S
    rounded: bool = False  # activations or keys are rounded to 8 bits: where one is halfway, its last bit decides
    refused: str = ""  # what hightide says to a file that has lost something of the model


LORA = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]}

LLAMAS: dict[str, Llama] = {
    # ---- rope
    "partial_rope": Llama(
        "half of each head is rotated", f"-V {KV}", dict(partial_rotary_factor=0.5, use_hf_rope=True)
    ),
    "scaled_rope": Llama(
        "Llama 3's scaled frequencies", f"-V {KV} --model llama3_2", dict(use_scaled_rope=True, rope_theta=5e5)
    ),
    "long_rope": Llama(
        "factors per frequency, as Phi's",
        f"-V {KV}",
        dict(
            use_hf_rope=True,
            rope_scaling_short_factor=[1.0, 1.1, 1.3, 2.0],
            rope_scaling_long_factor=[1.0, 1.5, 4.0, 16.0],
            original_max_position_embeddings=16,
            max_position_embeddings=40,
        ),
    ),
    # ---- heads and layers
    "one_kv_head": Llama("multi-query attention", f"-V {KV}", dict(n_kv_heads=1)),
    "odd_heads": Llama(
        "six heads of 20, as many for keys", f"-V {KV}", dict(dim=48, n_heads=6, n_kv_heads=6, head_dim=20)
    ),
    "qk_norm": Llama(
        "norms without weights after rope, scaled queries",
        f"-V {KV}",
        dict(**TINY, use_qk_norm=True, qk_norm_affine=False, scale_query_by=1.3),
    ),
    "gated_heads": Llama(
        "gates of queries, gates and norms of heads",
        f"-V {KV}",
        dict(**TINY, use_q_gate=True, use_attn_o_norm=True, use_attn_o_gate=True),
    ),
    "residual_gates": Llama("gated residuals, learned scales", f"-V {KV}", GATES),
    "skipped_layers": Llama(
        "layers without attention",
        f"-V {KV}",
        dict(n_layers=3, layer_types=["full_attention", "skip_attention", "full_attention"]),
    ),
    "shared_kv": Llama(
        "the last layer reads the keys of the one before, S = 1",
        f"-V {KV} {STATIC}",
        dict(n_layers=3, num_kv_shared_layers=1),
    ),
    "shared_kv_live": Llama(  # traced as a prompt of two tokens or more, which goes without the last layer
        "the same, S live from 2", f"-V {KV}", dict(n_layers=3, num_kv_shared_layers=1), least=2
    ),
    "residual_gates_xnnpack": Llama("the same", f"-X {KV}", GATES),
    "residual_gates_portable": Llama("the same", KV, GATES),
    # ---- experts
    "experts": Llama("two of four experts, softmax of the chosen", f"-V {KV}", EXPERTS),
    "experts_xnnpack": Llama("the same", f"-X {KV}", EXPERTS),
    "experts_portable": Llama("the same", KV, EXPERTS),
    "experts_no_cache": Llama("the same without a cache", "-V", EXPERTS),
    "experts_sigmoid": Llama("sigmoid scores, a bias, a shared expert", KV, {**EXPERTS, **SIGMOID}),
    # ---- adapters and vocabularies
    "lora": Llama(
        "adapters of rank 4 beside three projections",
        f"-V {KV} --adapter_checkpoint {{folder}}/adapter.safetensors --adapter_config {{folder}}/adapter.json",
        files={"adapter.json": LORA},
        adapter=True,
    ),
    "pruned_vocabulary": Llama(
        "a third of the tokens, in and out; the logits of the others are -inf",
        f"-V {KV} --input_prune_map {{folder}}/map.json --output_prune_map {{folder}}/map.json",
        TINY,
        files={"map.json": EVERY_THIRD},
        tokens=len(EVERY_THIRD),
    ),
    # ---- caches
    "ring_cache": Llama(
        "a window of 8 in one layer, by a ring", f"-V {KV} --local_global_attention [8,0]", dict(max_seq=12)
    ),
    "ring_cache_xnnpack": Llama("the same", f"-X {KV} --local_global_attention [8,0]", RING),
    "ring_cache_portable": Llama("the same", f"{KV} --local_global_attention [8,0]", RING),
    "attention_sink": Llama("the first 4 tokens and a window of 16", f"-V {KV} --use_attention_sink 4,16"),
    "attention_sink_xnnpack": Llama("the same", f"-X {KV} --use_attention_sink 4,16"),
    "attention_sink_portable": Llama("the same", f"{KV} --use_attention_sink 4,16"),
    "quantized_cache": Llama("keys and values in 8 bits", f"-V {KV} --quantize_kv_cache", rounded=True),
    "quantized_cache_xnnpack": Llama("the same", f"-X {KV} --quantize_kv_cache", TINY, rounded=True),
    "static_quantized_cache": Llama(
        "keys and values in 8 bits with one scale, S = 1",
        f"-kv {STATIC} --static_quantize_kv_cache --static_quantize_kv_cache_scale 0.03",
        TINY,
        rounded=True,
    ),
    "no_cache": Llama("logits of all tokens", "-V --generate_full_logits"),
    "no_cache_xnnpack": Llama("the same", "-X --generate_full_logits"),
    "plain_sdpa": Llama("a cache, and attention of plain ops", "-V -kv"),
    "plain_sdpa_xnnpack": Llama("the same", "-X -kv"),
    "plain_sdpa_portable": Llama("the same", "-kv"),
    "fused_sdpa_portable": Llama("a cache and the exporter's own attention op", KV),
    # ---- quantised
    "q4": Llama("4-bit weights and embeddings", f"-V {KV} {Q4}", GROUPS),
    "q4_one_group": Llama("the same, one group to a row", f"-V {KV} {Q4}"),
    "q4_biases": Llama("4-bit weights, biases of q, k and v", f"-V {KV} {Q4}", dict(**GROUPS, attention_qkv_bias=True)),
    "dynamic_q4_xnnpack": Llama(
        "4-bit weights, 8-bit rows, an 8-bit embedding", f"-X {KV} -qmode 8da4w -G 32 -E 8,0", rounded=True
    ),
    "int8_weights_portable": Llama("8-bit weights", f"{KV} -qmode int8"),
    "embedding_2bit": Llama("a 2-bit embedding", f"-V {KV} -E 2,32"),
    # ---- other layers than attention
    "qwen3_5": Llama("two gated delta rules to one attention", f"-V {KV}", QWEN3_5, refused=STATES_LOST),
    "qwen3_5_xnnpack": Llama("the same", f"-X {KV}", QWEN3_5),
    "qwen3_5_portable": Llama("the same", KV, QWEN3_5),
    "lfm2": Llama("short convolutions around one attention", f"-V {KV}", LFM2, refused=STATES_LOST),
    "lfm2_xnnpack": Llama("the same", f"-X {KV}", LFM2),
}
