"""A Llama with random 4-bit weights, as a GGUF file that every engine can read: the same file for the same seed."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hightide.folders import cache_folder


@dataclass(frozen=True)
class RandomLlama:
    """Sizes of a model; the default has 45 million weights and takes 26 MB."""

    dim: int = 512
    layers: int = 8
    heads: int = 8
    kv_heads: int = 4
    ffn: int = 1408
    vocab: int = 32000
    context: int = 8192
    seed: int = 0

    @property
    def depth(self) -> int:
        return self.dim // self.heads


DEFAULT = RandomLlama()


def random_llama(sizes: RandomLlama = DEFAULT, folder: Path | None = None) -> Path:
    """The model's file in the cache folder, written if it is not there yet."""
    folder = folder or cache_folder() / "models"
    name = "-".join(str(value) for value in asdict(sizes).values())
    path = folder / f"random-llama-{name}-Q4_0.gguf"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        write_random_llama(sizes, unfinished)
        os.replace(unfinished, path)
    return path


def write_random_llama(sizes: RandomLlama, path: Path) -> None:
    """Every matrix, the embedding and the head too, is Q4_0."""
    from gguf import GGMLQuantizationType, GGUFWriter, quants

    rng = np.random.default_rng(sizes.seed)
    writer: Any = GGUFWriter(path, "llama")
    writer.add_name("random Llama")
    writer.add_context_length(sizes.context)
    writer.add_embedding_length(sizes.dim)
    writer.add_block_count(sizes.layers)
    writer.add_feed_forward_length(sizes.ffn)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_rope_dimension_count(sizes.depth)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(sizes.vocab)
    writer.add_file_type(2)  # mostly Q4_0
    _add_tokenizer(writer, sizes.vocab)

    def matrix(name: str, rows: int, columns: int) -> None:
        weights = rng.standard_normal((rows, columns), np.float32) / np.float32(np.sqrt(columns))
        packed = quants.quantize(weights, GGMLQuantizationType.Q4_0)
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=GGMLQuantizationType.Q4_0)

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", rng.uniform(0.5, 1.5, sizes.dim).astype(np.float32))

    kv_dim = sizes.kv_heads * sizes.depth
    matrix("token_embd", sizes.vocab, sizes.dim)
    for layer in range(sizes.layers):
        norm(f"blk.{layer}.attn_norm")
        matrix(f"blk.{layer}.attn_q", sizes.dim, sizes.dim)
        matrix(f"blk.{layer}.attn_k", kv_dim, sizes.dim)
        matrix(f"blk.{layer}.attn_v", kv_dim, sizes.dim)
        matrix(f"blk.{layer}.attn_output", sizes.dim, sizes.dim)
        norm(f"blk.{layer}.ffn_norm")
        matrix(f"blk.{layer}.ffn_gate", sizes.ffn, sizes.dim)
        matrix(f"blk.{layer}.ffn_up", sizes.ffn, sizes.dim)
        matrix(f"blk.{layer}.ffn_down", sizes.dim, sizes.ffn)
    norm("output_norm")
    matrix("output", sizes.vocab, sizes.dim)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: Any, vocab: int) -> None:
    """A SentencePiece vocabulary of bytes and made-up words: some engines refuse a model without one."""
    special = [("<unk>", 2), ("<s>", 3), ("</s>", 3)]  # (text, kind: unknown, control, byte, normal)
    pieces = [*special, *((f"<0x{byte:02X}>", 6) for byte in range(256))]
    pieces += [(f"\u2581w{n}", 1) for n in range(vocab - len(pieces))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in pieces[:vocab]])
    writer.add_token_scores([0.0 if kind != 1 else -float(n) for n, (_, kind) in enumerate(pieces[:vocab])])
    writer.add_token_types([kind for _, kind in pieces[:vocab]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
