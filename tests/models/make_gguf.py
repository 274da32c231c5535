"""Makes the small GGUF models of this folder and their logits: `python make_gguf.py [NAME ...]`.

Needs `torch==2.13.0`, `transformers` and `gguf`; running the tests needs none of the first two. Every
model is a random one of transformers, written as llama.cpp's `convert_hf_to_gguf.py` writes it (its rules
are repeated below, by name), in mixed block types. The dequantised weights go back into the transformers
model, whose eager attention gives the logits of all tokens: `NAME.npz`.

With all weights in F32, the converter of llama.cpp b21e4de74 wrote the same fields and tensors for each of
these models (but for a field that `gemma3` leaves out, and the last bit of one of `rope_freqs`).
The mixtures of experts were written by the converter's rules as they are in its source.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType, GGUFWriter, RopeScalingType, quants

HERE = Path(__file__).parent
VOCAB, TOKENS = 131, 41  # neither is a multiple of anything; the windows are shorter
TYPES = ("Q8_0", "Q4_0", "F16", "Q5_1", "Q4_1", "BF16", "Q5_0", "F32")
FEW_BITS = ("Q4_0", "Q5_1", "Q8_0", "Q4_1", "Q5_0")


@dataclass(frozen=True)
class Model:
    """A model to make: the transformers classes, what they are configured with, what the writer adds."""

    arch: gguf.MODEL_ARCH
    model: str
    config: str
    options: dict[str, Any]
    short: int = 0  # > 0: logits of the first `short` tokens alone as well, for rotary factors that depend on length
    types: tuple[str, ...] = TYPES
    left_out: tuple[str, ...] = ()  # fields that older converters did not write
    apart: bool = False  # parts of one tensor, such as gate and up of experts, are of different types
    seed: int = 0


def _llama(seed: int, **options: Any) -> Model:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
    return Model(gguf.MODEL_ARCH.LLAMA, "LlamaForCausalLM", "LlamaConfig", sizes | options, seed=seed)


def _gemma(seed: int, types: tuple[str, ...] = TYPES, left_out: tuple[str, ...] = (), **options: Any) -> Model:
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,  # not hidden / heads
        "query_pre_attn_scalar": 32,
        "sliding_window": 9,
        "num_hidden_layers": 7,
    }
    arch, model, config = gguf.MODEL_ARCH.GEMMA3, "Gemma3ForCausalLM", "Gemma3TextConfig"
    return Model(arch, model, config, sizes | options, types=types, left_out=left_out, seed=seed)


def _phi(seed: int, short: int = 0, **options: Any) -> Model:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1}
    return Model(gguf.MODEL_ARCH.PHI3, "Phi3ForCausalLM", "Phi3Config", sizes | options, short=short, seed=seed)


def _qwen(version: int, seed: int, **options: Any) -> Model:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
    arch = {2: gguf.MODEL_ARCH.QWEN2, 3: gguf.MODEL_ARCH.QWEN3}[version]
    return Model(arch, f"Qwen{version}ForCausalLM", f"Qwen{version}Config", sizes | options, seed=seed)


SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LOCAL_EXPERTS = {"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 32}
LATENT = {
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 64,  # not that of keys
}


def _mixture(
    arch: str, family: str, seed: int, types: tuple[str, ...] = FEW_BITS, apart: bool = False, **options: Any
) -> Model:
    """A mixture of experts; `family` is what its classes of transformers begin with."""
    classes = (f"{family}ForCausalLM", f"{family}Config")
    return Model(gguf.MODEL_ARCH[arch], *classes, SMALL | options, types=types, apart=apart, seed=seed)


LOCAL_AND_GLOBAL = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 20_000.0},
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0 + 0.05 * n for n in range(12)],
    "long_factor": [1.1 + 0.4 * n for n in range(12)],
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,  # short enough that all three cases are among the frequencies
}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64}

MODELS = {
    "llama": _llama(1),
    "llama_tied": _llama(2, tie_word_embeddings=True, num_key_value_heads=1, rope_parameters={"rope_theta": 500.0}),
    "llama_llama3": _llama(3, rope_parameters=LLAMA3, head_dim=32),
    "llama_linear": _llama(4, rope_parameters={"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}),
    "llama_bias": _llama(5, attention_bias=True, mlp_bias=True),
    "qwen2": _qwen(2, 6),
    "qwen2_yarn": _qwen(2, 7, rope_parameters=YARN, tie_word_embeddings=True),
    "qwen3": _qwen(3, 8, head_dim=32, rope_parameters={"rope_theta": 1_000_000.0}, tie_word_embeddings=True),
    "gemma3": _gemma(9, left_out=("rope.freq_base_swa",)),
    "gemma3_scaled": _gemma(10, rope_parameters=LOCAL_AND_GLOBAL, final_logit_softcapping=3.0),
    "gemma3_global": _gemma(11, num_hidden_layers=2, sliding_window_pattern=1),
    # As many layers as the 27B model, which takes another scale of its queries.
    "gemma3_27b": _gemma(12, types=("Q4_0",), num_hidden_layers=62, query_pre_attn_scalar=16, intermediate_size=32),
    "phi3": _phi(13, sliding_window=9),
    "phi3_partial": _phi(14, rope_parameters={"rope_theta": 10_000.0, "partial_rotary_factor": 0.75}),
    "phi3_longrope": _phi(
        15,
        short=24,
        rope_parameters=LONGROPE,
        original_max_position_embeddings=24,
        sliding_window=30,
        tie_word_embeddings=True,
    ),
    "mixtral": _mixture("LLAMA", "Mixtral", 16, **LOCAL_EXPERTS),
    "qwen2moe": _mixture(
        "QWEN2MOE", "Qwen2Moe", 17, apart=True, **EXPERTS, shared_expert_intermediate_size=96, num_hidden_layers=1
    ),
    "qwen3moe": _mixture("QWEN3MOE", "Qwen3Moe", 18, **EXPERTS, head_dim=32, norm_topk_prob=True),
    "gpt_oss": _mixture(
        "GPT_OSS",
        "GptOss",
        19,
        types=("MXFP4",),
        **LOCAL_EXPERTS,
        head_dim=32,
        sliding_window=9,
        rope_parameters=YARN | {"truncate": False},
    ),
    "granitemoe": _mixture(
        "GRANITE_MOE",
        "GraniteMoeShared",
        20,
        **LOCAL_EXPERTS,
        shared_intermediate_size=64,
        attention_multiplier=0.3,
        embedding_multiplier=3.0,
        residual_multiplier=0.4,
        logits_scaling=2.0,
        num_hidden_layers=1,
    ),
    "deepseek2": _mixture("DEEPSEEK2", "DeepseekV2", 21, **LATENT, q_lora_rank=None, norm_topk_prob=False),
    "deepseek2_groups": _mixture(
        "DEEPSEEK2",
        "DeepseekV3",
        22,
        **LATENT,
        q_lora_rank=32,
        n_group=4,
        topk_group=2,
        norm_topk_prob=True,
        routed_scaling_factor=1.5,
        rope_parameters=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
    ),
}


def make(name: str) -> None:
    spec = MODELS[name]
    sizes = {"vocab_size": VOCAB, "num_hidden_layers": 2, "max_position_embeddings": 256}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = getattr(transformers, spec.config)(**(sizes | ids | spec.options), attn_implementation="eager")
    config._experts_implementation = "eager"  # the others take no float64
    torch.manual_seed(spec.seed)
    model = getattr(transformers, spec.model)(config).double().eval()
    assert model.config._attn_implementation == "eager"
    writer = GGUFWriter(HERE / f"{name}.gguf", gguf.MODEL_ARCH_NAMES[spec.arch])
    PARAMETERS.get(spec.arch, text_parameters)(writer, config)
    for key in spec.left_out:
        del writer.kv_data[0][f"{writer.arch}.{key}"]
    _write_tensors(writer, spec, model)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_goldens(name, spec, model)


def _write_tensors(writer: GGUFWriter, spec: Model, model: Any) -> None:
    """Random weights, in blocks into the file and dequantised into the model."""
    rng = np.random.default_rng(spec.seed)
    config = model.config
    names = gguf.get_tensor_name_map(spec.arch, config.num_hidden_layers)
    new = {}
    for n, (name, value) in enumerate(model.state_dict().items()):
        if name == "lm_head.weight" and config.tie_word_embeddings:
            new[name] = new["model.embed_tokens.weight"]
            continue
        data = _random(name, tuple(value.shape), spec, rng)
        form = tensor_form(name, spec.arch, config)
        kept = []
        for part, (converted, stored) in enumerate(zip(form.names, form.split(data), strict=True)):
            # As the converter: one dim, routers and biases in float32, matrices in the file's type (here: many).
            plain = (
                stored.ndim == 1 or converted.endswith("bias") or ".gate.weight" in converted or "router" in converted
            )
            kind = GGMLQuantizationType[
                "F32" if plain else spec.types[(n + part * spec.apart + spec.seed) % len(spec.types)]
            ]
            stored = np.ascontiguousarray(stored)
            assert stored.dtype == np.float32
            blocks = quants.quantize(stored, kind)
            writer.add_tensor(names.get_name(converted, try_suffixes=(".weight", ".bias")), blocks, raw_dtype=kind)
            kept.append(quants.dequantize(blocks, kind))
        joined = form.join(kept)
        assert joined.shape == tuple(value.shape)
        new[name] = torch.from_numpy(joined.astype(np.float64))
    for name, data in _extra_tensors(spec, config):
        writer.add_tensor(name, data)
    model.load_state_dict(new)


def _random(name: str, dims: tuple[int, ...], spec: Model, rng: np.random.Generator) -> np.ndarray:
    if name.endswith("norm.weight"):  # few bits, so that adding 1 is exact
        shift = 0 if spec.arch == gguf.MODEL_ARCH.GEMMA3 else 1
        return (np.round(rng.normal(size=dims) * 0.3 * 256) / 256 + shift).astype(np.float32)
    scale = 0.3 if len(dims) == 1 or "embed" in name else 1.4 / math.sqrt(dims[-1])
    return (rng.normal(size=dims) * scale).astype(np.float32)


@dataclass(frozen=True)
class Form:
    """What the converter's modify_tensors makes of a tensor: the names it looks up, the parts, and how to undo it."""

    names: list[str]
    split: Callable[[np.ndarray], Sequence[np.ndarray]] = lambda w: [w]
    join: Callable[[Sequence[np.ndarray]], np.ndarray] = lambda parts: parts[0]


