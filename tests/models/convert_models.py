"""Makes small GGUF models with llama.cpp's own converter: `python convert_models.py LLAMA_CPP [NAME ...]`.

LLAMA_CPP is a checkout with `conversion/` (the source archive of PyPI's llama-cpp-python 0.3.36 has one), whose
`gguf-py` is on PYTHONPATH. Needs `torch==2.13.0` and `transformers`, too; running the tests needs none of them. Every
model is a random one of transformers, whose matrices are exact in a block type each. The converter writes it in
float32; fields and tensors are kept as they are, and each matrix goes into the smallest type that holds it exactly.
Logits are those of transformers: `NAME.npz`. `make_gguf.py` made the other models.
"""

from __future__ import annotations

import math
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants
from make_gguf import HERE, TYPES, VOCAB, write_goldens

SMALLEST_FIRST = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16", "F32")
TRANSPOSED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")  # GPT-2 has its matrices the other way round


@dataclass(frozen=True)
class Converted:
    """A model to make: the transformers classes' common name, and what they are configured with."""

    family: str
    options: dict[str, Any]
    seed: int
    model: str = "{}ForCausalLM"
    config: str = "{}Config"
    short: int = 0  # as in make_gguf.py: no logits of shorter prompts
    published: dict[str, Any] = field(default_factory=dict)  # what published configs have under an older name


def _small(family: str, seed: int, published: dict[str, Any] | None = None, **options: Any) -> Converted:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    return Converted(family, sizes | options, seed, published=published or {})


def _neox(seed: int, rotary: float, **options: Any) -> Converted:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "rotary_pct": rotary}
    return Converted("GPTNeoX", sizes | options, seed, published={"rotary_pct": rotary})


def _gemma(family: str, seed: int, config: str = "{}Config", **options: Any) -> Converted:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
    return Converted(family, sizes | {"head_dim": 32} | options, seed, config=config)


GEMMA2 = {
    "query_pre_attn_scalar": 32,
    "sliding_window": 9,
    "num_hidden_layers": 4,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
}
GEMMA3N = {
    "num_hidden_layers": 5,
    "layer_types": [f"{kind}_attention" for kind in ("sliding", "full", "sliding", "sliding", "full")],
    "num_kv_shared_layers": 2,
    "sliding_window": 9,
    "intermediate_size": [64, 64, 96, 64, 64],
    "activation_sparsity_pattern": [0.9, 0.8, 0.0, 0.0, 0.0],
    "vocab_size_per_layer_input": VOCAB,
    "hidden_size_per_layer_input": 32,
    "laurel_rank": 32,
    "final_logit_softcapping": 3.0,
}
MINISTRAL = {
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
GRANITE = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.4,
    "residual_multiplier": 0.6,
    "logits_scaling": 4.0,
}
FALCON = {"hidden_size": 32, "num_attention_heads": 4, "alibi": False, "bias": False}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64}
OLMO3 = {"sliding_attention": {"rope_type": "default", "rope_theta": 500.0}, "full_attention": YARN}
LFM2 = {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"], "conv_L_cache": 4}
LFM2_EXPERTS = {
    "num_hidden_layers": 3,
    "layer_types": ["conv", "full_attention", "conv"],
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "num_dense_layers": 1,
}
HALF = {"rope_theta": 10_000.0, "rope_type": "default", "partial_rotary_factor": 0.5}

MODELS = {
    "gemma": _gemma("Gemma", 21),
    "gemma2": _gemma("Gemma2", 22, **GEMMA2),
    "gemma3n": _gemma("Gemma3n", 23, config="{}TextConfig", **GEMMA3N),
    "mistral3": _small("Ministral3", 24, rope_parameters=MINISTRAL, head_dim=16),
    "granite": _small("Granite", 25, **GRANITE),
    "olmo2": _small("Olmo2", 26),
    "olmo3": _small("Olmo3", 27, num_hidden_layers=5, sliding_window=9, rope_parameters=OLMO3),
    "smollm3": _small("SmolLM3", 28, num_hidden_layers=5, tie_word_embeddings=True),
    "gpt2": Converted("GPT2", {"n_embd": 32, "n_head": 4}, 29, "GPT2LMHeadModel", published={"n_ctx": 256}),
    "starcoder2": _small("Starcoder2", 30, sliding_window=None, tie_word_embeddings=True),
    "phi2": _small("Phi", 31, num_key_value_heads=4, intermediate_size=128, rope_parameters=HALF),
    "falcon": Converted("Falcon", FALCON | {"multi_query": True, "num_kv_heads": 1}, 32),
    "falcon_40b": Converted("Falcon", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}, 33),
    "glm4": _small("Glm4", 34, head_dim=16, attention_bias=True, rope_parameters=HALF),
    "command_r": _small("Cohere", 35, logit_scale=0.25),
    "command_r_plus": _small("Cohere", 36, logit_scale=0.5, use_qk_norm=True),
    "cohere2": _small(
        "Cohere2", 37, logit_scale=0.25, num_hidden_layers=5, sliding_window=9, published={"rotary_pct": 1.0}
    ),
    "stablelm": _small("StableLm", 38, use_qkv_bias=True, rope_parameters=HALF, use_parallel_residual=False),
    "stablelm_12b": _small("StableLm", 39, qk_layernorm=True, rope_parameters=HALF, use_parallel_residual=True),
    "gptneox": _neox(40, 0.25),
    "gptneox_sequential": _neox(41, 0.5, use_parallel_residual=False),
    "lfm2": _small("Lfm2", 42, **LFM2, block_multiple_of=32, intermediate_size=80),
    "lfm2moe": _small("Lfm2Moe", 43, **LFM2_EXPERTS),
}


