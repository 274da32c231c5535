"""AWQ's and GPTQ's 4-bit and 8-bit weights as GGUF's blocks, without a rounding: a weight is scale * (q - zero).

Where all zeros are in the middle, that is Q4_0 (or Q8_0 of 8 bits); where they are not, the difference has 5 bits and
is Q5_0. What no block type holds exactly, groups of rows in any order or odd sizes, becomes float16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.gguf import GgufTensor
from hightide.formats.model_tensors import of_rows
from hightide.formats.safetensors import StoredTensor

PARTS = ("qweight", "qzeros", "scales", "g_idx")
AWQ_ORDER = np.array([0, 4, 1, 5, 2, 6, 3, 7])  # where the columns that follow each other are in a word
BLOCK = 32


@dataclass(frozen=True)
class PackedWeight:
    """A matrix [out, in] in groups of `group` inputs, as its files hold it."""

    name: str
    bits: int
    group: int
    is_awq: bool
    added: int  # to each zero
    qweight: StoredTensor
    qzeros: StoredTensor
    scales: StoredTensor
    order: np.ndarray | None  # the group of each input, where they are not in order

    @property
    def dims(self) -> tuple[int, int]:
        per_word = 32 // self.bits
        rows, columns = self.qweight.dims
        return (columns * per_word, rows) if self.is_awq else (columns, rows * per_word)

    def quants(self, first: int, count: int) -> np.ndarray:
        """Rows of [out, in]."""
        if self.is_awq:
            return self._columns(self.qweight, first, count)
        return self._unpacked(_words(self.qweight)[:, first : first + count].T)  # along the inputs

    def zeros(self, first: int, count: int) -> np.ndarray:
        """Rows of [out, groups]."""
        return self._columns(self.qzeros, first, count).astype(np.int16) + self.added

    def scale(self, first: int, count: int) -> np.ndarray:
        """Rows of [out, groups]."""
        dtype = {"F16": np.float16, "F32": np.float32}[self.scales.type]
        return np.frombuffer(self.scales.data.view(), dtype).reshape(self.scales.dims)[:, first : first + count].T

    def _columns(self, tensor: StoredTensor, first: int, count: int) -> np.ndarray:
        """Columns of a matrix whose rows are packed, each as a row."""
        word, at = divmod(first, 32 // self.bits)
        words = _words(tensor)[:, word : -(-(first + count) * self.bits // 32)]
        return self._unpacked(words)[:, at : at + count].T

    def _unpacked(self, words: np.ndarray) -> np.ndarray:
        """[n, m] words as [n, m * 32 / bits] integers."""
        steps = np.arange(0, 32, self.bits, dtype=np.uint32)
        if self.is_awq:
            steps = steps[AWQ_ORDER]
        mask = np.uint32((1 << self.bits) - 1)
        return (words[..., None] >> steps & mask).astype(np.uint8).reshape(len(words), -1)


def unpacked(
    folder: Path, settings: Mapping[str, Any], stored: Mapping[str, StoredTensor]
) -> tuple[dict[str, StoredTensor], dict[str, GgufTensor]]:
    """The tensors that are as they are, and those that were packed, by the name of the weight that they are."""
    if settings.get("quant_method") == "awq" and settings.get("version", "gemm") != "gemm":
        raise UnsupportedError(f"{folder} has AWQ weights of version {settings['version']!r}; only 'gemm' is supported")
    plain: dict[str, StoredTensor] = {}
    modules: dict[str, dict[str, StoredTensor]] = {}
    for name, tensor in stored.items():
        module, _, part = name.rpartition(".")
        if part in PARTS:
            modules.setdefault(module, {})[part] = tensor
        else:
            plain[name] = tensor
    packed = {}
    for module, parts in modules.items():
        weight = _weight(folder, settings, f"{module}.weight", parts)
        packed[weight.name] = _as_blocks(weight)
    return plain, packed


def _weight(folder: Path, settings: Mapping[str, Any], name: str, parts: Mapping[str, StoredTensor]) -> PackedWeight:
    bits, group = settings.get("bits", settings.get("w_bit", 4)), settings.get("group_size", 128)
    is_awq = settings.get("quant_method") == "awq"
    if bits not in (4, 8) or (is_awq and bits != 4):
        raise UnsupportedError(f"{folder}: {name} has {bits!r} bits; 4 are supported, and 8 of GPTQ")
    if not parts.keys() >= {"qweight", "qzeros", "scales"}:
        raise ProgramError(f"{folder}: {name} lacks its qweight, qzeros or scales")
    wrong = [part for part in ("qweight", "qzeros") if parts[part].type != "I32"]
    if wrong or parts["scales"].type not in ("F16", "F32") or any(len(parts[p].dims) != 2 for p in PARTS[:3]):
        raise UnsupportedError(f"{folder}: {name} is not packed as integers [n, m] with scales in float16 or float32")
    added = 1 if not is_awq and settings.get("checkpoint_format", "gptq") == "gptq" else 0
    made = PackedWeight(name, bits, 0, is_awq, added, parts["qweight"], parts["qzeros"], parts["scales"], None)
    out, inputs = made.dims
    group = inputs if group == -1 else group
    if isinstance(group, bool) or not isinstance(group, int) or group < 1 or not out or not inputs or inputs % group:
        raise ProgramError(f"{folder}: {name} has {inputs} inputs in groups of {group!r}")
    groups = inputs // group
    if made.scales.dims != (groups, out) or made.qzeros.dims != (groups, out // (32 // bits)) or out % (32 // bits):
        raise ProgramError(f"{folder}: the parts of {name} {[out, inputs]} do not fit together")
    order = _order(folder, name, parts.get("g_idx"), inputs, group)
    return PackedWeight(name, bits, group, is_awq, added, made.qweight, made.qzeros, made.scales, order)


def _order(folder: Path, name: str, index: StoredTensor | None, inputs: int, group: int) -> np.ndarray | None:
    if index is None:
        return None
    if index.type != "I32" or index.dims != (inputs,):
        raise ProgramError(f"{folder}: g_idx of {name} is not {inputs} integers")
    order = np.frombuffer(index.data.view(), np.int32)
    if order.min() < 0 or order.max() >= inputs // group:
        raise ProgramError(f"{folder}: g_idx of {name} names a group that does not exist")
    return None if (order == np.arange(inputs) // group).all() else order


def _words(tensor: StoredTensor) -> np.ndarray:
    return np.frombuffer(tensor.data.view(), np.uint32).reshape(tensor.dims)


def _as_blocks(weight: PackedWeight) -> GgufTensor:
    out, inputs = weight.dims
    exact = weight.order is None and weight.group % BLOCK == 0 and weight.scales.type == "F16"
    middle = bool((weight.zeros(0, out) == 1 << weight.bits - 1).all())
    if exact and weight.bits == 4:
        kind, center = ("Q4_0", 8) if middle else ("Q5_0", 16)
    elif exact and middle:
        kind, center = "Q8_0", 0
    else:
        kind, center = "F16", 0

    def rows(first: int, count: int) -> np.ndarray:
        quants, zeros, scales = (part(first, count) for part in (weight.quants, weight.zeros, weight.scale))
        groups = np.arange(inputs) // weight.group if weight.order is None else weight.order
        steps = quants.astype(np.int16) - zeros[:, groups]
        if kind == "F16":
            return (steps * scales[:, groups].astype(np.float32)).astype(np.float16)
        d = np.repeat(scales, weight.group // BLOCK, axis=1).reshape(-1, 1).astype(np.float16)
        return np.concatenate([d.view(np.uint8), _block_bytes(kind, steps.reshape(-1, BLOCK) + center)], axis=1)

    return of_rows(GgufTensor(weight.name, kind, (out, inputs), weight.qweight.data), kind, (out, inputs), rows)


def _block_bytes(kind: str, q: np.ndarray) -> np.ndarray:
    """What follows the scale in a block: [blocks, 32] integers as GGUF has them."""
    if kind == "Q8_0":
        return q.astype(np.int8).view(np.uint8)
    q = q.astype(np.uint8)
    nibbles = q[:, :16] & 15 | (q[:, 16:] & 15) << 4
    if kind == "Q4_0":
        return nibbles
    return np.concatenate([np.packbits(q >> 4, axis=1, bitorder="little"), nibbles], axis=1)
