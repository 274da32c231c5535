"""Makes the small encoders of `encoders/` and what transformers gives for them: `python make_encoders.py [NAME ...]`.

Needs `torch==2.13.0`, `transformers` and `gguf`. As make_gguf.py: random models, written as llama.cpp's converter
writes them, in mixed block types; the dequantised weights go back into the transformers model. `NAME.npz` has tokens
of several texts end to end with their lengths, and of each text alone the vectors of its rows in float64 arithmetic;
for a classifier also its scores, and for BERT the vectors of a pair.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType, GGUFWriter, PoolingType, quants

HERE = Path(__file__).parent / "encoders"
VOCAB, LENGTHS, PAIR = 131, (41, 7, 1, 23), 12  # the second text of the pair begins at token 12
TYPES = ("Q8_0", "Q5_1", "F16", "Q4_1")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
ARCH = gguf.MODEL_ARCH


@dataclass(frozen=True)
class Encoder:
    arch: gguf.MODEL_ARCH
    model: str
    config: str
    options: dict[str, Any]
    pooling: PoolingType | None
    skipped: tuple[str, ...] = ()  # tensors that the converter drops
    rename: Callable[[str], str] = lambda name: name
    extra: dict[str, Any] = field(default_factory=dict)
    seed: int = 0


def _nomic_name(name: str) -> str:
    """As the model's own code has it, which the converter knows."""
    for ours, theirs in (
        ("embeddings.LayerNorm", "emb_ln"),
        ("layers.", "encoder.layers."),
        ("self_attn.qkv", "attn.Wqkv"),
        ("self_attn.o_proj", "attn.out_proj"),
        ("post_attention_layernorm", "norm1"),
        ("post_mlp_layernorm", "norm2"),
        ("mlp.up_proj", "mlp.fc11"),
        ("mlp.gate_proj", "mlp.fc12"),
        ("mlp.down_proj", "mlp.fc2"),
    ):
        name = name.replace(ours, theirs)
    return name


def _modern_name(name: str) -> str:
    return name.removeprefix("model.").replace("classifier.", "classifier.out_proj.")


SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
MODERN = {
    "num_hidden_layers": 4,
    "local_attention": 10,
    "global_attn_every_n_layers": 3,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 2000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    },
}
POOLER = ("pooler.dense.weight", "pooler.dense.bias")
MODELS = {
    "bert": Encoder(ARCH.BERT, "BertModel", "BertConfig", {}, PoolingType.MEAN, POOLER, seed=1),
    "bert_cls": Encoder(ARCH.BERT, "BertModel", "BertConfig", {"type_vocab_size": 1}, PoolingType.CLS, POOLER, seed=2),
    "roberta_rank": Encoder(
        ARCH.BERT,
        "RobertaForSequenceClassification",
        "RobertaConfig",
        {"num_labels": 1, "type_vocab_size": 1, "pad_token_id": 1, "max_position_embeddings": 66},
        None,
        rename=lambda name: name.removeprefix("roberta."),
        seed=3,
    ),
    "nomic": Encoder(
        ARCH.NOMIC_BERT,
        "NomicBertModel",
        "NomicBertConfig",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
        PoolingType.MEAN,
        POOLER,
        _nomic_name,
        seed=4,
    ),
    "modern": Encoder(
        ARCH.MODERN_BERT, "ModernBertModel", "ModernBertConfig", MODERN, PoolingType.CLS, rename=_modern_name, seed=5
    ),
    "modern_rank": Encoder(
        ARCH.MODERN_BERT,
        "ModernBertForSequenceClassification",
        "ModernBertConfig",
        MODERN | {"num_labels": 1, "classifier_pooling": "mean"},
        None,
        rename=_modern_name,
        seed=6,
    ),
}


