"""Hugging Face folders for tests, written from GGUF files: HF's names, its q and k, norms without their 1."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hightide.formats.gguf import GgufFile
from hightide.ops.blocks.layout import dequantize

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def safetensors_bytes(tensors: Mapping[str, np.ndarray], kinds: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file; `kinds` are types that NumPy lacks, such as BF16 for 16-bit integers."""
    names = {"float64": "F64", "float32": "F32", "float16": "F16", "int32": "I32", "uint8": "U8"}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in tensors.items():
        kind = (kinds or {}).get(name) or names[str(array.dtype)]
        place = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": place}
        data += np.ascontiguousarray(array).tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write_folder(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    folder.joinpath("config.json").write_text(json.dumps(config), "utf-8")
    folder.joinpath("model.safetensors").write_bytes(safetensors_bytes(tensors))
    return folder


def folder_tensors(file: GgufFile) -> dict[str, np.ndarray]:
    """The weights of a GGUF model in float32, as transformers names and holds them."""
    found = {}
    for tensor in file.tensors.values():
        if tensor.name.startswith("rope_"):
            continue
        array = dequantize(tensor.data, tensor.type, tensor.dims)
        body, _, end = tensor.name.rpartition(".")
        layer, kind = body.split(".")[1:] if body.startswith("blk.") else ("", body)
        name = (NAMES | GEMMA if file.architecture == "gemma3" else NAMES)[kind]
        if file.architecture == "phi3" and kind == "ffn_up":
            name = "mlp.gate_up_proj"
        if file.architecture == "gemma3" and kind.endswith("norm"):
            array = array - 1
        if file.architecture == "llama" and kind in ("attn_q", "attn_k"):
            heads = file.get("attention.head_count" if kind == "attn_q" else "attention.head_count_kv")
            array = array.reshape(heads, -1, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        found[(f"model.layers.{layer}." if layer else "") + f"{name}.{end}"] = array
    return found