def tensor_form(name: str, arch: gguf.MODEL_ARCH, config: Any) -> Form:
    name = name.replace(".block_sparse_moe.experts.", ".mlp.experts.").replace("_moe.router.", "_moe.router.layer.")
    base, _, last = name.rpartition(".")
    if name.endswith("experts.gate_up_proj") or last == "gate_up_proj_bias":
        ends = "bias" if last.endswith("bias") else "weight"
        both = [f"{base}.gate_proj.{ends}", f"{base}.up_proj.{ends}"]
        if arch == gguf.MODEL_ARCH.GPT_OSS:  # columns of gate and up take turns
            return Form(both, _every_other, _taking_turns)
        return Form(both, lambda w: np.split(w, 2, axis=1), lambda parts: np.concatenate(parts, axis=1))
    if name.endswith("experts.down_proj"):
        if arch == gguf.MODEL_ARCH.GPT_OSS:
            return Form([f"{name}.weight"], lambda w: [w.swapaxes(1, 2)], lambda parts: parts[0].swapaxes(1, 2))
        return Form([f"{name}.weight"])
    if last == "down_proj_bias":
        return Form([f"{base}.down_proj.bias"])
    if last == "sinks":
        return Form([f"{name}.weight"])
    if name.endswith("shared_expert_gate.weight"):
        return Form([name], lambda w: [w[0]], lambda parts: parts[0][None])
    if name.endswith("shared_mlp.input_linear.weight"):
        both = [
            f"{base.removesuffix('shared_mlp.input_linear')}mlp.shared_expert.{n}_proj.weight" for n in ("gate", "up")
        ]
        return Form(both, lambda w: np.split(w, 2), np.concatenate)
    if last == "e_score_correction_bias":
        return Form([f"{base}.e_score_correction.bias"])
    if name.endswith("kv_b_proj.weight"):
        return _latent_form(base, config)
    there, back = _rules(name, arch, config)
    return Form([name], lambda w: [there(w)], lambda parts: back(parts[0]))


