"""Makes the small Hugging Face folders of `folders/` and their logits: `python make_folders.py [NAME ...]`.

Needs `torch==2.13.0`, `transformers` and `tokenizers`; running the tests needs none of the first two. Every
model is a random one, saved by transformers itself. Its eager attention in float64 gives the logits of all tokens:
`NAME.npz`. With `--out FOLDER` they go there, those that are not kept, too; `check_converter.py` compares them with
llama.cpp's.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[1]))
from hf_folders import VOCAB, write_byte_level

HERE = Path(__file__).parent / "folders"
TOKENS = 41
FP8_BLOCK = (32, 16)
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MINISTRAL3 = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 12,
    "beta_fast": 4.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.5,
}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0 + 0.05 * n for n in range(6)],
    "long_factor": [1.1 + 0.4 * n for n in range(6)],
}
SIZES: dict[str, Any] = {"vocab_size": VOCAB, "num_hidden_layers": 2, "max_position_embeddings": 256}
SIZES |= {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
PIXTRAL = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
PIXTRAL |= {"image_size": 28, "patch_size": 14, "head_dim": 16}
TEXT_OF_BOTH = {"model_type": "ministral3", "head_dim": 16, "rope_parameters": MINISTRAL3, **SIZES, **IDS}


@dataclass(frozen=True)
class Folder:
    """A model to make: the transformers classes, and what they are configured with."""

    model: str
    config: str
    options: dict[str, Any]
    dtype: torch.dtype = torch.bfloat16
    shard_bytes: str = "1GB"
    kept: bool = True  # in the repository
    method: str = ""  # how weights are held in few bits, as quant_method says


def _folder(name: str, *, kept: bool = True, config: str = "", method: str = "", **options: Any) -> Folder:
    return Folder(f"{name}ForCausalLM", config or f"{name}Config", options, kept=kept, method=method)


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32}
GRANITE = {"embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2}
GPT_OSS = {**LOCAL_EXPERTS, "head_dim": 16, "sliding_window": 9, "rope_parameters": YARN | {"truncate": False}}
LATENT = {
    "num_key_value_heads": 2,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 32,
    "v_head_dim": 48,  # not that of keys
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 1.5,
}


FOLDERS = {
    "llama": Folder("LlamaForCausalLM", "LlamaConfig", {"rope_parameters": LLAMA3}, shard_bytes="30KB"),
    "mistral": Folder("MistralForCausalLM", "MistralConfig", {"sliding_window": 9}, dtype=torch.float16),
    "qwen2": _folder("Qwen2", rope_parameters=YARN, tie_word_embeddings=True),
    "qwen3": _folder("Qwen3", head_dim=32, rope_parameters=LLAMA3, tie_word_embeddings=True),
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
    "granite": _folder("Granite", **GRANITE),
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
    "ministral3": _folder("Ministral3", kept=False, head_dim=16, rope_parameters=MINISTRAL3),
    "ministral": _folder("Ministral", kept=False, head_dim=16, sliding_window=9),
    "mistral3": Folder(
        "Mistral3ForConditionalGeneration", "Mistral3Config", {"text_config": TEXT_OF_BOTH, "vision_config": PIXTRAL}
    ),
    "cohere2": _folder("Cohere2", num_hidden_layers=5, sliding_window=9, logit_scale=0.25),
    "qwen3_fp8": _folder(
        "Qwen3", method="fp8", hidden_size=96, intermediate_size=160, head_dim=32, num_hidden_layers=1
    ),
    "mixtral": _folder("Mixtral", **LOCAL_EXPERTS),
    "qwen2_moe": _folder("Qwen2Moe", **EXPERTS, shared_expert_intermediate_size=48),
    "qwen3_moe": _folder("Qwen3Moe", **EXPERTS, head_dim=32, norm_topk_prob=True),
    "lfm2_moe": _folder("Lfm2Moe", **EXPERTS, layer_types=["conv", "full_attention"], num_dense_layers=1),
    "gpt_oss": _folder("GptOss", **GPT_OSS),
    "gpt_oss_mxfp4": _folder("GptOss", method="mxfp4", **GPT_OSS),
    "granitemoe": _folder("GraniteMoe", kept=False, **LOCAL_EXPERTS, **GRANITE),
    "granitemoeshared": _folder("GraniteMoeShared", **LOCAL_EXPERTS, **GRANITE, shared_intermediate_size=48),
    "deepseek_v2": _folder("DeepseekV2", **LATENT, q_lora_rank=None, topk_method="group_limited_greedy"),
    "deepseek_v2_greedy": _folder("DeepseekV2", kept=False, **LATENT, q_lora_rank=32),
    "deepseek_v3": _folder(
        "DeepseekV3", **LATENT, q_lora_rank=32, rope_parameters=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}
    ),
}


def make(name: str, out: Path) -> None:
    spec = FOLDERS[name]
    given = (IDS | {"vocab_size": VOCAB} if "n_embd" in spec.options else SIZES | IDS) | spec.options
    if "text_config" in spec.options:
        given = spec.options
    config = getattr(transformers, spec.config)(**given, attn_implementation="eager")
    torch.manual_seed(sum(map(ord, name)))
    model = getattr(transformers, spec.model)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases are random, too
            parameter += torch.randn_like(parameter) * (0.1 if parameter.ndim > 1 else 0.3)
    model.to(spec.dtype).save_pretrained(out / name, max_shard_size=spec.shard_bytes)
    settings = IN_FEW_BITS[spec.method](out / name) if spec.method else None
    # Read again: in the model above the rotary frequencies were rounded with the weights.
    model = getattr(transformers, spec.model).from_pretrained(
        out / name, dtype=torch.float32, attn_implementation="eager", quantization_config=settings
    )
    model.config._experts_implementation = "eager"  # the others take no float64
    if name == "llama" or out != HERE:  # the converter wants to see one
        write_byte_level(out / name)
    tokens = np.random.default_rng(7).integers(3, VOCAB, TOKENS)
    with torch.no_grad():
        logits = model.eval().double()(torch.tensor(tokens)[None]).logits[0].numpy()
    np.savez_compressed(out / f"{name}.npz", tokens=tokens, logits=logits.astype(np.float32))


def _mxfp4(folder: Path) -> Any:
    """Gives the experts of a folder random blocks; how transformers is to read them."""
    rng, tensors = np.random.default_rng(11), load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, width, rows = tensors.pop(name).shape
        groups = (experts, rows, width // 32)
        tensors[f"{name}_blocks"] = torch.from_numpy(rng.integers(0, 256, (*groups, 16), np.uint8))
        tensors[f"{name}_scales"] = torch.from_numpy(rng.integers(122, 126, groups, np.uint8))
    _save(folder, tensors, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]})
    return transformers.Mxfp4Config(dequantize=True)


def _fp8(folder: Path) -> Any:
    """The linears of a folder in 8 bits, with a scale for each block."""
    tensors, (tall, wide) = load_file(folder / "model.safetensors"), FP8_BLOCK
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        weight = tensors[name].float()
        # Powers of two, so that the weights are exact in 16 bits as well.
        scale = 2.0 ** torch.randint(-9, -5, (-(-weight.shape[0] // tall), -(-weight.shape[1] // wide)))
        each = scale.repeat_interleave(tall, 0).repeat_interleave(wide, 1)[: weight.shape[0], : weight.shape[1]]
        tensors[name] = (weight / each).to(torch.float8_e4m3fn)
        tensors[f"{name}_scale_inv"] = scale
    settings = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": list(FP8_BLOCK)}
    _save(folder, tensors, settings)
    return transformers.FineGrainedFP8Config(weight_block_size=FP8_BLOCK, dequantize=True)


def _save(folder: Path, tensors: dict[str, torch.Tensor], settings: dict[str, Any]) -> None:
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8")) | {"quantization_config": settings}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


IN_FEW_BITS = {"mxfp4": _mxfp4, "fp8": _fp8}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    for each in arguments.names or [name for name, spec in FOLDERS.items() if spec.kept or arguments.out]:
        print(each, flush=True)
        make(each, arguments.out or HERE)
