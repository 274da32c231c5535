"""How a Hugging Face folder becomes what a GGUF file of the same model has: one row per `model_type`.

A row says which architecture it is, what transformers takes for values that a config leaves out, which fields there are
beside those of all models, and what llama.cpp's converter changes in the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class FolderRecipe:
    architecture: str  # as GGUF names it
    defaults: Mapping[str, Any] = field(default_factory=dict)  # what the config may leave out
    fields: Fields = lambda config: {}  # beside those of all models
    change: Change = lambda config, tensor: tensor  # of the rows of a tensor with its name in GGUF
    extra: Extra = lambda config: {}  # tensors that the folder has as numbers in its config
    rename: Rename = lambda config, name: name  # of a tensor, to what gguf's map of names knows; None: it is not used
    transposed: tuple[str, ...] = ()  # ends of the names of matrices that it holds as [in, out]


# ---- Llama, and what turns as it does


def _turned(config: ModelConfig, tensor: GgufTensor) -> GgufTensor:
    kind = tensor.name.rpartition(".")[0].rpartition(".")[2]
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(kind)
    return tensor if heads is None else interleaved(tensor, heads)


def _silu(config: ModelConfig) -> dict[str, Any]:
    config.need("hidden_act", "silu", "swish")
    return {}


def _llama_fields(config: ModelConfig) -> dict[str, Any]:
    window = config.get("sliding_window") or 0
    return _silu(config) | {"rope.dimension_count": config.rotary, "attention.sliding_window": window}


def _rope_freqs(config: ModelConfig) -> dict[str, np.ndarray]:
    factors = config.llama3_factors()
    return {} if factors is None else {"rope_freqs.weight": factors}


# ---- Qwen


def _qwen_fields(config: ModelConfig) -> dict[str, Any]:
    fields = _silu(config)
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
    _pattern_is(config, 2)
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


def _pattern_is(config: ModelConfig, known: int) -> None:
    if config.get("layer_types") is not None and (found := _pattern(config)) != known:
        raise UnsupportedError(f"{config.path}: every {found} layers one sees everything; only {known} is supported")


# ---- Granite, OLMo 2, SmolLM3, GLM-4


def _granite_fields(config: ModelConfig) -> dict[str, Any]:
    return _llama_fields(config) | {
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
    return _qwen_fields(config) | {"rope.dimension_count": config.rotary}


def _rotary_fields(config: ModelConfig) -> dict[str, Any]:
    return _silu(config) | {"rope.dimension_count": config.rotary}


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
    return _silu(config) | {"logit_scale": config.get("logit_scale"), "rope.scaling.type": "none"}


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


# ---- Phi 3


def _phi3_fields(config: ModelConfig) -> dict[str, Any]:
    trained = config.rope.get("original_max_position_embeddings")
    fields = _silu(config) | {
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
_LLAMA = {**_ROPE, "rms_norm_eps": 1e-6, "max_position_embeddings": 2048}
_MISTRAL = {**_LLAMA, "num_key_value_heads": 8, "sliding_window": 4096, "max_position_embeddings": 131_072}
_QWEN = {**_LLAMA, "max_position_embeddings": 32_768}
_GEMMA = {**_LLAMA, "max_position_embeddings": 8192, "head_dim": 256, "tie_word_embeddings": True}
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
_PHI3 = {**_LLAMA, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096}
_MULTIPLIERS = ("attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling")
_GRANITE = {**_LLAMA, **dict.fromkeys(_MULTIPLIERS, 1.0)}
_OLMO2 = {**_LLAMA, "rms_norm_eps": 1e-5}
_SMOLLM3 = {**_QWEN, "rope_theta": 2_000_000.0, "num_key_value_heads": 4, "tie_word_embeddings": True}
_SMOLLM3["no_rope_layer_interval"] = 4
_GLM4 = {**_LLAMA, "rms_norm_eps": 1.5625e-7, "num_key_value_heads": 2, "head_dim": 128, "partial_rotary_factor": 0.5}
_GLM4["max_position_embeddings"] = 131_072
_LAYER_NORMS = {**_ROPE, "layer_norm_eps": 1e-5, "max_position_embeddings": 2048}
_STABLELM = {**_LAYER_NORMS, "max_position_embeddings": 4096, "partial_rotary_factor": 0.25}
_STABLELM |= {"num_key_value_heads": 32, "use_parallel_residual": False}
_STARCODER2 = {**_ROPE, "norm_epsilon": 1e-5, "max_position_embeddings": 4096, "num_key_value_heads": 2}
_STARCODER2["tie_word_embeddings"] = True
_PHI2 = {**_LAYER_NORMS, "partial_rotary_factor": 0.5}
_COMMAND_R = {**_LAYER_NORMS, "rope_theta": 500_000.0, "max_position_embeddings": 8192, "logit_scale": 0.0625}
_COMMAND_R["tie_word_embeddings"] = True
_GPT2_LINEARS = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")
_GPT2 = {"n_positions": 1024, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}
_NEOX = {**_LAYER_NORMS, "rotary_pct": 0.25, "use_parallel_residual": True}
_FALCON = {**_ROPE, "layer_norm_epsilon": 1e-5, "max_position_embeddings": 2048, "multi_query": True}
_FALCON["tie_word_embeddings"] = True
_GEMMA3_RECIPE = FolderRecipe("gemma3", _GEMMA3, _gemma3_fields, _norms_up)

RECIPES: dict[str, FolderRecipe] = {
    "llama": FolderRecipe("llama", _LLAMA, _llama_fields, _turned, _rope_freqs),
    "mistral": FolderRecipe("llama", _MISTRAL, _llama_fields, _turned, _rope_freqs),
    "qwen2": FolderRecipe("qwen2", _QWEN, _qwen_fields),
    "qwen3": FolderRecipe("qwen3", {**_QWEN, "head_dim": 128}, _qwen_fields),
    "gemma": FolderRecipe("gemma", _GEMMA, _gemma_fields, _norms_up),
    "gemma2": FolderRecipe("gemma2", _GEMMA2, _gemma2_fields, _norms_up),
    "gemma3_text": _GEMMA3_RECIPE,
    "gemma3": _GEMMA3_RECIPE,
    "phi": FolderRecipe("phi2", _PHI2, _phi2_fields),
    "phi3": FolderRecipe("phi3", _PHI3, _phi3_fields, extra=_long_factors),
    "granite": FolderRecipe("granite", _GRANITE, _granite_fields, _turned),
    "olmo2": FolderRecipe("olmo2", _OLMO2, _silu),
    "smollm3": FolderRecipe("smollm3", _SMOLLM3, _smollm3_fields, _turned, _rope_freqs),
    "glm4": FolderRecipe("glm4", _GLM4, _rotary_fields),
    "stablelm": FolderRecipe("stablelm", _STABLELM, _stablelm_fields),
    "starcoder2": FolderRecipe("starcoder2", _STARCODER2, _starcoder2_fields),
    "cohere": FolderRecipe("command-r", _COMMAND_R, _command_r_fields),
    "gpt2": FolderRecipe("gpt2", _GPT2, _gpt2_fields, transposed=_GPT2_LINEARS),
    "gpt_neox": FolderRecipe("gptneox", _NEOX, _neox_fields, _neox_change),
    "falcon": FolderRecipe("falcon", _FALCON, _falcon_fields, _falcon_change),
}
