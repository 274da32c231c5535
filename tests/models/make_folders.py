"""Makes the small Hugging Face folders of `folders/` and their logits: `python make_folders.py [NAME ...]`.

Needs `torch==2.13.0`, `transformers` and `tokenizers`; running the tests needs none of the first two. Every
model is a random one, saved by transformers itself. Its eager attention in float64 gives the logits of all tokens:
`NAME.npz`. With `--out FOLDER` they go there, those that are not kept, too; `check_converter.py` compares them with
llama.cpp's.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[1]))
from hf_folders import VOCAB, write_byte_level

HERE = Path(__file__).parent / "folders"
TOKENS = 41
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0 + 0.05 * n for n in range(6)],
    "long_factor": [1.1 + 0.4 * n for n in range(6)],
}


@dataclass(frozen=True)
class Folder:
    """A model to make: the transformers classes, and what they are configured with."""

    model: str
    config: str
    options: dict[str, Any]
    dtype: torch.dtype = torch.bfloat16
    shard_bytes: str = "1GB"
    kept: bool = True  # in the repository


def _folder(name: str, *, kept: bool = True, config: str = "", **options: Any) -> Folder:
    return Folder(f"{name}ForCausalLM", config or f"{name}Config", options, kept=kept)


FOLDERS = {
    "llama": Folder("LlamaForCausalLM", "LlamaConfig", {"rope_parameters": LLAMA3}, shard_bytes="30KB"),
    "mistral": Folder("MistralForCausalLM", "MistralConfig", {"sliding_window": 9}, dtype=torch.float16),
    "qwen2": _folder("Qwen2", rope_parameters=YARN, tie_word_embeddings=True),
    "qwen3": _folder("Qwen3", head_dim=32, tie_word_embeddings=True),
    "gemma3": _folder(
        "Gemma3",
        config="Gemma3TextConfig",
        head_dim=16,
        query_pre_attn_scalar=16,
        sliding_window=9,
        num_hidden_layers=4,
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
        final_logit_softcapping=3.0,
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 20_000.0},
        },
    ),
    "phi3": _folder(
        "Phi3",
        rope_parameters=LONGROPE,
        original_max_position_embeddings=24,
        sliding_window=30,
        tie_word_embeddings=True,
    ),
    "gemma": _folder("Gemma", kept=False, head_dim=16),
    "gemma2": _folder("Gemma2", head_dim=16, query_pre_attn_scalar=16, sliding_window=9),
    "granite": _folder(
        "Granite",
        embedding_multiplier=3.0,
        logits_scaling=2.0,
        residual_multiplier=0.5,
        attention_multiplier=0.2,
    ),
    "olmo2": _folder("Olmo2", kept=False),
    "smollm3": _folder("SmolLM3", kept=False, num_hidden_layers=4, tie_word_embeddings=True),
    "stablelm": _folder("StableLm", kept=False, use_qkv_bias=True),
    "stablelm_norms": _folder("StableLm", qk_layernorm=True, use_parallel_residual=True),
    "starcoder2": _folder("Starcoder2", kept=False),
    "gpt2": Folder(
        "GPT2LMHeadModel", "GPT2Config", {"n_embd": 32, "n_head": 2, "n_layer": 2, "n_positions": 256}, kept=True
    ),
    "gpt_neox": _folder("GPTNeoX"),
    "falcon": _folder("Falcon", kept=False, alibi=False, multi_query=True, parallel_attn=True),
    "falcon_new": _folder("Falcon", alibi=False, new_decoder_architecture=True, num_kv_heads=1),
    "cohere": _folder("Cohere"),
    "cohere_norms": _folder("Cohere", kept=False, use_qk_norm=True),
    "glm4": _folder("Glm4", kept=False, head_dim=16),
    "phi": _folder("Phi", kept=False),
    "lfm2": _folder("Lfm2", layer_types=["conv", "full_attention"], intermediate_size=80, block_multiple_of=32),
}


def make(name: str, out: Path) -> None:
    spec = FOLDERS[name]
    sizes: dict[str, Any] = {"vocab_size": VOCAB, "num_hidden_layers": 2, "max_position_embeddings": 256}
    sizes |= {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    given = (ids | {"vocab_size": VOCAB} if "n_embd" in spec.options else sizes | ids) | spec.options
    config = getattr(transformers, spec.config)(**given, attn_implementation="eager")
    torch.manual_seed(sum(map(ord, name)))
    model = getattr(transformers, spec.model)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases are random, too
            parameter += torch.randn_like(parameter) * (0.1 if parameter.ndim > 1 else 0.3)
    model.to(spec.dtype).save_pretrained(out / name, max_shard_size=spec.shard_bytes)
    # Read again: in the model above the rotary frequencies were rounded with the weights.
    model = getattr(transformers, spec.model).from_pretrained(
        out / name, dtype=torch.float32, attn_implementation="eager"
    )
    if name == "llama" or out != HERE:  # the converter wants to see one
        write_byte_level(out / name)
    tokens = np.random.default_rng(7).integers(3, VOCAB, TOKENS)
    with torch.no_grad():
        logits = model.eval().double()(torch.tensor(tokens)[None]).logits[0].numpy()
    np.savez_compressed(out / f"{name}.npz", tokens=tokens, logits=logits.astype(np.float32))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    for each in arguments.names or [name for name, spec in FOLDERS.items() if spec.kept or arguments.out]:
        print(each, flush=True)
        make(each, arguments.out or HERE)
