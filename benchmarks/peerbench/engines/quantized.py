"""The weights of a GGUF file as peers take them, and the one q4 matrix that all multiply by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

K, N, GROUP = 2048, 8192, 32


def q4_matrix() -> tuple[np.ndarray, np.ndarray]:
    """(bytes [N, K/2] with the low nibble first, scales [N, K/GROUP]); a weight is (nibble - 8) * scale."""
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (N, K // 2), dtype=np.uint8)
    scales = (rng.uniform(0.5, 1.5, (N, K // GROUP)) / 200).astype(np.float32)
    return packed, scales


def activations(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, K)).astype(np.float32)


def quantize_q4(weights: np.ndarray, group: int = GROUP) -> tuple[np.ndarray, np.ndarray]:
    """A float matrix as `q4_matrix` has it; of a Q4_0 tensor's values, exactly those."""
    rows, columns = weights.shape
    blocks = weights.reshape(rows, columns // group, group)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(-1, keepdims=True), -1)
    scales = extreme / -8  # as Q4_0: the value furthest from zero is nibble 0
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
    nibbles = np.clip(np.rint(blocks * inverse + 8), 0, 15).astype(np.uint8).reshape(rows, columns)
    return nibbles[:, 0::2] | nibbles[:, 1::2] << 4, scales[..., 0].astype(np.float32)


@dataclass(frozen=True)
class Llama:
    """A GGUF file of the llama architecture, opened with the gguf package."""

    reader: Any

    def __getitem__(self, name: str) -> np.ndarray:
        """A tensor's values."""
        from gguf import quants

        tensor = next((t for t in self.reader.tensors if t.name == name), None)
        if tensor is None:
            raise KeyError(name)
        return np.asarray(quants.dequantize(tensor.data, tensor.tensor_type), np.float32)

    def halves(self, name: str) -> np.ndarray:
        """The weights of queries or keys with the rows of a head in the order of Hugging Face: the pairs that rotary
        embedding turns are the two halves of a head, and not neighbours as in a GGUF file."""
        weights, depth = self[name], self.sizes["depth"]
        return weights.reshape(-1, depth // 2, 2, weights.shape[-1]).swapaxes(1, 2).reshape(weights.shape)

    def __contains__(self, name: str) -> bool:
        return any(t.name == name for t in self.reader.tensors)

    def field(self, name: str, default: Any = None) -> Any:
        found = self.reader.fields.get(f"llama.{name}")
        return default if found is None else found.contents()

    @property
    def head(self) -> np.ndarray:
        return self["output.weight" if "output.weight" in self else "token_embd.weight"]

    @property
    def sizes(self) -> dict[str, int]:
        heads = self.field("attention.head_count")
        return {
            "layers": self.field("block_count"),
            "dim": self.field("embedding_length"),
            "heads": heads,
            "kv_heads": self.field("attention.head_count_kv", heads),
            "depth": self.field("embedding_length") // heads,
            "ffn": self.field("feed_forward_length"),
        }

    @property
    def eps(self) -> float:
        return float(self.field("attention.layer_norm_rms_epsilon"))

    def rope_tables(self, context: int) -> tuple[np.ndarray, np.ndarray]:
        """cos and sin [context, depth / 2]."""
        depth = self.sizes["depth"]
        base = float(self.field("rope.freq_base", 10000.0))
        angles = np.outer(np.arange(context), base ** (-np.arange(0, depth, 2) / depth))
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def open_llama(path: str) -> Llama:
    from gguf import GGUFReader

    reader = GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    if architecture != "llama":
        raise ValueError(f"this peer reads llama models, and {path} is {architecture}")
    return Llama(reader)
