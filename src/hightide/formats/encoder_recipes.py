"""Hugging Face folders of encoders: the rows of BERT and its kin in the table of recipes."""

from __future__ import annotations

from typing import Any

import numpy as np

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.folder_recipes import FolderRecipe
from hightide.formats.gguf import GgufTensor
from hightide.formats.model_config import ModelConfig
from hightide.formats.model_tensors import reordered
from hightide.formats.safetensors import read_json

POOLINGS = {"mean": 1, "cls": 2, "lasttoken": 3}  # as GGUF numbers what sentence-transformers names
PREFIXES = ("bert.", "roberta.", "model.")
HEADS = ("cls.predictions", "cls.seq_relationship", "lm_head.", "decoder.")  # that guess words


# ---- BERT, RoBERTa and XLM-R


def _bert_name(config: ModelConfig, name: str) -> str | None:
    name = name.replace(".gamma", ".weight").replace(".beta", ".bias")  # as the first ones were saved
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    if name == "embeddings.position_ids" or name.startswith(HEADS):
        return None
    if name.startswith("pooler."):  # a classifier reads what it makes; a vector is made without it
        return name.replace("pooler.dense", "classifier.dense") if _classifies(config) else None
    out, _, of = name.rpartition(".")
    return f"classifier.out_proj.{of}" if out == "classifier" else name


def _classifies(config: ModelConfig) -> bool:
    names = config.get("architectures") or []
    if not isinstance(names, list):
        raise ProgramError(f"{config.path}: architectures is {names!r}, not a list")
    return any("ForSequenceClassification" in str(name) for name in names)


def _bert_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("hidden_act", "gelu")
    config.need("position_embedding_type", "absolute")
    config.need("is_decoder", False)
    return {"attention.causal": False, **_pooling(config)}


def _roberta_fields(config: ModelConfig) -> dict[str, Any]:
    return _bert_fields(config) | {"context_length": config.count("max_position_embeddings") - _offset(config)}


def _offset(config: ModelConfig) -> int:
    """Positions are counted from here on."""
    return 1 + (config.count("pad_token_id") if config.get("pad_token_id") else 0)


def _from_offset(config: ModelConfig, tensor: GgufTensor) -> GgufTensor:
    if tensor.name != "position_embd.weight":
        return tensor
    if len(tensor.dims) != 2 or tensor.dims[0] <= _offset(config):
        raise ProgramError(f"{config.path}: the table of positions has dims {list(tensor.dims)}")
    return reordered(tensor, np.arange(_offset(config), tensor.dims[0]))


def _pooling(config: ModelConfig) -> dict[str, Any]:
    """What the files of sentence-transformers say, where there are any."""
    found = sorted(config.path.parent.glob("*_Pooling/config.json"))
    if not found:
        return {}
    said = read_json(found[0])
    modes = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "lasttoken": "pooling_mode_lasttoken"}
    chosen: list[Any] = [mode for mode, name in modes.items() if said.get(name) is True] or [said.get("pooling_mode")]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise UnsupportedError(f"{found[0]} pools rows in another way than {', '.join(POOLINGS)}")
    return {"pooling_type": POOLINGS[chosen[0]]}


# ---- Nomic's


def _nomic_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("activation_function", "swiglu")
    config.need("hidden_act", "silu")
    config.need("prenorm", False)
    config.need("rotary_emb_fraction", 1.0)
    config.need("rotary_emb_interleaved", False)
    config.need("moe_every_n_layers", 0)
    fields: dict[str, Any] = {"attention.causal": False, **_pooling(config)}
    if trained := config.get("max_trained_positions"):
        fields["context_length"] = min(trained, config.count("n_positions"))
    return fields


# ---- ModernBERT


def _modern_fields(config: ModelConfig) -> dict[str, Any]:
    config.need("hidden_activation", "gelu", "silu")
    for name in ("attention_bias", "mlp_bias", "norm_bias"):
        config.need(name, False)
    fields = {
        "attention.causal": False,
        "attention.sliding_window": config.count("local_attention"),
        "attention.sliding_window_pattern": config.count("global_attn_every_n_layers"),
        "attention.layer_norm_epsilon": config.get("norm_eps"),
        "hidden_activation": config.get("hidden_activation"),
        "rope.freq_base": config.rope.get("rope_theta", config.get("global_rope_theta")),
        "rope.freq_base_swa": config.local_theta or config.get("local_rope_theta"),
    }
    if _classifies(config):
        fields["classifier.pooling_type"] = POOLINGS.get(str(config.get("classifier_pooling")), 0)
    return fields | _pooling(config)


def _modern_name(config: ModelConfig, name: str) -> str | None:
    name = name.removeprefix("model.")
    if not _classifies(config) and name.startswith(("head.", "decoder.")):
        return None
    return name.replace("classifier.", "classifier.out_proj.") if name.startswith("classifier.") else name


_BERT = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-12,
}
_ROBERTA = FolderRecipe("bert", _BERT | {"pad_token_id": 1}, _roberta_fields, _from_offset, rename=_bert_name)
_MODERN = {
    "hidden_size": 768,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "intermediate_size": 1152,
    "max_position_embeddings": 8192,
    "norm_eps": 1e-5,
    "local_attention": 128,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160_000.0,
    "local_rope_theta": 10_000.0,
    "hidden_activation": "gelu",
    "classifier_pooling": "cls",
}

ENCODER_RECIPES = {
    "bert": FolderRecipe("bert", _BERT, _bert_fields, rename=_bert_name),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "nomic_bert": FolderRecipe("nomic-bert", {"layer_norm_epsilon": 1e-12}, _nomic_fields, rename=_bert_name),
    "modernbert": FolderRecipe("modern-bert", _MODERN, _modern_fields, rename=_modern_name),
}
