"""How a Hugging Face folder becomes what a GGUF file of the same model has: one row per `model_type`.

A row says which architecture it is, what transformers takes for values that a config leaves out, which fields there are
beside those of all models, and what llama.cpp's converter changes in the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.gguf import GgufTensor
from hightide.formats.model_config import ModelConfig
from hightide.formats.model_tensors import interleaved, reordered, shifted

Fields = Callable[[ModelConfig], dict[str, Any]]
Change = Callable[[ModelConfig, GgufTensor], GgufTensor]
Extra = Callable[[ModelConfig], dict[str, np.ndarray]]
Rename = Callable[[ModelConfig, str], str | None]
Parts = Callable[[ModelConfig, str, GgufTensor], dict[str, GgufTensor]]


@dataclass(frozen=True)
class FolderRecipe:
    architecture: str  # as GGUF names it
    defaults: Mapping[str, Any] = field(default_factory=dict)  # what the config may leave out
    fields: Fields = lambda config: {}  # beside those of all models
    change: Change = lambda config, tensor: tensor  # of the rows of a tensor with its name in GGUF
    extra: Extra = lambda config: {}  # tensors that the folder has as numbers in its config
    rename: Rename = lambda config, name: name  # of a tensor, to what gguf's map of names knows; None: it is not used
    parts: Parts = lambda config, name, tensor: {name: tensor}  # a renamed tensor as those that GGUF has of it
    transposed: tuple[str, ...] = ()  # ends of the names of matrices that it holds as [in, out]


# ---- Llama, and what turns as it does


def turned(config: ModelConfig, tensor: GgufTensor) -> GgufTensor:
    kind = tensor.name.rpartition(".")[0].rpartition(".")[2]
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(kind)
    return tensor if heads is None else interleaved(tensor, heads)


def only_silu(config: ModelConfig) -> dict[str, Any]:
    config.need("hidden_act", "silu", "swish")
    return {}


def llama_fields(config: ModelConfig) -> dict[str, Any]:
    window = config.get("sliding_window") or 0
    return only_silu(config) | {"rope.dimension_count": config.rotary, "attention.sliding_window": window}


# ---- Mistral 3 and Ministral


def _mistral3_fields(config: ModelConfig) -> dict[str, Any]:
    kind = config.get("model_type")  # that of the text model
    config.need("model_type", "mistral3", "ministral3", "mistral")
    window = config.values.get("sliding_window", MISTRAL["sliding_window"] if kind == "mistral" else None)
    return llama_fields(config) | {
        "attention.sliding_window": window or 0,
        "attention.temperature_scale": config.rope.get("llama_4_scaling_beta"),
        "rope.scaling.yarn_log_multiplier": config.rope.get("mscale_all_dim"),
    }


def _ministral_fields(config: ModelConfig) -> dict[str, Any]:
    fields, kinds = llama_fields(config), config.get("layer_types")
    if isinstance(kinds, list) and "full_attention" in kinds:
        fields["attention.sliding_window"] = 0
        if "sliding_attention" in kinds:  # up to the length of the window it makes no difference
            fields["context_length"] = min(config.count("max_position_embeddings"), config.count("sliding_window"))
    return fields


# ---- Qwen


def qwen_fields(config: ModelConfig) -> dict[str, Any]:
    fields = only_silu(config)
    if config.get("use_sliding_window"):  # of some layers; up to its length it makes no difference
        fields["context_length"] = min(config.count("max_position_embeddings"), config.count("sliding_window"))
    return fields


# ---- Gemma


def _norms_up(config: ModelConfig, tensor: GgufTensor) -> GgufTensor:
    """Gemma's norms multiply by 1 + weight."""
    return shifted(tensor, 1.0) if tensor.name.endswith("norm.weight") else tensor


def _gemma3_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("attn_logit_softcapping")
    _check_scale(config, layers_27b=62)
    fields = _gemma_fields(config) | {
        "final_logit_softcapping": config.get("final_logit_softcapping") or None,
        "rope.freq_base_swa": config.local_theta,
    }
    pattern = _pattern(config)
    if pattern == 1:  # all layers see everything
        return fields
    return fields | {
        "attention.sliding_window": config.get("sliding_window"),
        "attention.sliding_window_pattern": pattern,
    }


