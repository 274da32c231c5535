"""A GGUF model as a `.pte` program: 4-bit weights, live shapes, a KV cache, for everything that reads `.pte`.

The file's weights are dequantised into a checkpoint of ExecuTorch's Llama example, which its exporter
quantises again and lowers for Vulkan. The angles of the positions are those that hightide itself runs the
file with, so every scaling of them can be exported. Beside `out.pte` goes `out.tokenizer.gguf`, the file's
tokenizer without its weights, which `hightide.LLM("out.pte")` finds; `tokenizer="model.gguf"` works as well.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from gguf import GGUFWriter

from hightide.errors import InputError, UnsupportedError
from hightide.exporter import exporting, need_exporter
from hightide.formats.gguf import GgufFile
from hightide.formats.gguf_writer import add_fields
from hightide.llm.convert import read_with_tokenizer
from hightide.llm.models.model_builder import ModelBuilder, choose_context
from hightide.llm.models.rope import rope_of
from hightide.llm.tokenizer import Tokenizer

DEFAULT_MAX_TOKENS = 128
EMBEDDING_BITS = (4, 8)
INTERLEAVED, HALVES = ("llama",), ("qwen2", "qwen3", "phi3")  # how they pair the elements that turn together

# GGUF's names in the exporter's words; those with a layer in front come once per layer.
NAMES = {"token_embd": "tok_embeddings", "output_norm": "norm", "output": "output"}
LAYER_NAMES = {
    "attn_norm": "attention_norm",
    "attn_q": "attention.wq",
    "attn_k": "attention.wk",
    "attn_v": "attention.wv",
    "attn_output": "attention.wo",
    "attn_q_norm": "attention.q_norm_fn",
    "attn_k_norm": "attention.k_norm_fn",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "feed_forward.w1",
    "ffn_down": "feed_forward.w2",
    "ffn_up": "feed_forward.w3",
}
ANGLES = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


@dataclass(frozen=True)
class Checkpoint:
    """What the exporter's Llama is made from."""

    params: dict[str, Any]  # its ModelArgs
    weights: dict[str, np.ndarray]
    cos: np.ndarray  # [context, rotary / 2], or [context, rotary] where halves turn together
    sin: np.ndarray


def export_gguf(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    context: int | None = None,
    max_tokens: int | None = None,
    group_size: int = 32,
    embedding_bits: int = 4,
    metadata: Mapping[str, Any] | None = None,
) -> Any:
    """Writes the program and its tokenizer; returns the quantised torch model that the program was traced from.

    `context` tokens fit its KV cache, `max_tokens` a call. `metadata` adds constant methods to the program.
    """
    out = Path(out)
    if out.suffix != ".pte" or not out.parent.is_dir():
        raise InputError(f"{out} must end in .pte and be in a folder that exists")
    file = read_with_tokenizer(model)
    context = choose_context(file, context, least=3)
    max_tokens = min(DEFAULT_MAX_TOKENS, context - 1) if max_tokens is None else max_tokens
    if not 2 <= max_tokens < context:  # the exporter cannot trace a call that fills the context
        raise InputError(f"max_tokens must be between 2 and {context - 1}, not {max_tokens}")
    checkpoint = read_checkpoint(file, context)
    _check_quantisation(file, checkpoint.weights, group_size, embedding_bits)
    need_exporter()
    tokenizer = Tokenizer.from_gguf(file.metadata) if "tokenizer.ggml.model" in file.metadata else None
    extra = _token_metadata(tokenizer) | dict(metadata or {})
    switches = f"-kv --use_sdpa_with_kv_cache -V -d fp32 -qmode 4w -G {group_size} -E {embedding_bits},{group_size}"
    switches += f" --max_seq_length {max_tokens + 1} --max_context_length {context}"  # its largest call is one less
    eager = _export(checkpoint, [*switches.split(), "--metadata", json.dumps(extra)], out)
    if tokenizer is not None:
        write_tokenizer(file, tokenizer_path(out))
    return eager


