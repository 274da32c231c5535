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
from hightide.formats.model_tensors import interleaved, shifted

Fields = Callable[[ModelConfig], dict[str, Any]]
Change = Callable[[ModelConfig, GgufTensor], GgufTensor]
Extra = Callable[[ModelConfig], dict[str, np.ndarray]]


@dataclass(frozen=True)
class FolderRecipe:
    architecture: str  # as GGUF names it
    defaults: Mapping[str, Any] = field(default_factory=dict)  # what the config may leave out
    fields: Fields = lambda config: {}  # beside those of all models
    change: Change = lambda config, tensor: tensor  # of a tensor with its name in GGUF
    extra: Extra = lambda config: {}  # tensors that the folder has as numbers in its config


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
    config.need("hidden_activation", "gelu_pytorch_tanh")
    config.need("use_bidirectional_attention", False)
    config.need("attn_logit_softcapping")
    scale = config.count("hidden_size") / config.heads if config.layers == 62 else config.head_dim
    if config.get("query_pre_attn_scalar") != scale:
        given = config.get("query_pre_attn_scalar")
        raise UnsupportedError(f"{config.path}: query_pre_attn_scalar is {given!r}; only {scale:g} is supported")
    fields = {
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


# ---- Phi


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
_SMALL_EPS = {"rms_norm_eps": 1e-6, **_ROPE}
_GEMMA3 = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "max_position_embeddings": 131_072,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "tie_word_embeddings": True,
}
_GEMMA3_RECIPE = FolderRecipe("gemma3", _GEMMA3, _gemma3_fields, _norms_up)
_MISTRAL = {**_SMALL_EPS, "num_key_value_heads": 8, "sliding_window": 4096, "max_position_embeddings": 131_072}

RECIPES: dict[str, FolderRecipe] = {
    "llama": FolderRecipe(
        "llama", {**_SMALL_EPS, "max_position_embeddings": 2048}, _llama_fields, _turned, _rope_freqs
    ),
    "mistral": FolderRecipe("llama", _MISTRAL, _llama_fields, _turned, _rope_freqs),
    "qwen2": FolderRecipe("qwen2", {**_SMALL_EPS, "max_position_embeddings": 32_768}, _qwen_fields),
    "qwen3": FolderRecipe("qwen3", {**_SMALL_EPS, "max_position_embeddings": 32_768, "head_dim": 128}, _qwen_fields),
    "gemma3_text": _GEMMA3_RECIPE,
    "gemma3": _GEMMA3_RECIPE,
    "phi3": FolderRecipe(
        "phi3",
        {**_ROPE, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096},
        _phi3_fields,
        extra=_long_factors,
    ),
}