def _pattern(config: ModelConfig) -> int:
    """Every how many layers one sees everything."""
    kinds = config.get("layer_types")
    if kinds is None:
        return config.count("sliding_window_pattern", "_sliding_window_pattern")
    full = "full_attention"
    if not isinstance(kinds, list) or len(kinds) != config.layers:
        raise ProgramError(f"{config.path}: layer_types does not name the kinds of {config.layers} layers")
    pattern = kinds.index(full) + 1 if full in kinds else config.layers + 1
    if [kind == full for kind in kinds] != [(n + 1) % pattern == 0 for n in range(config.layers)]:
        raise UnsupportedError(f"{config.path}: the layers that see everything are not at even distances")
    return pattern


def _gemma_fields(config: ModelConfig) -> dict[str, Any]:
    # Gemma's first configs say "gelu" and mean its approximation.
    config.need("hidden_activation", "gelu_pytorch_tanh")
    config.need("hidden_act", "gelu", "gelu_pytorch_tanh")
    config.need("use_bidirectional_attention", False)
    return {}


def _gemma2_fields(config: ModelConfig) -> dict[str, Any]:
    _check_scale(config, layers_27b=46)
    check_pattern(config, 2)
    return _gemma_fields(config) | {
        "attn_logit_softcapping": config.get("attn_logit_softcapping"),
        "final_logit_softcapping": config.get("final_logit_softcapping"),
        "attention.sliding_window": config.get("sliding_window"),
    }


def _check_scale(config: ModelConfig, layers_27b: int) -> None:
    """The scale of queries is in no field: it is the head's, or in the models of 27B their own."""
    scale = config.count("hidden_size") / config.heads if config.layers == layers_27b else config.head_dim
    given = config.get("query_pre_attn_scalar")
    if given != scale:
        raise UnsupportedError(f"{config.path}: query_pre_attn_scalar is {given!r}; only {scale:g} is supported")


def check_pattern(config: ModelConfig, known: int) -> None:
    none = config.layers + 1  # of the layers sees everything
    if config.get("layer_types") is not None and min(found := _pattern(config), none) != min(known, none):
        raise UnsupportedError(
            f"{config.path}: every {found} layers one sees everything (layer_types); only {known} is supported"
        )


# ---- Granite, OLMo 2, SmolLM3, GLM-4


def granite_fields(config: ModelConfig) -> dict[str, Any]:
    return llama_fields(config) | {
        "attention.scale": config.get("attention_multiplier"),
        "embedding_scale": config.get("embedding_multiplier"),
        "residual_scale": config.get("residual_multiplier"),
        "logit_scale": config.get("logits_scaling"),
    }


def _smollm3_fields(config: ModelConfig) -> dict[str, Any]:
    interval, given = config.get("no_rope_layer_interval"), config.get("no_rope_layers")
    expected = [int((n + 1) % 4 != 0) for n in range(config.layers)]
    if interval != 4 or given not in (None, expected):
        raise UnsupportedError(f"{config.path}: only models whose fourth layers know no positions are supported")
    return qwen_fields(config) | {"rope.dimension_count": config.rotary}


def _rotary_fields(config: ModelConfig) -> dict[str, Any]:
    return only_silu(config) | {"rope.dimension_count": config.rotary}


# ---- StableLM, Starcoder 2, Phi 2, Command R


def _stablelm_fields(config: ModelConfig) -> dict[str, Any]:
    return _rotary_fields(config) | {"use_parallel_residual": config.get("use_parallel_residual")}


def _starcoder2_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("hidden_act", "gelu_pytorch_tanh")
    window = config.get("sliding_window")
    longest = config.count("max_position_embeddings")  # up to a window it makes no difference
    return {"context_length": min(longest, config.count("sliding_window")) if window else longest}