def make(name: str) -> None:
    spec = MODELS[name]
    options = {"max_position_embeddings": 64, "vocab_size": VOCAB, "pad_token_id": 0} | SIZES | spec.options
    config = getattr(transformers, spec.config)(**options, attn_implementation="eager")
    model = getattr(transformers, spec.model)(config).to(torch.float64).eval()
    writer = GGUFWriter(HERE / f"{name}.gguf", gguf.MODEL_ARCH_NAMES[spec.arch])
    _write_fields(writer, spec, config)
    _write_tensors(writer, spec, model, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    _write_goldens(name, spec, model)


def _write_fields(w: GGUFWriter, spec: Encoder, config: Any) -> None:
    """TextModel.set_gguf_parameters, then those of BertModel and ModernBertModel; set_vocab of a small WordPiece."""
    offset = config.pad_token_id + 1 if "Roberta" in spec.config else 0
    w.add_block_count(config.num_hidden_layers)
    w.add_context_length(config.max_position_embeddings - offset)
    w.add_embedding_length(config.hidden_size)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_head_count(config.num_attention_heads)
    w.add_layer_norm_eps(getattr(config, "layer_norm_eps", None) or config.norm_eps)
    w.add_causal_attention(False)
    if spec.pooling is not None:
        w.add_pooling_type(spec.pooling)
    if rope := getattr(config, "rope_parameters", None):
        w.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if spec.arch == ARCH.MODERN_BERT:
        w.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        w.add_sliding_window(config.local_attention)
        w.add_sliding_window_pattern(config.global_attn_every_n_layers)
        w.add_string("modern-bert.hidden_activation", config.hidden_activation)
        if spec.options.get("classifier_pooling") == "mean":
            w.add_uint32("modern-bert.classifier.pooling_type", PoolingType.MEAN)
    words = ["the", "cat", "sat", "on", "mat", "dog", "ran", "far"]
    plain = SPECIAL + [f"▁{word}" for word in words] + [f"▁{letter}" for letter in LETTERS] + list(LETTERS)
    tokens = plain + [f"▁{a}{b}" for a in LETTERS for b in LETTERS][: VOCAB - len(plain)]
    w.add_tokenizer_model("bert")
    w.add_tokenizer_pre("default")
    w.add_token_list(tokens)
    w.add_token_types([3] * len(SPECIAL) + [1] * (VOCAB - len(SPECIAL)))
    w.add_unk_token_id(1)
    w.add_uint32("tokenizer.ggml.cls_token_id", 2)
    w.add_sep_token_id(3)


def _write_tensors(writer: GGUFWriter, spec: Encoder, model: Any, config: Any) -> None:
    """Every tensor as the converter writes it, and what comes back out of it into the model."""
    rng = np.random.default_rng(spec.seed)
    names = gguf.get_tensor_name_map(spec.arch, config.num_hidden_layers)
    new: dict[str, Any] = {}
    fused: dict[str, list[np.ndarray]] = {}
    for n, (name, value) in enumerate(model.state_dict().items()):
        data = _random(name, tuple(value.shape), rng)
        if name in spec.skipped or name.removeprefix("roberta.") in spec.skipped:
            new[name] = torch.from_numpy(data.astype(np.float64))
            continue
        kind = GGMLQuantizationType[TYPES[(n + spec.seed) % len(TYPES)] if data.ndim == 2 else "F32"]
        if (
            spec.arch == ARCH.NOMIC_BERT and "self_attn" in name and "o_proj" not in name
        ):  # fused in the model's own code
            kind = GGMLQuantizationType.Q8_0
            fused.setdefault(name.replace(name.split(".")[-2], "qkv"), []).append(data)
        if data.ndim == 2 and (data.shape[-1] % 32 or data.shape[0] == 1):
            kind = GGMLQuantizationType.F32
        blocks = quants.quantize(data, kind)
        back = quants.dequantize(blocks, kind).astype(np.float64)
        new[name] = torch.from_numpy(back)
        if "position_embeddings" in name and "Roberta" in spec.config:  # chopped, as the first ones are never used
            blocks = blocks[config.pad_token_id + 1 :]
        if spec.arch != ARCH.NOMIC_BERT or "self_attn" not in name or "o_proj" in name:
            writer.add_tensor(_mapped(names, spec.rename(name)), blocks, raw_dtype=kind)
    for name, parts in fused.items():
        blocks = quants.quantize(np.concatenate(parts), GGMLQuantizationType.Q8_0)
        writer.add_tensor(_mapped(names, spec.rename(name)), blocks, raw_dtype=GGMLQuantizationType.Q8_0)
    model.load_state_dict(new)


def _mapped(names: Any, name: str) -> str:
    mapped = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert mapped is not None, name
    return mapped


def _random(name: str, dims: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if "norm" in name.lower() and name.endswith("weight"):
        return (1 + 0.3 * rng.normal(size=dims)).astype(np.float32)
    scale = 0.3 if len(dims) == 1 or "embed" in name else 1.4 / math.sqrt(dims[-1])
    return (rng.normal(size=dims) * scale).astype(np.float32)


@torch.no_grad()
def _write_goldens(name: str, spec: Encoder, model: Any) -> None:
    tokens = np.random.default_rng(spec.seed + 100).integers(5, VOCAB, sum(LENGTHS))
    texts = [torch.from_numpy(part)[None] for part in np.split(tokens, np.cumsum(LENGTHS)[:-1])]
    base = getattr(model, model.base_model_prefix, model)
    rows = [base(text).last_hidden_state[0].numpy() for text in texts]
    goldens = {"tokens": tokens.astype(np.int32), "lengths": np.array(LENGTHS), "rows": np.concatenate(rows)}
    if "num_labels" in spec.options:
        goldens["scores"] = np.concatenate([model(text).logits[0].numpy() for text in texts])
    if name == "bert":
        types = (torch.arange(LENGTHS[0]) >= PAIR).long()[None]
        goldens["pair_rows"] = base(texts[0], token_type_ids=types).last_hidden_state[0].numpy()
    assert goldens["rows"].dtype == np.float64
    small = {key: value.astype(np.float32) if value.dtype == np.float64 else value for key, value in goldens.items()}
    np.savez_compressed(HERE / f"{name}.npz", **small)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for given in sys.argv[1:] or MODELS:
        make(given)
        sizes = [(HERE / f"{given}.{end}").stat().st_size for end in ("gguf", "npz")]
        print(f"{given:16} {sizes[0]:>8} {sizes[1]:>8}")
