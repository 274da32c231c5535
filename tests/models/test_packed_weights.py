"""AWQ and GPTQ folders: packed as their tools pack, and read without a rounding where a block type allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_folders import write_folder

from hightide.errors import HightideError
from hightide.formats.gguf import GgufTensor
from hightide.formats.model_file import read_model
from hightide.formats.packed_weights import PackedWeight
from hightide.ops.blocks.layout import dequantize

OUT, IN = 64, 256
MODULE = "model.layers.0.self_attn.q_proj"
CONFIG = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": IN, "num_attention_heads": 4}
AWQ_NIBBLES = (0, 2, 4, 6, 1, 3, 5, 7)  # the columns that a word has, from its lowest bits on


def packed(values: np.ndarray, bits: int, places: tuple[int, ...] | None = None) -> np.ndarray:
    """Integers [n, m] as words [n, m * bits / 32]."""
    per_word = 32 // bits
    groups = values.astype(np.uint64).reshape(len(values), -1, per_word)[..., list(places or range(per_word))]
    words = sum(groups[..., n] << np.uint64(n * bits) for n in range(per_word))
    return np.asarray(words).astype(np.uint32).view(np.int32)


def weights(group: int, bits: int, symmetric: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(quants [in, out], zeros [groups, out], scales [groups, out])"""
    rng = np.random.default_rng(seed)
    zeros = rng.integers(1, 1 << bits, (IN // group, OUT))
    if symmetric:
        zeros[:] = 1 << bits - 1
    scales = rng.uniform(1e-3, 2e-2, zeros.shape).astype(np.float16)
    return rng.integers(0, 1 << bits, (IN, OUT)), zeros, scales


def gptq(folder: Path, group: int, bits: int, symmetric: bool, act_order: bool = False) -> tuple[Path, np.ndarray]:
    quants, zeros, scales = weights(group, bits, symmetric)
    index = np.arange(IN) // group
    if act_order:
        index = np.random.default_rng(1).permutation(index)
    tensors = {
        f"{MODULE}.qweight": packed(quants.T, bits).T,
        f"{MODULE}.qzeros": packed(zeros - 1, bits),  # one less, as the format wants it
        f"{MODULE}.scales": scales,
        f"{MODULE}.g_idx": index.astype(np.int32),
    }
    settings = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order}
    expected = scales[index].astype(np.float64) * (quants - zeros[index])
    return write_folder(folder, CONFIG | {"quantization_config": settings}, tensors), expected.T


def awq(folder: Path, group: int, symmetric: bool = False, **changes: Any) -> tuple[Path, np.ndarray]:
    quants, zeros, scales = weights(group, 4, symmetric)
    tensors = {
        f"{MODULE}.qweight": packed(quants, 4, AWQ_NIBBLES),
        f"{MODULE}.qzeros": packed(zeros, 4, AWQ_NIBBLES),
        f"{MODULE}.scales": scales,
    }
    settings = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm"} | changes
    index = np.arange(IN) // group
    expected = scales[index].astype(np.float64) * (quants - zeros[index])
    return write_folder(folder, CONFIG | {"quantization_config": settings}, tensors), expected.T


def as_gguf_has_it(weight: np.ndarray, heads: int = 4) -> np.ndarray:
    """Llama's rows of q."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def q_proj(folder: Path) -> tuple[GgufTensor, np.ndarray]:
    tensor = read_model(folder).tensors["blk.0.attn_q.weight"]
    return tensor, dequantize(tensor.data, tensor.type, tensor.dims)


@pytest.mark.parametrize(
    "group, bits, symmetric, kind",
    [
        *((32, 4, True, "Q4_0"), (128, 4, True, "Q4_0"), (64, 4, False, "Q5_0"), (128, 4, False, "Q5_0")),
        *((128, 8, True, "Q8_0"), (128, 8, False, "F16"), (16, 4, True, "F16")),
    ],
)
def test_gptq(group: int, bits: int, symmetric: bool, kind: str, tmp_path: Path) -> None:
    folder, expected = gptq(tmp_path / "x", group, bits, symmetric)
    tensor, got = q_proj(folder)
    assert tensor.type == kind
    tolerance = 1e-3 if kind == "F16" else 1e-7  # a product in float32; the blocks are exact
    np.testing.assert_allclose(got, as_gguf_has_it(expected), rtol=tolerance, atol=0)


def test_groups_in_any_order_become_float16(tmp_path: Path) -> None:
    folder, expected = gptq(tmp_path / "x", 64, 4, True, act_order=True)
    tensor, got = q_proj(folder)
    assert tensor.type == "F16"
    np.testing.assert_allclose(got, as_gguf_has_it(expected), rtol=1e-3)


@pytest.mark.parametrize("group, symmetric, kind", [(128, False, "Q5_0"), (-1, False, "Q5_0"), (32, True, "Q4_0")])
def test_awq(group: int, symmetric: bool, kind: str, tmp_path: Path) -> None:
    folder, expected = awq(tmp_path / "x", IN if group == -1 else group, symmetric, group_size=group)
    tensor, got = q_proj(folder)
    assert tensor.type == kind
    np.testing.assert_allclose(got, as_gguf_has_it(expected), rtol=1e-7)


@pytest.mark.parametrize(
    "changes",
    [
        *({"quant_method": "bitsandbytes"}, {"version": "gemv"}, {"bits": 3}, {"bits": 8}, {"bits": "4"}),
        *({"group_size": 100}, {"group_size": 0}, {"group_size": 64}, {"group_size": None}),
    ],
)
def test_what_cannot_be_read_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    folder, _ = awq(tmp_path / "x", 128, **changes)
    with pytest.raises(HightideError):
        read_model(folder)


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_only_the_rows_that_are_read_are_unpacked(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = awq(tmp_path / "a", 64) if method == "awq" else gptq(tmp_path / "g", 64, 4, False)
    data = q_proj(folder)[0].data
    whole, row = bytes(data.view()), data.length // OUT
    unpacked, counted = PackedWeight._unpacked, []

    def counting(weight: PackedWeight, words: np.ndarray) -> np.ndarray:
        counted.append(words.size)
        return unpacked(weight, words)

    monkeypatch.setattr(PackedWeight, "_unpacked", counting)
    for first, count in ((0, 1), (7, 1), (13, 11), (OUT - 1, 1)):
        counted.clear()
        assert data.region(first * row, count * row) == whole[first * row : (first + count) * row]
        assert max(counted) <= IN * (count + 16 * 2) // 8  # rows of a head are 16 apart, and words have 8 of them
