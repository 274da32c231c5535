"""Hugging Face folders of mixtures of experts: their rows in the table of recipes.

GGUF has the matrices of a layer's experts in one tensor each for gate, up and down. Folders have a matrix per expert,
which are stacked by their names, or gates and ups in one tensor, which is taken apart here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.folder_recipes import (
    GRANITE,
    LFM2,
    LLAMA,
    QWEN,
    FolderRecipe,
    check_pattern,
    granite_fields,
    lfm2_change,
    lfm2_fields,
    llama_fields,
    only_silu,
    qwen_fields,
    turned,
)
from hightide.formats.gguf import GgufTensor
from hightide.formats.model_config import ModelConfig
from hightide.formats.model_tensors import latent_parts, some_rows, transposed

LAYER = re.compile(r"model\.layers\.(\d{1,9})\.")
SOFTMAX, SIGMOID = 1, 2  # as GGUF numbers what scores of experts go through


def _moe_name(config: ModelConfig, name: str) -> str | None:
    """All experts in one tensor have no `.weight` in transformers 5."""
    return f"{name}.weight" if name.endswith(".experts.down_proj") else name


def _gate_and_up(config: ModelConfig, name: str, tensor: GgufTensor, step: int = 1) -> dict[str, GgufTensor]:
    """`gate_up_proj` [..., rows of both, width] in two: gates are first, or (of step 2) they take turns."""
    base, _, last = name.rpartition(".")
    if last != "gate_up_proj":
        return {name: tensor}
    if len(tensor.dims) < 2 or tensor.dims[-2] % 2:
        raise ProgramError(f"{config.path.parent}: {name} {list(tensor.dims)} does not have as many gates as ups")
    half = tensor.dims[-2] // 2
    firsts = {"gate_proj": 0, "up_proj": half if step == 1 else 1}
    return {f"{base}.{side}.weight": some_rows(tensor, first, half, step) for side, first in firsts.items()}


# ---- Qwen


def _qwen2_moe_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("norm_topk_prob", False)
    shared = {"expert_shared_feed_forward_length": config.get("shared_expert_intermediate_size")}
    return _qwen_moe_fields(config) | shared


def _qwen3_moe_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("norm_topk_prob", True)
    return _qwen_moe_fields(config)


def _qwen_moe_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("decoder_sparse_step", 1)  # or some layers would be dense
    config.need("mlp_only_layers", [])
    return qwen_fields(config) | {"expert_feed_forward_length": config.get("moe_intermediate_size")}


# ---- gpt-oss


def _gpt_oss_fields(config: ModelConfig) -> dict[str, Any]:
    check_pattern(config, 2)
    config.need("swiglu_limit", 7.0)
    config.need("swiglu_alpha", 1.702)
    if config.rope.get("rope_type") == "yarn" and config.rope.get("truncate", True) is not False:
        raise UnsupportedError(f"{config.path}: truncate of its rotary parameters is not False, as gpt-oss has it")
    return only_silu(config) | {
        "attention.sliding_window": config.get("sliding_window"),
        "expert_feed_forward_length": config.get("intermediate_size"),
    }


def _gpt_oss_name(config: ModelConfig, name: str) -> str | None:
    if name.endswith(".sinks"):
        return f"{name}.weight"
    return _moe_name(config, name.replace(".down_proj_bias", ".down_proj.bias"))


def _gpt_oss_parts(config: ModelConfig, name: str, tensor: GgufTensor) -> dict[str, GgufTensor]:
    """Gates and ups take turns. Floats are [experts, in, out], blocks are not."""
    if name.endswith("gate_up_proj_bias"):
        as_columns = GgufTensor(tensor.name, tensor.type, (*tensor.dims, 1), tensor.data)
        pair = _gate_and_up(config, name.removesuffix("_bias"), as_columns, step=2)
        return {
            side.replace(".weight", ".bias"): GgufTensor(half.name, half.type, half.dims[:-1], half.data)
            for side, half in pair.items()
        }
    if ".experts." in name and name.endswith(("gate_up_proj", "down_proj.weight")) and tensor.type != "MXFP4":
        tensor = transposed(tensor)
    return _gate_and_up(config, name, tensor, step=2)


# ---- Granite


def _granite_moe_fields(config: ModelConfig) -> dict[str, Any]:
    return granite_fields(config) | {"expert_shared_feed_forward_length": config.get("shared_intermediate_size")}


def _granite_moe_name(config: ModelConfig, name: str) -> str | None:
    name = name.replace("block_sparse_moe.input_linear.weight", "mlp.experts.gate_up_proj")
    return name.replace("shared_mlp.input_linear.weight", "mlp.shared_expert.gate_up_proj")


# ---- DeepSeek


def _deepseek_v2_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("scoring_func", "softmax")
    config.need("norm_topk_prob", False)
    config.need("topk_method", "greedy", "group_limited_greedy")
    fields = _deepseek_fields(config) | {"expert_gating_func": SOFTMAX}
    return fields | (_groups(config) if config.get("topk_method") == "group_limited_greedy" else {})


def _deepseek_v3_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("scoring_func", "sigmoid")
    config.need("topk_method", "noaux_tc")
    config.need("rope_interleave", True)
    scoring = {"expert_weights_norm": bool(config.get("norm_topk_prob")), "expert_gating_func": SIGMOID}
    return _deepseek_fields(config) | scoring | _groups(config)


def _groups(config: ModelConfig) -> dict[str, Any]:
    return {"expert_group_count": config.get("n_group"), "expert_group_used_count": config.get("topk_group")}


def _deepseek_fields(config: ModelConfig) -> dict[str, Any]:
    """Heads share one latent vector and one turned key of each token: to a cache that is one head."""
    config.need("moe_layer_freq", 1)
    config.need("attention_bias", False)
    latent, rotary = config.count("kv_lora_rank"), config.count("qk_rope_head_dim")
    fields = only_silu(config) | {
        "leading_dense_block_count": config.get("first_k_dense_replace"),
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": config.get("q_lora_rank"),
        "attention.kv_lora_rank": latent,
        "attention.key_length": latent + rotary,
        "attention.value_length": latent,
        "attention.key_length_mla": config.count("qk_nope_head_dim") + rotary,
        "attention.value_length_mla": config.count("v_head_dim"),
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
        "expert_shared_count": config.get("n_shared_experts"),
        "expert_weights_scale": config.get("routed_scaling_factor"),
        "rope.dimension_count": rotary,
    }
    if config.rope.get("rope_type") == "yarn":
        magnitude = config.number("mscale_all_dim", config.rope.get("mscale_all_dim"))
        fields["rope.scaling.yarn_log_multiplier"] = 0.1 * magnitude
    return fields


def _deepseek_name(config: ModelConfig, name: str) -> str | None:
    layer = LAYER.match(name)
    if layer and int(layer[1]) >= config.layers:  # it guesses a token after the next one
        return None
    return _moe_name(config, name.replace(".e_score_correction_bias", ".e_score_correction.bias"))


def _deepseek_parts(config: ModelConfig, name: str, tensor: GgufTensor) -> dict[str, GgufTensor]:
    """What makes keys and values of a latent vector, per head; that of keys the other way round."""
    if not name.endswith(".kv_b_proj.weight"):
        return _gate_and_up(config, name, tensor)
    lengths = config.count("qk_nope_head_dim"), config.count("v_head_dim")
    keys, values = latent_parts(replace(tensor, name=name), config.heads, *lengths)
    return {name.replace("kv_b_proj", "k_b_proj"): keys, name.replace("kv_b_proj", "v_b_proj"): values}


# ---- LFM2


def _lfm2_moe_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("norm_topk_prob", True)
    return lfm2_fields(config) | {
        "leading_dense_block_count": config.get("num_dense_layers"),
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
        "expert_gating_func": SIGMOID,
        "expert_weights_scale": config.get("routed_scaling_factor"),
    }


def _lfm2_moe_name(config: ModelConfig, name: str) -> str | None:
    if name.endswith(".expert_bias"):
        return f"{name}.bias"
    if item := re.fullmatch(r"(.+)\.feed_forward\.experts\.(\d{1,5})\.(w[123])\.weight", name):
        side = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}[item[3]]
        return f"{item[1]}.mlp.experts.{item[2]}.{side}.weight"
    return name


_MIXTRAL = {**LLAMA, "rms_norm_eps": 1e-5, "rope_theta": 1_000_000.0, "num_key_value_heads": 8}
_MIXTRAL |= {"max_position_embeddings": 131_072, "num_local_experts": 8, "num_experts_per_tok": 2}
_QWEN2_MOE = {**QWEN, "num_key_value_heads": 16, "norm_topk_prob": False, "decoder_sparse_step": 1}
_QWEN2_MOE |= {"num_experts_per_tok": 4, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632}
_QWEN3_MOE = {**QWEN, "num_key_value_heads": 4, "norm_topk_prob": False, "decoder_sparse_step": 1}
_QWEN3_MOE |= {"num_experts_per_tok": 8, "moe_intermediate_size": 768}
_GPT_OSS = {
    **LLAMA,
    "rms_norm_eps": 1e-5,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "max_position_embeddings": 131_072,
    "num_experts_per_tok": 4,
    "rope_theta": 150_000.0,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "original_max_position_embeddings": 4096,
        "truncate": False,
    },
}
_GRANITE_MOE = {**GRANITE, "num_local_experts": 8, "num_experts_per_tok": 2}
_DEEPSEEK = {**LLAMA, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
_DEEPSEEK_V2 = {**_DEEPSEEK, "first_k_dense_replace": 0, "n_shared_experts": 2, "routed_scaling_factor": 1.0}
_DEEPSEEK_V2["moe_intermediate_size"] = 1407  # and topk_method is "greedy", where a config has none
_DEEPSEEK_V3 = {**_DEEPSEEK, "first_k_dense_replace": 3, "n_shared_experts": 1, "routed_scaling_factor": 2.5}
_DEEPSEEK_V3 |= {"moe_intermediate_size": 2048, "max_position_embeddings": 4096, "norm_topk_prob": True}
_DEEPSEEK_V3 |= {"n_group": 8, "topk_group": 4, "num_experts_per_tok": 8}
_LFM2_MOE = {**LFM2, "intermediate_size": 7168, "moe_intermediate_size": 1792, "num_dense_layers": 2}
_LFM2_MOE |= {"num_experts": 32, "num_experts_per_tok": 4, "norm_topk_prob": True, "routed_scaling_factor": 1.0}
_GRANITE_MOE_RECIPE = FolderRecipe(
    "granitemoe", _GRANITE_MOE, _granite_moe_fields, turned, rename=_granite_moe_name, parts=_gate_and_up
)

MIXTURE_RECIPES: dict[str, FolderRecipe] = {
    "lfm2_moe": FolderRecipe("lfm2moe", _LFM2_MOE, _lfm2_moe_fields, lfm2_change, rename=_lfm2_moe_name),
    "mixtral": FolderRecipe("llama", _MIXTRAL, llama_fields, turned, rename=_moe_name, parts=_gate_and_up),
    "qwen2_moe": FolderRecipe("qwen2moe", _QWEN2_MOE, _qwen2_moe_fields, rename=_moe_name, parts=_gate_and_up),
    "qwen3_moe": FolderRecipe("qwen3moe", _QWEN3_MOE, _qwen3_moe_fields, rename=_moe_name, parts=_gate_and_up),
    "gpt_oss": FolderRecipe("gpt-oss", _GPT_OSS, _gpt_oss_fields, rename=_gpt_oss_name, parts=_gpt_oss_parts),
    "granitemoe": _GRANITE_MOE_RECIPE,
    "granitemoeshared": _GRANITE_MOE_RECIPE,
    "deepseek_v2": FolderRecipe(
        "deepseek2", _DEEPSEEK_V2, _deepseek_v2_fields, rename=_deepseek_name, parts=_deepseek_parts
    ),
    "deepseek_v3": FolderRecipe(
        "deepseek2", _DEEPSEEK_V3, _deepseek_v3_fields, rename=_deepseek_name, parts=_deepseek_parts
    ),
}