def _phi2_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("hidden_act", "gelu_new", "gelu_pytorch_tanh")
    config.need("qk_layernorm", False)
    return {"rope.dimension_count": config.rotary}


def _command_r_fields(config: ModelConfig) -> dict[str, Any]:
    return only_silu(config) | {"logit_scale": config.get("logit_scale"), "rope.scaling.type": "none"}


def _cohere2_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("attention_bias", False)
    config.need("sliding_window_pattern", 4)
    check_pattern(config, 4)
    window = {"attention.sliding_window": config.get("sliding_window")}
    return _command_r_fields(config) | window | {"rope.dimension_count": config.rotary}


# ---- GPT-2, GPT-NeoX, Falcon: queries, keys and values in one matrix


def _gpt2_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("activation_function", "gelu_new", "gelu_pytorch_tanh")
    config.need("scale_attn_weights", True)
    config.need("scale_attn_by_inverse_layer_idx", False)
    inner = config.get("n_inner")
    return {"feed_forward_length": 4 * config.count("n_embd") if inner is None else inner}


def _neox_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("hidden_act", "gelu")
    parallel = config.get("use_parallel_residual")
    fields = {"rope.dimension_count": config.rotary, "attention.head_count_kv": config.heads}
    return fields | {"use_parallel_residual": parallel}


def _falcon_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("alibi", False)
    config.need("parallel_attn", True)
    config.need("activation", "gelu")
    wide = config.get("ffn_hidden_size")
    return {
        "attention.head_count_kv": _falcon_kv_heads(config),
        "feed_forward_length": 4 * config.count("hidden_size") if wide is None else wide,
        "tensor_data_layout": "jploski",
    }


def _falcon_kv_heads(config: ModelConfig) -> int:
    if config.get("new_decoder_architecture"):
        return config.count("num_kv_heads", "n_head_kv", "num_attention_heads")
    return 1 if config.get("multi_query") else config.heads


def _neox_change(config: ModelConfig, tensor: GgufTensor) -> GgufTensor:
    return _ungrouped(tensor, config.heads, config.heads)


def _falcon_change(config: ModelConfig, tensor: GgufTensor) -> GgufTensor:
    return _ungrouped(tensor, config.heads, _falcon_kv_heads(config))


def _ungrouped(tensor: GgufTensor, heads: int, groups: int) -> GgufTensor:
    """Each group has its queries, then a key and a value; all queries, all keys and all values are wanted."""
    if ".attn_qkv." not in tensor.name:
        return tensor
    each = heads // groups + 2
    if not tensor.dims or tensor.dims[0] % (groups * each):
        raise ProgramError(f"{tensor.name} {list(tensor.dims)} does not have {groups} groups of {each} heads")
    rows = np.arange(tensor.dims[0]).reshape(groups, each, -1)
    parts = (rows[:, :-2], rows[:, -2], rows[:, -1])
    return reordered(tensor, np.concatenate([part.reshape(-1) for part in parts]))


# ---- LFM2


def lfm2_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("conv_bias", False)
    config.need("tie_embedding", True)
    kinds, found = config.get("layer_types"), config.get("full_attn_idxs")
    if kinds is None and isinstance(found, list):
        kinds = ["full_attention" if n in found else "conv" for n in range(config.layers)]
    if not isinstance(kinds, list) or len(kinds) != config.layers or not {"full_attention", "conv"}.issuperset(kinds):
        raise ProgramError(f"{config.path}: layer_types does not say which of {config.layers} layers are convolutions")
    return {
        "attention.head_count_kv": [0 if kind == "conv" else config.kv_heads for kind in kinds],
        "attention.layer_norm_rms_epsilon": config.get("norm_eps"),
        "shortconv.l_cache": config.count("conv_L_cache"),
    }


def _lfm2_dense_fields(config: ModelConfig) -> dict[str, Any]:
    return lfm2_fields(config) | {"feed_forward_length": _lfm2_hidden(config)}