def make(name: str, converter: Any) -> None:
    spec = MODELS[name]
    sizes = {"vocab_size": VOCAB, "num_hidden_layers": 2, "max_position_embeddings": 256}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = getattr(transformers, spec.config.format(spec.family))(
        **(sizes | ids | spec.options), attn_implementation="eager"
    )
    config._experts_implementation = "eager"  # the others take no float64
    torch.manual_seed(spec.seed)
    model = getattr(transformers, spec.model.format(spec.family))(config).double().eval()
    assert model.config._attn_implementation == "eager"
    _give_weights(model, spec)
    with tempfile.TemporaryDirectory() as folder:
        model.float().save_pretrained(folder)
        hparams = model.config.to_dict() | {"architectures": [type(model).__name__]} | spec.published
        _convert(converter, hparams, Path(folder), Path(folder, "all_f32.gguf"))
        _write_in_blocks(GGUFReader(Path(folder, "all_f32.gguf")), HERE / f"{name}.gguf")
    write_goldens(name, spec, model.double())


def _give_weights(model: Any, spec: Converted) -> None:
    """Random weights; matrices are what they are after a round through a block type."""
    rng = np.random.default_rng(spec.seed)
    new = {}
    for n, (name, value) in enumerate(model.state_dict().items()):
        dims, short = tuple(value.shape), name.rpartition(".")[0].rpartition(".")[2]
        is_norm = "norm" in name or short.startswith("ln_")
        if is_norm and name.endswith(".weight"):
            shift = 0 if spec.family in ("Gemma", "Gemma2") else 1
            data = np.round(rng.normal(size=dims) * 0.3 * 256) / 256 + shift  # few bits: adding 1 is exact
        else:
            scale = 0.3 if len(dims) == 1 or "emb" in short or short in ("wte", "wpe") else 1.4 / math.sqrt(dims[-1])
            data = rng.normal(size=dims) * scale
        data = data.astype(np.float32)
        if len(dims) > 1 and not is_norm and not dims[-1] % 32:
            data = data.T if name.endswith(TRANSPOSED) else data
            data = _rounded(np.ascontiguousarray(data), TYPES[(n + spec.seed) % len(TYPES)])
            data = data.T if name.endswith(TRANSPOSED) else data
        new[name] = torch.from_numpy(np.ascontiguousarray(data)).double()
    if model.config.tie_word_embeddings:
        embedding = next(key for key in new if new[key].shape[0] == VOCAB)
        new |= dict.fromkeys((key for key in new if new[key].shape == new[embedding].shape), new[embedding])
    model.load_state_dict(new)


def _rounded(data: np.ndarray, kind: str) -> np.ndarray:
    type = GGMLQuantizationType[kind]
    return np.asarray(quants.dequantize(quants.quantize(data, type), type), np.float32)


def _convert(converter: Any, hparams: dict[str, Any], folder: Path, out: Path) -> None:
    made = converter.get_model_class(hparams["architectures"][0])
    for kind in _all_kinds(converter.ModelBase):
        kind.set_vocab = lambda self: None  # there is no tokenizer
    made.modify_tensors = _also_what_it_returns(made.modify_tensors)
    with torch.inference_mode():
        made(folder, gguf.LlamaFileType.ALL_F32, out, eager=True, hparams=hparams).write()


def _also_what_it_returns(modify: Any) -> Any:
    """StableLM's modify_tensors is a generator that returns the joined norms of its heads instead of yielding them."""

    def modify_tensors(self: Any, *given: Any) -> Any:
        yield from (yield from modify(self, *given)) or ()

    return modify_tensors


def _all_kinds(kind: Any) -> list[Any]:
    return [kind, *(one for sub in kind.__subclasses__() for one in _all_kinds(sub))]


def _write_in_blocks(source: GGUFReader, target: Path) -> None:
    """The file with every matrix in the smallest type that holds it exactly."""
    architecture = source.fields["general.architecture"].contents()
    writer = GGUFWriter(target, architecture)
    for key, given in source.fields.items():
        if key.startswith(f"{architecture}."):
            of_items = given.types[-1] if given.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, given.contents(), given.types[0], of_items)
    for tensor in source.tensors:
        data = tensor.data.astype(np.float32)
        types = SMALLEST_FIRST if data.ndim > 1 and data.shape[-1] % 32 == 0 else ("F32",)
        kind = GGMLQuantizationType[next(t for t in types if np.array_equal(_rounded(data, t), data))]
        writer.add_tensor(tensor.name, quants.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    folder, *given = sys.argv[1:]
    sys.path.insert(1, folder)
    import conversion

    for name in given or MODELS:
        make(name, conversion)
        sizes = [(HERE / f"{name}.{end}").stat().st_size for end in ("gguf", "npz")]
        print(f"{name:16} {sizes[0]:>8} {sizes[1]:>8}", flush=True)
