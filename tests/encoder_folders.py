"""Hugging Face folders of the small encoders, written from their GGUF files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from hf_folders import write_folder

from hightide.formats.gguf import GgufFile, read_gguf
from hightide.ops.blocks.layout import dequantize

ENCODERS = Path(__file__).parent / "models" / "encoders"
BERT = {
    "token_embd": "embeddings.word_embeddings",
    "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
    "attn_q": "encoder.layer.{n}.attention.self.query",
    "attn_k": "encoder.layer.{n}.attention.self.key",
    "attn_v": "encoder.layer.{n}.attention.self.value",
    "attn_output": "encoder.layer.{n}.attention.output.dense",
    "attn_output_norm": "encoder.layer.{n}.attention.output.LayerNorm",
    "ffn_up": "encoder.layer.{n}.intermediate.dense",
    "ffn_down": "encoder.layer.{n}.output.dense",
    "layer_output_norm": "encoder.layer.{n}.output.LayerNorm",
    "cls": "classifier.dense",
    "cls.output": "classifier.out_proj",
}
NOMIC = {
    "token_embd": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "emb_ln",
    "attn_qkv": "encoder.layers.{n}.attn.Wqkv",
    "attn_output": "encoder.layers.{n}.attn.out_proj",
    "attn_output_norm": "encoder.layers.{n}.norm1",
    "ffn_up": "encoder.layers.{n}.mlp.fc11",
    "ffn_gate": "encoder.layers.{n}.mlp.fc12",
    "ffn_down": "encoder.layers.{n}.mlp.fc2",
    "layer_output_norm": "encoder.layers.{n}.norm2",
}
MODERN = {
    "token_embd": "model.embeddings.tok_embeddings",
    "token_embd_norm": "model.embeddings.norm",
    "attn_norm": "model.layers.{n}.attn_norm",
    "attn_qkv": "model.layers.{n}.attn.Wqkv",
    "attn_output": "model.layers.{n}.attn.Wo",
    "ffn_norm": "model.layers.{n}.mlp_norm",
    "ffn_up": "model.layers.{n}.mlp.Wi",
    "ffn_down": "model.layers.{n}.mlp.Wo",
    "output_norm": "model.final_norm",
    "cls": "head.dense",
    "cls.norm": "head.norm",
    "cls.output": "classifier",
}
SIZES = {
    "vocab_size": 131,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


def encoder_weights(file: GgufFile, names: Mapping[str, str], prefix: str = "") -> dict[str, np.ndarray]:
    found = {}
    for tensor in file.tensors.values():
        body, _, end = tensor.name.rpartition(".")
        layer, kind = body.split(".", 2)[1:] if body.startswith("blk.") else ("", body)
        name = names[kind].replace("{n}", layer)
        found[f"{'' if kind.startswith('cls') else prefix}{name}.{end}"] = dequantize(
            tensor.data, tensor.type, tensor.dims
        )
    return found


def encoder_folder(name: str, folder: Path) -> Path:
    """One of `models/encoders/`, as transformers would save it."""
    file = read_gguf(ENCODERS / f"{name}.gguf")
    if name == "nomic":
        names = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_inner": 64, "n_positions": 64, "vocab_size": 131}
        config = {"model_type": "nomic_bert", **names, "rotary_emb_base": 300.0, "activation_function": "swiglu"}
        return write_folder(folder, config, encoder_weights(file, NOMIC))
    if name.startswith("modern"):
        kind = "ModernBertForSequenceClassification" if name == "modern_rank" else "ModernBertModel"
        config = {"model_type": "modernbert", "architectures": [kind], **SIZES, "num_hidden_layers": 4}
        config |= {"local_attention": 10, "classifier_pooling": "mean"}
        config |= {"global_rope_theta": 2000.0, "local_rope_theta": 50.0}
        return write_folder(folder, config, encoder_weights(file, MODERN))
    if name == "roberta_rank":
        tensors = encoder_weights(file, BERT, "roberta.")
        table = tensors["roberta.embeddings.position_embeddings.weight"]
        tensors["roberta.embeddings.position_embeddings.weight"] = np.concatenate([np.full((2, 32), 9, "f4"), table])
        config = {"model_type": "xlm-roberta", "architectures": ["XLMRobertaForSequenceClassification"], **SIZES}
        return write_folder(folder, config | {"max_position_embeddings": 66, "pad_token_id": 1}, tensors)
    config = {"model_type": "bert", "architectures": ["BertModel"], **SIZES}
    unused = {"embeddings.position_ids": np.arange(64, dtype=np.int32)[None]}
    unused |= {f"pooler.dense.{end}": np.zeros((32, 32)[: 2 - (end == "bias")], "f4") for end in ("weight", "bias")}
    old = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma"): value for key, value in encoder_weights(file, BERT).items()
    }
    return write_folder(folder, config, old | unused)
