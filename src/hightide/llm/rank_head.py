"""The head of a cross-encoder: the vector of a query with a document -> how well they go together.

Of a decoder, the vector is that of the last row, and the score how much "yes" is likelier than "no" as the next token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.gguf import GgufFile
from hightide.formats.rerankers import LABELS
from hightide.ops.blocks.layout import BLOCK_TYPES, dequantize
from hightide.ops.elementwise.elementwise import Gelu
from hightide.option_checks import shown

MEAN = 1  # the pooling type in a GGUF file
DENSE, OUT = "cls", "cls.output"


@dataclass(frozen=True)
class RankHead:
    """[width] -> activation(dense) -> norm -> out, as far as the file has them. In float64: it is one row."""

    arrays: dict[str, np.ndarray]
    tanh: bool  # else GELU
    eps: float
    mean: bool  # of all rows; else of the first one

    def score(self, vector: np.ndarray) -> np.ndarray:
        """[1]"""
        x, arrays = vector.astype(np.float64), self.arrays
        if "cls.weight" in arrays:
            x = arrays["cls.weight"] @ x + arrays.get("cls.bias", 0.0)
            x = np.tanh(x) if self.tanh else Gelu.reference(x, "none")
        if "cls.norm.weight" in arrays:
            x = (x - x.mean()) / np.sqrt(x.var() + self.eps) * arrays["cls.norm.weight"]
        if "cls.output.weight" in arrays:
            x = arrays["cls.output.weight"] @ x + arrays.get("cls.output.bias", 0.0)
        return x.astype(np.float32)


def has_rank_head(file: GgufFile) -> bool:
    return f"{OUT}.weight" in file.tensors


def rank_head(file: GgufFile) -> RankHead:
    if not has_rank_head(file):
        raise UnsupportedError(f"{file.path} has no head that ranks (tensor {OUT}.weight)")
    names = [f"{DENSE}.weight", f"{DENSE}.bias", "cls.norm.weight", f"{OUT}.weight", f"{OUT}.bias"]
    found = {name: file.tensors[name] for name in names if name in file.tensors}
    for name, tensor in found.items():
        if len(tensor.dims) != (2 if name in (f"{DENSE}.weight", f"{OUT}.weight") else 1):
            raise ProgramError(f"{file.path}: {name} has {len(tensor.dims)} dims")
        if tensor.type not in BLOCK_TYPES:
            raise UnsupportedError(f"{file.path}: {name} has type {tensor.type}")
    eps = file.get("attention.layer_norm_epsilon", 1e-5)
    if not isinstance(eps, int | float) or not 0 <= eps < math.inf:
        raise ProgramError(f"{file.path}: attention.layer_norm_epsilon is {shown(eps)}")
    arrays = {name: dequantize(t.data, t.type, t.dims).astype(np.float64) for name, t in found.items()}
    if file.get("classifier.output_labels") == LABELS:
        arrays[f"{OUT}.weight"] = -np.diff(arrays[f"{OUT}.weight"], axis=0)
    labels, width = len(arrays[f"{OUT}.weight"]), file.get("embedding_length")
    if labels != 1:
        raise UnsupportedError(f"{file.path} sorts texts into {labels} classes; only heads with one score rank")
    dims = {f"{DENSE}.weight": (width, width), f"{OUT}.weight": (1, width), f"{OUT}.bias": (1,)}
    for name, array in arrays.items():
        if array.shape != dims.get(name, (width,)):
            raise ProgramError(
                f"{file.path}: {name} has dims {list(array.shape)}, not {list(dims.get(name, (width,)))}"
            )
    modern = file.architecture == "modern-bert"
    mean = file.get("classifier.pooling_type", MEAN if modern else 0) == MEAN
    return RankHead(arrays, not modern, eps, mean)
