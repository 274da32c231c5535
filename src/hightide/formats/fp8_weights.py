"""Weights of 8-bit floats as float16: each is multiplied by the scale of its block, its row or its tensor.

So DeepSeek V3 and the FP8 folders of Qwen3 have them (`weight_scale_inv`, blocks of 128 x 128), and those that
compressed-tensors wrote (`weight_scale`). Scales of activations are not used: these are float32 here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.gguf import GgufTensor
from hightide.formats.model_tensors import of_rows, read_rows
from hightide.formats.safetensors import StoredTensor

FORMATS = ("float-quantized", "naive-quantized")  # of compressed-tensors
SCALES = ("_scale_inv", "_scale")  # behind the name of a weight
OF_ACTIVATIONS = (".input_scale", ".output_scale", ".activation_scale", ".q_scale", ".k_scale", ".v_scale")
Block = tuple[int, int]  # (rows, columns) that have a scale in common


def fp8_weights(
    folder: Path, settings: Mapping[str, Any], stored: Mapping[str, StoredTensor]
) -> tuple[dict[str, StoredTensor], dict[str, GgufTensor]]:
    """The tensors that are as they are, and those that were in 8 bits."""
    kind = settings.get("format", FORMATS[0])
    if kind not in FORMATS:
        raise UnsupportedError(
            f"{folder} has weights in the format {kind!r} of compressed-tensors; {' and '.join(FORMATS)} are supported"
        )
    size, packed, used = _block_size(folder, settings), {}, set()
    for name, tensor in stored.items():
        if tensor.type not in TABLES:
            continue
        scale_name = next((name + end for end in SCALES if name + end in stored), None)
        if scale_name is None:
            raise ProgramError(f"{folder}: {name} is {tensor.type}, but there is no {name}{SCALES[0]} or {SCALES[1]}")
        packed[name] = _multiplied(folder, name, tensor, stored[scale_name], size)
        used |= {name, scale_name}
    plain = {name: t for name, t in stored.items() if name not in used and not name.endswith(OF_ACTIVATIONS)}
    return plain, packed


def _block_size(folder: Path, settings: Mapping[str, Any]) -> Block | None:
    """Of blocks that have a scale, where the settings say it."""
    given = settings.get("weight_block_size")
    groups = settings.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        given = (weights.get("block_structure") if isinstance(weights, dict) else None) or given
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != 2 or not all(type(n) is int and n > 0 for n in given):
        raise ProgramError(f"{folder}: weight_block_size is {given!r}, not two positive integers")
    return given[0], given[1]


def _multiplied(folder: Path, name: str, weight: StoredTensor, scale: StoredTensor, size: Block | None) -> GgufTensor:
    if len(weight.dims) < 2 or not math.prod(weight.dims):
        raise UnsupportedError(f"{folder}: {name} is {weight.type} of dims {list(weight.dims)}; matrices are supported")
    if scale.type not in ("F32", "F16", "BF16"):
        raise UnsupportedError(f"{folder}: the scales of {name} are {scale.type}; F32, F16 and BF16 are supported")
    *outer, height, width = weight.dims
    tall, wide = _block_of(folder, name, weight, scale, size)
    down, across = -(-height // tall), -(-width // wide)
    scales = GgufTensor(name, scale.type, (math.prod(outer) * down, across), scale.data)

    def rows(first: int, count: int) -> np.ndarray:
        codes = np.frombuffer(weight.data.region(first * width, count * width), np.uint8).reshape(count, width)
        row = np.arange(first, first + count)
        each = read_rows(scales, 0, scales.dims[0])[row // height * down + row % height // tall]
        with np.errstate(over="ignore", invalid="ignore"):  # it is said below
            made = (TABLES[weight.type][codes] * np.repeat(each, wide, axis=1)[:, :width]).astype(np.float16)
        if not np.isfinite(made).all():
            raise ProgramError(f"{folder}: {name} has a weight that is no number, or too large for float16")
        return made

    return of_rows(GgufTensor(name, "F16", weight.dims, weight.data), "F16", weight.dims, rows)


def _block_of(folder: Path, name: str, weight: StoredTensor, scale: StoredTensor, size: Block | None) -> Block:
    """What a scale is for, by how many there are: a block as the settings have it, a row, or the whole matrix."""
    *outer, height, width = weight.dims
    for tall, wide in (*([size] if size else []), (1, width), (height, width)):
        expected = (*outer, -(-height // tall), -(-width // wide))
        if [dim for dim in scale.dims if dim != 1] == [dim for dim in expected if dim != 1]:
            return min(tall, height), min(wide, width)
    blocks = f"blocks of {size[0]} x {size[1]}" if size else "no weight_block_size"
    raise ProgramError(
        f"{folder}: {name} {list(weight.dims)} has scales {list(scale.dims)}, which are not one for each matrix or "
        f"row; the config has {blocks}"
    )


def _e4m3() -> np.ndarray:
    """The 256 numbers of a sign, four bits of exponent and three more; the last of each sign is none."""
    codes = np.arange(256)
    exponent, rest = codes >> 3 & 15, codes & 7
    size = np.where(exponent == 0, rest, (rest + 8) * 2.0 ** (exponent - 1)) * 2.0**-9
    size[codes & 127 == 127] = np.nan
    return np.where(codes < 128, size, -size).astype(np.float32)


def _e5m2() -> np.ndarray:
    """The upper halves of float16."""
    return (np.arange(256, dtype=np.uint16) << 8).view(np.float16).astype(np.float32)


TABLES = {"F8_E4M3": _e4m3(), "F8_E5M2": _e5m2()}