def tokenizer_path(program: Path) -> Path:
    return program.with_suffix(".tokenizer.gguf")


def read_checkpoint(file: GgufFile, context: int) -> Checkpoint:
    """The weights in float32 under the exporter's names; an error if its Llama has no place for something."""
    if file.architecture not in (*INTERLEAVED, *HALVES):
        kind, known = file.architecture or "nameless", ", ".join((*INTERLEAVED, *HALVES))
        raise UnsupportedError(f"{file.path} is a {kind} model; only {known} can be exported")
    builder = ModelBuilder(file, context, max_tokens=1)
    heads, kv_heads, depth = builder.attention_dims()
    if any(builder.attention_dims(n) != (heads, kv_heads, depth) for n in range(builder.layers())):
        raise UnsupportedError(f"{file.path} has other heads in some layers, which cannot be exported")
    if builder.number("attention.temperature_scale", 0):
        raise UnsupportedError(f"{file.path} scales its queries by their positions, which cannot be exported")
    rotary, halves = builder.count("rope.dimension_count", depth), file.architecture in HALVES
    window = int(builder.number("attention.sliding_window", 0))
    if not halves and rotary != depth:
        raise UnsupportedError(f"{file.path} rotates {rotary} of {depth} elements in a head, which cannot be exported")
    if 0 < window < context:
        raise UnsupportedError(f"{file.path} sees the last {window} tokens only; export it with that context at most")
    weights = dict(_weights(builder, heads * depth, kv_heads * depth))
    weights.setdefault("output.weight", weights["tok_embeddings.weight"])  # tied
    params = {
        "dim": builder.count("embedding_length"),
        "n_layers": builder.count("block_count"),
        "n_heads": heads,
        "n_kv_heads": kv_heads,
        "head_dim": depth,
        "hidden_dim": len(weights["layers.0.feed_forward.w1.weight"]),
        "vocab_size": len(weights["tok_embeddings.weight"]),
        "norm_eps": builder.number("attention.layer_norm_rms_epsilon"),
        "attention_qkv_bias": "layers.0.attention.wq.bias" in weights,
        "use_qk_norm": "layers.0.attention.q_norm_fn.weight" in weights,
        "qk_norm_before_rope": True,
        "use_hf_rope": halves,
        "partial_rotary_factor": rotary / depth,
    }
    rope = rope_of(builder, halves=True)
    cos, sin = (np.frombuffer(t.constant.view(), np.float32).reshape(t.dims) for t in (rope.cos, rope.sin))  # type: ignore[union-attr]
    return Checkpoint(params, weights, *(t if halves else t[:, : rotary // 2] for t in (cos, sin)))


def write_tokenizer(file: GgufFile, path: Path) -> None:
    """A GGUF file with the fields of the tokenizer and no tensors."""
    writer = GGUFWriter(path, file.architecture)
    add_fields(writer, {key: value for key, value in file.metadata.items() if key.startswith("tokenizer.")})
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def _weights(builder: ModelBuilder, q_rows: int, kv_rows: int) -> Iterator[tuple[str, np.ndarray]]:
    """(the exporter's name, weight), with what GGUF keeps in one matrix taken apart."""
    layers = range(builder.count("block_count"))
    fused = builder.file.architecture == "phi3"
    biased = any(builder.has(f"blk.{n}.attn_{x}.bias") for n in layers for x in "qkv")
    places = {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in NAMES.items()}
    for n in layers:
        for ours, theirs in LAYER_NAMES.items():
            places[f"blk.{n}.{ours}.weight"] = f"layers.{n}.{theirs}.weight"
        for ours in ("attn_q", "attn_k", "attn_v"):
            places[f"blk.{n}.{ours}.bias"] = f"layers.{n}.{LAYER_NAMES[ours]}.bias"
    for name in builder.file.tensors:
        if name in ANGLES:
            continue
        layer, part = name.rpartition(".attn_qkv.weight")[0], name.rpartition(".ffn_up.weight")[0]
        if fused and layer:
            q, k, v = np.split(builder.array(name), [q_rows, q_rows + kv_rows])
            for ours, weight in (("attn_q", q), ("attn_k", k), ("attn_v", v)):
                yield places[f"{layer}.{ours}.weight"], weight
        elif fused and part:
            for ours, weight in zip(("ffn_gate", "ffn_up"), np.split(builder.array(name), 2), strict=True):
                yield places[f"{part}.{ours}.weight"], weight
        elif name in places:
            yield places[name], builder.array(name)
        else:
            raise UnsupportedError(f"{builder.file.path}: the exporter's Llama has no place for tensor {name}")
    if biased:  # all of them then have one
        for n in layers:
            for ours, rows in (("attn_q", q_rows), ("attn_k", kv_rows), ("attn_v", kv_rows)):
                if not builder.has(name := f"blk.{n}.{ours}.bias"):
                    yield places[name], np.zeros(rows, np.float32)


def _check_quantisation(
    file: GgufFile, weights: Mapping[str, np.ndarray], group_size: int, embedding_bits: int
) -> None:
    if embedding_bits not in EMBEDDING_BITS:
        raise InputError(f"embedding_bits must be {' or '.join(map(str, EMBEDDING_BITS))}, not {embedding_bits}")
    if group_size < 1:
        raise InputError(f"group_size cannot be {group_size}")
    for name, weight in weights.items():
        if weight.ndim == 2 and weight.shape[1] % group_size:
            raise InputError(
                f"{file.path}: rows of {name} have {weight.shape[1]} items, not a multiple of {group_size}"
            )
        if weight.ndim == 2 and len(weight) % 4:  # the exporter packs 4-bit matrices so
            raise UnsupportedError(f"{file.path}: {name} has {len(weight)} rows; only multiples of 4 can be exported")


def _token_metadata(tokenizer: Tokenizer | None) -> dict[str, Any]:
    if tokenizer is None:
        return {}
    begin = {} if tokenizer.bos_id is None else {"get_bos_id": tokenizer.bos_id}
    return begin | ({"get_eos_ids": list(tokenizer.eos_ids)} if tokenizer.eos_ids else {})


def _export(checkpoint: Checkpoint, switches: list[str], out: Path) -> Any:
    with tempfile.TemporaryDirectory(prefix="hightide") as folder:
        import torch

        weights = {name: torch.from_numpy(weight.copy()) for name, weight in checkpoint.weights.items()}
        torch.save(weights, f"{folder}/weights.pth")
        Path(folder, "params.json").write_text(json.dumps(checkpoint.params))
        files = ["-c", f"{folder}/weights.pth", "--params", f"{folder}/params.json", "--output-dir", folder]
        program = f"{folder}/program.pte"
        with exporting():
            model = _run_exporter(checkpoint, [*files, "--output_name", program, *switches])
        shutil.move(program, out)
    return model


def _run_exporter(checkpoint: Checkpoint, switches: list[str]) -> Any:
    """The model it traced; `stories110m` is its name for a Llama of any dims."""
    import torch
    from executorch.examples.models.llama import export_llama_lib as exporter
    from executorch.extension.llm.export.config.llm_config import LlmConfig

    load = exporter._load_llama_model

    def load_with_angles(config: Any) -> Any:
        builder = load(config)
        rope = builder.model.rope
        assert rope.freqs_cos.shape == checkpoint.cos.shape, (rope.freqs_cos.shape, checkpoint.cos.shape)
        rope.freqs_cos, rope.freqs_sin = (torch.from_numpy(t.copy()) for t in (checkpoint.cos, checkpoint.sin))
        return builder

    args = exporter.build_args_parser().parse_args(["--model", "stories110m", *switches])
    with mock.patch.object(exporter, "_load_llama_model", load_with_angles):
        return exporter._export_llama(LlmConfig.from_args(args)).model
