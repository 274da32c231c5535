"""Folders with weights of 8-bit floats: scales of blocks, of rows and of whole matrices."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode import all_logits, error_of_range, exact_session
from hf_folders import safetensors_bytes
from test_architectures import CHUNKS, CONTEXT, MAX_TOKENS, ON_CPU
from test_folders import FOLDERS, saved

from hightide.errors import HightideError, ProgramError, UnsupportedError
from hightide.formats.gguf import GgufTensor
from hightide.formats.model_file import read_model
from hightide.formats.quantizers import quantized
from hightide.llm.models import build_graph
from hightide.ops.blocks.layout import dequantize

ROWS, WIDTH = 100, 96
MODULE = "model.layers.0.mlp.down_proj"
BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 40]}
COMPRESSED = {"quant_method": "compressed-tensors", "format": "float-quantized"}


def e4m3(code: int) -> float:
    """What ONNX and the OCP say of float8_e4m3fn: 448 is the largest, there is no infinity."""
    sign, exponent, rest = code >> 7, code >> 3 & 15, code & 7
    if (exponent, rest) == (15, 7):
        return math.nan
    size = math.ldexp(rest, -9) if exponent == 0 else math.ldexp(1 + rest / 8, exponent - 7)
    return -size if sign else size


NUMBERS = np.array([e4m3(code) for code in range(256)])
CODES = np.random.default_rng(4).choice(np.flatnonzero(np.isfinite(NUMBERS)), (ROWS, WIDTH)).astype(np.uint8)


def fp8_folder(
    folder: Path, settings: dict[str, Any], codes: np.ndarray, kind: str = "F8_E4M3", **others: np.ndarray
) -> Path:
    """`others` are beside the weight, such as its scales."""
    folder.mkdir()
    config = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": settings}), "utf-8")
    tensors = {f"{MODULE}.weight": codes} | {f"{MODULE}.{name}": array for name, array in others.items()}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors, {f"{MODULE}.weight": kind}))
    return folder


def down_proj(folder: Path) -> tuple[GgufTensor, np.ndarray]:
    tensor = read_model(folder).tensors["blk.0.ffn_down.weight"]
    return tensor, dequantize(tensor.data, tensor.type, tensor.dims)


def scales(*dims: int) -> np.ndarray:
    return np.random.default_rng(9).uniform(1e-4, 2e-2, dims).astype(np.float32)


def test_logits_of_a_folder_in_fp8() -> None:
    """make_folders.py wrote it in blocks, and transformers dequantised it."""
    tokens, expected = saved("qwen3_fp8")
    graph = build_graph(read_model(FOLDERS / "qwen3_fp8"), CONTEXT, MAX_TOKENS)
    assert error_of_range(all_logits(exact_session(graph), tokens, CHUNKS["odd"]), expected) <= ON_CPU


def test_blocks_that_do_not_fill_the_matrix(tmp_path: Path) -> None:
    scale = scales(4, 3)  # of 100 x 96 in blocks of 32 x 40
    tensor, got = down_proj(fp8_folder(tmp_path / "x", BLOCKS, CODES, weight_scale_inv=scale))
    each = scale.repeat(32, axis=0)[:ROWS].repeat(40, axis=1)[:, :WIDTH].astype(np.float64)
    assert tensor.type == "F16" and tensor.dims == (ROWS, WIDTH)
    np.testing.assert_allclose(got, NUMBERS[CODES] * each, rtol=2**-11, atol=2**-25)
    some = np.frombuffer(tensor.data.region(2 * 33 * WIDTH + 6, 20), np.float16)  # within a row of the second block
    np.testing.assert_array_equal(some, got[33, 3:13])


@pytest.mark.parametrize("dims", [(), (1,), (ROWS, 1), (ROWS,)])
def test_scales_of_rows_and_of_matrices(dims: tuple[int, ...], tmp_path: Path) -> None:
    scale = scales(*dims)
    folder = fp8_folder(tmp_path / "x", COMPRESSED, CODES, weight_scale=scale, input_scale=np.ones(1, np.float32))
    _, got = down_proj(folder)
    each = scale.reshape(-1, 1).astype(np.float64)
    np.testing.assert_allclose(got, NUMBERS[CODES] * each, rtol=2**-11, atol=2**-25)


def test_the_other_kind_of_8_bits(tmp_path: Path) -> None:
    codes = np.array([[0x3C, 0xBC, 0x00, 0x01] * 8], np.uint8)  # float16's upper halves
    _, got = down_proj(fp8_folder(tmp_path / "x", COMPRESSED, codes, "F8_E5M2", weight_scale=np.float32([0.5])))
    np.testing.assert_array_equal(got[0, :4], [0.5, -0.5, 0, 2.0**-17])


def test_fp8_weights_are_quantised(tmp_path: Path) -> None:
    folder = fp8_folder(tmp_path / "x", BLOCKS, CODES, weight_scale_inv=scales(4, 3))
    made = quantized(read_model(folder), "Q8_0").tensors["blk.0.ffn_down.weight"]
    _, exact = down_proj(folder)
    assert made.type == "Q8_0"
    np.testing.assert_allclose(dequantize(made.data, made.type, made.dims), exact, atol=np.abs(exact).max() / 250)


def test_a_weight_that_is_no_number_is_said(tmp_path: Path) -> None:
    codes = CODES.copy()
    codes[3, 5] = 0x7F
    with pytest.raises(ProgramError, match=r"down_proj\.weight has a weight that is no number"):
        down_proj(fp8_folder(tmp_path / "x", BLOCKS, codes, weight_scale_inv=scales(4, 3)))


@pytest.mark.parametrize(
    "settings, others, error, message",
    [
        (BLOCKS, {}, ProgramError, "down_proj.weight is F8_E4M3, but there is no"),
        (BLOCKS, {"weight_scale_inv": scales(5, 3)}, ProgramError, r"scales \[5, 3\].*blocks of 32 x 40"),
        (COMPRESSED, {"weight_scale": scales(4, 3)}, ProgramError, "no weight_block_size"),
        (BLOCKS | {"weight_block_size": [0, 40]}, {}, ProgramError, "weight_block_size"),
        (BLOCKS, {"weight_scale_inv": np.ones((4, 3), np.int32)}, UnsupportedError, "are I32; F32"),
        (COMPRESSED | {"format": "pack-quantized"}, {}, UnsupportedError, "pack-quantized"),
        ({"quant_method": "bitsandbytes"}, {}, UnsupportedError, "bitsandbytes .quant_method.; .*fp8"),
    ],
)
def test_what_cannot_be_read_is_said(
    settings: dict[str, Any], others: dict[str, np.ndarray], error: type[HightideError], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        read_model(fp8_folder(tmp_path / "x", settings, CODES, **others))
