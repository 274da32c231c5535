"""Hugging Face folders for tests, written from GGUF files: HF's names, its q and k, norms without their 1."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

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
VOCAB = 291  # tokens of the tokenizers below
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message.role }}] {{ message.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


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


def write_adapter(folder: Path, pairs: Mapping[str, tuple[np.ndarray, np.ndarray]], **config: Any) -> Path:
    """As `PeftModel.save_pretrained` writes it; (A [rank, in], B [out, rank]) by the module's name in transformers."""
    folder.mkdir()
    given = {"peft_type": "LORA", "bias": "none", "target_modules": ["q_proj"]} | config
    folder.joinpath("adapter_config.json").write_text(json.dumps(given), "utf-8")
    sides = {
        f"{module}.lora_{side}": matrix
        for module, both in pairs.items()
        for side, matrix in zip("AB", both, strict=True)
    }
    tensors = {f"base_model.model.{name}.weight": matrix.astype(np.float32) for name, matrix in sides.items()}
    folder.joinpath("adapter_model.safetensors").write_bytes(safetensors_bytes(tensors))
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


def write_byte_level(folder: Path) -> None:
    """Byte-level BPE of 256 bytes and a few words, with a template and two tokens that end an answer."""
    special = ["<pad>", "<s>", "</s>", "<|eot|>"]
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    pairs = "t h|th e|Ġ a|Ġ the|o n|i n|e r|r e|a t|e n|o r|Ġ s|Ġ w|l l|o u|i s|e s"
    merges = [tuple(pair.split()) for pair in re.split(r"\|", pairs)]
    tokens = [*special, *alphabet, *("".join(pair) for pair in merges)]
    tokens += [f"<extra_{n}>" for n in range(VOCAB - len(tokens))]
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({token: n for n, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(special)
    folder.joinpath("tokenizer.json").write_text(backend.to_str(), "utf-8")
    config = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "add_bos_token": True,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    folder.joinpath("tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    folder.joinpath("chat_template.jinja").write_text(TEMPLATE, "utf-8")
    ends = {"bos_token_id": 1, "eos_token_id": [2, 3]}
    folder.joinpath("generation_config.json").write_text(json.dumps(ends), "utf-8")


def write_sentencepiece(folder: Path) -> None:
    """Merged characters with bytes to fall back on and a space before the text, as Llama 2 has it."""
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *"▁hetaoinsrl",
        "he",
        "▁t",
        "in",
        "▁the",
    ]
    merges = [("h", "e"), ("▁", "t"), ("i", "n"), ("▁t", "he")]
    ids = {token: n for n, token in enumerate(tokens)}
    model = tokenizers.models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    backend = tokenizers.Tokenizer(model)
    steps = [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    backend.normalizer = tokenizers.normalizers.Sequence(steps)
    d = tokenizers.decoders
    backend.decoder = d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    folder.joinpath("tokenizer.json").write_text(backend.to_str(), "utf-8")
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "chat_template": TEMPLATE}
    folder.joinpath("tokenizer_config.json").write_text(json.dumps(config), "utf-8")