def _every_other(w: np.ndarray) -> list[np.ndarray]:
    w = w.swapaxes(1, 2) if w.ndim == 3 else w
    return [w[:, 0::2], w[:, 1::2]]


def _taking_turns(parts: Sequence[np.ndarray]) -> np.ndarray:
    joined = np.stack(parts, axis=2).reshape(len(parts[0]), -1, *parts[0].shape[2:])
    return joined.swapaxes(1, 2) if joined.ndim == 3 else joined


def _latent_form(base: str, config: Any) -> Form:
    """Keys and values out of the latent vector, apart; those of keys the other way round."""
    heads, keys, values = config.num_attention_heads, config.qk_nope_head_dim, config.v_head_dim

    def split(w: np.ndarray) -> list[np.ndarray]:
        k, v = np.split(w.reshape(heads, keys + values, -1), [keys], axis=1)
        return [k.swapaxes(1, 2), v]

    def join(parts: Sequence[np.ndarray]) -> np.ndarray:
        rows = np.concatenate([parts[0].swapaxes(1, 2), parts[1]], axis=1)
        return rows.reshape(-1, rows.shape[-1])

    return Form([f"{base.removesuffix('kv_b_proj')}{n}_b_proj.weight" for n in ("k", "v")], split, join)


def _rules(name: str, arch: gguf.MODEL_ARCH, config: Any) -> Any:
    """What the converter does to a tensor that it keeps as one, and how to undo it."""
    if arch == gguf.MODEL_ARCH.GEMMA3 and name.endswith("norm.weight"):
        return (lambda w: w + np.float32(1)), (lambda w: w - np.float32(1))
    if arch in (gguf.MODEL_ARCH.LLAMA, gguf.MODEL_ARCH.GRANITE_MOE) and (".q_proj." in name or ".k_proj." in name):
        heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads

        def permute(w: np.ndarray) -> np.ndarray:
            return w.reshape(heads, 2, len(w) // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)

        def undo(w: np.ndarray) -> np.ndarray:
            return w.reshape(heads, len(w) // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)

        return permute, undo
    return (lambda w: w), (lambda w: w)


def _extra_tensors(spec: Model, config: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The converter's generate_extra_tensors of LlamaModel and Phi3MiniModel."""
    rope = config.rope_parameters
    if spec.arch == gguf.MODEL_ARCH.LLAMA and rope["rope_type"] == "llama3":
        dim = config.head_dim
        factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
        trained = rope["original_max_position_embeddings"]
        factors = []
        for freq in 1.0 / (rope["rope_theta"] ** (np.arange(0, dim, 2, dtype=np.float32) / dim)):
            wavelen = 2 * math.pi / freq
            if wavelen < trained / high:
                factors.append(1.0)
            elif wavelen > trained / low:
                factors.append(factor)
            else:
                smooth = (trained / wavelen - low) / (high - low)
                factors.append(1 / ((1 - smooth) / factor + smooth))
        assert len(set(factors)) > 2
        yield "rope_freqs.weight", np.array(factors, np.float32)
    if spec.arch == gguf.MODEL_ARCH.PHI3 and rope.get("long_factor"):
        yield "rope_factors_long.weight", np.array(rope["long_factor"], np.float32)
        yield "rope_factors_short.weight", np.array(rope["short_factor"], np.float32)


def model_sizes(w: GGUFWriter, config: Any) -> None:
    w.add_block_count(config.num_hidden_layers)
    w.add_context_length(config.max_position_embeddings)
    w.add_embedding_length(config.hidden_size)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_head_count(config.num_attention_heads)
    w.add_head_count_kv(config.num_key_value_heads)


def text_parameters(w: GGUFWriter, config: Any) -> None:
    """TextModel.set_gguf_parameters"""
    model_sizes(w, config)
    every = config.rope_parameters
    rope = every.get("full_attention", every)
    if rope["rope_type"] == "linear":
        w.add_rope_scaling_type(RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope["factor"])
    elif rope["rope_type"] == "yarn":
        w.add_rope_scaling_type(RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for key in ("beta_fast", "beta_slow"):
            if key in rope:
                getattr(w, f"add_rope_scaling_yarn_{key}")(rope[key])
    w.add_rope_freq_base(rope["rope_theta"])
    if "sliding_attention" in every:
        w.add_rope_freq_base_swa(every["sliding_attention"]["rope_theta"])
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    if getattr(config, "head_dim", None) is not None:
        w.add_key_length(config.head_dim)
        w.add_value_length(config.head_dim)
    if experts := getattr(config, "num_local_experts", getattr(config, "num_experts", None)):
        w.add_expert_count(experts)
        w.add_expert_used_count(config.num_experts_per_tok)
    if getattr(config, "n_group", None) is not None:
        w.add_expert_group_count(config.n_group)
        w.add_expert_group_used_count(config.topk_group)


def llama_parameters(w: GGUFWriter, config: Any) -> None:
    """LlamaModel.set_gguf_parameters"""
    text_parameters(w, config)
    w.add_vocab_size(config.vocab_size)
    w.add_rope_dimension_count(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def qwen_moe_parameters(w: GGUFWriter, config: Any) -> None:
    """Qwen2MoeModel.set_gguf_parameters"""
    text_parameters(w, config)
    w.add_expert_feed_forward_length(config.moe_intermediate_size)
    if getattr(config, "shared_expert_intermediate_size", None) is not None:
        w.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def gpt_oss_parameters(w: GGUFWriter, config: Any) -> None:
    """GptOssModel.set_gguf_parameters"""
    text_parameters(w, config)
    w.add_sliding_window(config.sliding_window)
    w.add_expert_feed_forward_length(config.intermediate_size)


def granite_moe_parameters(w: GGUFWriter, config: Any) -> None:
    """GraniteMoeModel.set_gguf_parameters"""
    llama_parameters(w, config)
    w.add_attention_scale(config.attention_multiplier)
    w.add_embedding_scale(config.embedding_multiplier)
    w.add_residual_scale(config.residual_multiplier)
    w.add_logit_scale(config.logits_scaling)
    w.add_expert_shared_feed_forward_length(config.shared_intermediate_size)


def deepseek_parameters(w: GGUFWriter, config: Any) -> None:
    """DeepseekV2Model.set_gguf_parameters"""
    text_parameters(w, config)
    for key in ("head_count_kv", "key_length", "value_length"):  # written again below
        w.kv_data[0].pop(f"{w.arch}.attention.{key}", None)
    w.add_head_count_kv(1)
    w.add_leading_dense_block_count(config.first_k_dense_replace)
    w.add_vocab_size(config.vocab_size)
    if config.q_lora_rank is not None:
        w.add_q_lora_rank(config.q_lora_rank)
    w.add_kv_lora_rank(config.kv_lora_rank)
    w.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
    w.add_value_length(config.kv_lora_rank)
    w.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
    w.add_value_length_mla(config.v_head_dim)
    w.add_expert_feed_forward_length(config.moe_intermediate_size)
    w.add_expert_shared_count(config.n_shared_experts)
    w.add_expert_weights_scale(config.routed_scaling_factor)
    if config.norm_topk_prob:
        w.add_expert_weights_norm(True)
    if config.n_group:  # the configuration of V3 says "scoring_func": "sigmoid"
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_rope_dimension_count(config.qk_rope_head_dim)
    if (mscale := config.rope_parameters.get("mscale_all_dim")) is not None:
        w.add_rope_scaling_yarn_log_mul(0.1 * mscale)


def gemma_parameters(w: GGUFWriter, config: Any) -> None:
    """Gemma3Model.set_gguf_parameters"""
    text_parameters(w, config)
    if config.final_logit_softcapping:
        w.add_final_logit_softcapping(config.final_logit_softcapping)
    if config._sliding_window_pattern != 1:
        w.add_sliding_window(config.sliding_window)


def phi_parameters(w: GGUFWriter, config: Any) -> None:
    """Phi3MiniModel.set_gguf_parameters and what its generate_extra_tensors adds"""
    rope = config.rope_parameters
    trained = config.original_max_position_embeddings
    model_sizes(w, config)
    w.add_rope_scaling_orig_ctx_len(trained)
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    w.add_rope_dimension_count(int(rope["partial_rotary_factor"] * config.hidden_size) // config.num_attention_heads)
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_sliding_window(config.sliding_window or 0)
    if rope.get("long_factor"):
        scale = config.max_position_embeddings / trained
        w.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(trained)) if scale > 1.0 else 1.0)


PARAMETERS = {
    gguf.MODEL_ARCH.LLAMA: llama_parameters,
    gguf.MODEL_ARCH.GEMMA3: gemma_parameters,
    gguf.MODEL_ARCH.PHI3: phi_parameters,
    gguf.MODEL_ARCH.QWEN2MOE: qwen_moe_parameters,
    gguf.MODEL_ARCH.QWEN3MOE: qwen_moe_parameters,
    gguf.MODEL_ARCH.GPT_OSS: gpt_oss_parameters,
    gguf.MODEL_ARCH.GRANITE_MOE: granite_moe_parameters,
    gguf.MODEL_ARCH.DEEPSEEK2: deepseek_parameters,
}


def write_goldens(name: str, spec: Model, model: Any) -> None:
    tokens = np.random.default_rng(spec.seed + 100).integers(1, VOCAB, TOKENS)
    goldens = {"tokens": tokens.astype(np.int32), "logits": _logits(model, tokens)}
    if spec.short:
        goldens["short_logits"] = _logits(model, tokens[: spec.short])
        assert np.abs(goldens["logits"][: spec.short] - goldens["short_logits"]).max() > 0.1
    np.savez_compressed(HERE / f"{name}.npz", **goldens)


@torch.no_grad()
def _logits(model: Any, tokens: np.ndarray) -> np.ndarray:
    """[tokens, vocabulary]; float32 is enough: transformers takes norms, softmax and angles in it."""
    logits = model(torch.from_numpy(tokens)[None]).logits[0].numpy()
    assert logits.dtype == np.float64
    return logits.astype(np.float32)


if __name__ == "__main__":
    for given in sys.argv[1:] or MODELS:
        make(given)
        sizes = [(HERE / f"{given}.{end}").stat().st_size for end in ("gguf", "npz")]
        print(f"{given:16} {sizes[0]:>8} {sizes[1]:>8}")