def _lfm2_hidden(config: ModelConfig) -> int:
    """How wide the feed-forward half is: two thirds of what the config says, in whole multiples."""
    given = config.count("block_ff_dim", "intermediate_size")
    if not config.get("block_auto_adjust_ff_dim"):
        return given
    wanted = int(config.number("block_ffn_dim_multiplier", config.get("block_ffn_dim_multiplier")) * (2 * given // 3))
    multiple = config.count("block_multiple_of")
    return -(-wanted // multiple) * multiple


def lfm2_change(config: ModelConfig, tensor: GgufTensor) -> GgufTensor:
    """A convolution [width, 1, taps] has one column of its own; GGUF does not say so."""
    is_conv = tensor.name.endswith("shortconv.conv.weight") and len(tensor.dims) == 3 and tensor.dims[1] == 1
    return replace(tensor, dims=(tensor.dims[0], tensor.dims[2])) if is_conv else tensor


# ---- Phi 3


def _phi3_fields(config: ModelConfig) -> dict[str, Any]:
    trained = config.rope.get("original_max_position_embeddings")
    fields = only_silu(config) | {
        "rope.dimension_count": config.rotary,
        "rope.scaling.original_context_length": trained,
        "attention.sliding_window": config.get("sliding_window") or 0,
    }
    if config.rope.get("long_factor"):
        trained = config.number("original_max_position_embeddings", trained)
        longest = config.count("max_position_embeddings")
        longer = longest > trained > 1
        magnitude = math.sqrt(1 + math.log(longest / trained) / math.log(trained)) if longer else 1.0
        fields["rope.scaling.attn_factor"] = magnitude
    return fields


def _long_factors(config: ModelConfig) -> dict[str, np.ndarray]:
    if not config.rope.get("long_factor"):
        return {}
    found = {}
    for kind in ("long", "short"):
        factors = config.rope.get(f"{kind}_factor")
        if not isinstance(factors, list) or len(factors) != config.rotary // 2:
            raise ProgramError(f"{config.path}: {kind}_factor does not have {config.rotary // 2} numbers")
        numbers = [config.number(f"{kind}_factor", factor) for factor in factors]
        found[f"rope_factors_{kind}.weight"] = np.array(numbers, np.float32)
    return found


_ROPE = {"rope_theta": 10_000.0}
LLAMA = {**_ROPE, "rms_norm_eps": 1e-6, "max_position_embeddings": 2048}
MISTRAL = {**LLAMA, "num_key_value_heads": 8, "sliding_window": 4096, "max_position_embeddings": 131_072}
_MISTRAL3 = {**LLAMA, "rms_norm_eps": 1e-5, "num_key_value_heads": 8, "max_position_embeddings": 131_072}
QWEN = {**LLAMA, "max_position_embeddings": 32_768}
_GEMMA = {**LLAMA, "max_position_embeddings": 8192, "head_dim": 256, "tie_word_embeddings": True}
_GEMMA2 = {
    **_GEMMA,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
_GEMMA3 = {
    **_GEMMA,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
    "max_position_embeddings": 131_072,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
}
_PHI3 = {**LLAMA, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096}
_MULTIPLIERS = ("attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling")
GRANITE = {**LLAMA, **dict.fromkeys(_MULTIPLIERS, 1.0)}
_OLMO2 = {**LLAMA, "rms_norm_eps": 1e-5}
_SMOLLM3 = {**QWEN, "rope_theta": 2_000_000.0, "num_key_value_heads": 4, "tie_word_embeddings": True}
_SMOLLM3["no_rope_layer_interval"] = 4
_GLM4 = {**LLAMA, "rms_norm_eps": 1.5625e-7, "num_key_value_heads": 2, "head_dim": 128, "partial_rotary_factor": 0.5}
_GLM4["max_position_embeddings"] = 131_072
_LAYER_NORMS = {**_ROPE, "layer_norm_eps": 1e-5, "max_position_embeddings": 2048}
_STABLELM = {**_LAYER_NORMS, "max_position_embeddings": 4096, "partial_rotary_factor": 0.25}
_STABLELM |= {"num_key_value_heads": 32, "use_parallel_residual": False}
_STARCODER2 = {**_ROPE, "norm_epsilon": 1e-5, "max_position_embeddings": 4096, "num_key_value_heads": 2}
_STARCODER2["tie_word_embeddings"] = True
_PHI2 = {**_LAYER_NORMS, "partial_rotary_factor": 0.5}
_COMMAND_R = {**_LAYER_NORMS, "rope_theta": 500_000.0, "max_position_embeddings": 8192, "logit_scale": 0.0625}
_COMMAND_R["tie_word_embeddings"] = True
_COHERE2 = {**_COMMAND_R, "rope_theta": 10_000.0, "sliding_window": 4096}
_GPT2_LINEARS = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")
_GPT2 = {"n_positions": 1024, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}
_NEOX = {**_LAYER_NORMS, "rotary_pct": 0.25, "use_parallel_residual": True}
_FALCON = {**_ROPE, "layer_norm_epsilon": 1e-5, "max_position_embeddings": 2048, "multi_query": True}
_FALCON["tie_word_embeddings"] = True
LFM2 = {"rope_theta": 1_000_000.0, "norm_eps": 1e-5, "max_position_embeddings": 128_000, "num_key_value_heads": 8}
LFM2 |= {"tie_word_embeddings": True, "conv_L_cache": 3}
_LFM2 = {**LFM2, "intermediate_size": 12_288, "block_auto_adjust_ff_dim": True}
_LFM2 |= {"block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256}
_GEMMA3_RECIPE = FolderRecipe("gemma3", _GEMMA3, _gemma3_fields, _norms_up)

RECIPES: dict[str, FolderRecipe] = {
    "llama": FolderRecipe("llama", LLAMA, llama_fields, turned),
    "mistral": FolderRecipe("llama", MISTRAL, llama_fields, turned),
    "ministral": FolderRecipe("llama", MISTRAL, _ministral_fields, turned),
    "mistral3": FolderRecipe("mistral3", _MISTRAL3, _mistral3_fields, turned),
    "ministral3": FolderRecipe("mistral3", {**_MISTRAL3, "head_dim": 128}, _mistral3_fields, turned),
    "qwen2": FolderRecipe("qwen2", QWEN, qwen_fields),
    "qwen3": FolderRecipe("qwen3", {**QWEN, "head_dim": 128}, qwen_fields),
    "gemma": FolderRecipe("gemma", _GEMMA, _gemma_fields, _norms_up),
    "gemma2": FolderRecipe("gemma2", _GEMMA2, _gemma2_fields, _norms_up),
    "gemma3_text": _GEMMA3_RECIPE,
    "gemma3": _GEMMA3_RECIPE,
    "phi": FolderRecipe("phi2", _PHI2, _phi2_fields),
    "phi3": FolderRecipe("phi3", _PHI3, _phi3_fields, extra=_long_factors),
    "granite": FolderRecipe("granite", GRANITE, granite_fields, turned),
    "olmo2": FolderRecipe("olmo2", _OLMO2, only_silu),
    "smollm3": FolderRecipe("smollm3", _SMOLLM3, _smollm3_fields, turned),
    "glm4": FolderRecipe("glm4", _GLM4, _rotary_fields),
    "stablelm": FolderRecipe("stablelm", _STABLELM, _stablelm_fields),
    "starcoder2": FolderRecipe("starcoder2", _STARCODER2, _starcoder2_fields),
    "cohere": FolderRecipe("command-r", _COMMAND_R, _command_r_fields),
    "cohere2": FolderRecipe("cohere2", _COHERE2, _cohere2_fields),
    "gpt2": FolderRecipe("gpt2", _GPT2, _gpt2_fields, transposed=_GPT2_LINEARS),
    "gpt_neox": FolderRecipe("gptneox", _NEOX, _neox_fields, _neox_change),
    "falcon": FolderRecipe("falcon", _FALCON, _falcon_fields, _falcon_change),
    "lfm2": FolderRecipe("lfm2", _LFM2, _lfm2_dense_fields, lfm2_change),
}
