"""Float weights in blocks of a few bits, made when their rows are read, so that no model is in memory twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from gguf import GGMLQuantizationType, quants

from hightide.errors import InputError
from hightide.formats.gguf import GgufFile, GgufTensor, block_size
from hightide.formats.model_tensors import of_rows, read_rows

KINDS = {"q4_0": "Q4_0", "q8_0": "Q8_0", "q4_k": "Q4_K"}
FLOATS = ("F32", "F16", "BF16")
WHOLE = ("token_embd.weight", "output.weight")  # in 8 bits whatever the rest is in: they decide the logits
EXACT = ("norm", "ffn_gate_inp", ".bias")  # stays as it is: norms, what chooses experts, biases of experts
CANDIDATES = np.linspace(-1, 1, 11)  # steps more or less than 15 that a block's range is tried to be cut into
BLOCKS_AT_ONCE = 1 << 12  # of 256 elements: some 40 MB of intermediate results


def checked_kind(kind: object) -> str | None:
    """The block type that an option names."""
    if kind is None:
        return None
    if not isinstance(kind, str) or kind.lower() not in KINDS:
        raise InputError(f"quantize must be one of {', '.join(KINDS)}, not {kind!r}")
    return KINDS[kind.lower()]


def quantized(file: GgufFile, kind: str) -> GgufFile:
    """The model with its float matrices in blocks of this type; what does not fit into blocks stays as it is."""
    return replace(file, tensors={name: _quantized(tensor, kind) for name, tensor in file.tensors.items()})


def _quantized(tensor: GgufTensor, kind: str) -> GgufTensor:
    if tensor.type not in FLOATS or len(tensor.dims) < 2 or any(part in tensor.name for part in EXACT):
        return tensor
    if tensor.name in WHOLE:
        kind = "Q8_0"
    elif tensor.dims[-1] % block_size(kind)[0]:
        kind = "Q4_0"  # of 32 elements, not 256
    if tensor.dims[-1] % block_size(kind)[0]:
        return tensor
    encode = q4_k if kind == "Q4_K" else _encoder(kind)
    return of_rows(tensor, kind, tensor.dims, lambda first, count: encode(read_rows(tensor, first, count)))


def _encoder(kind: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda rows: quants.quantize(rows, GGMLQuantizationType[kind])


def q4_k(rows: np.ndarray) -> np.ndarray:
    """Rows of float32s, a multiple of 256, as blocks of Q4_K: eight times 32 quants with scales and minimums."""
    groups = rows.reshape(-1, 8, 32)
    made = [_q4_k(groups[n : n + BLOCKS_AT_ONCE]) for n in range(0, len(groups), BLOCKS_AT_ONCE)]
    return np.concatenate(made or [np.zeros((0, 144), np.uint8)]).reshape(len(rows), rows.shape[1] // 256 * 144)


def _q4_k(x: np.ndarray) -> np.ndarray:
    """[blocks, 8, 32] -> [blocks, 144]"""
    scale, low = _fitted(x)
    d, dmin = (v.max(-1, keepdims=True).astype(np.float32) / 63 for v in (scale, low))
    d, dmin = (v.astype(np.float16) for v in (d, dmin))
    scales, lows = (_steps(v, unit.astype(np.float32), 63) for v, unit in ((scale, d), (low, dmin)))
    step, start = scales * d.astype(np.float32), lows * dmin.astype(np.float32)
    q = _steps(x + start[..., None], step[..., None], 15)
    packed = np.concatenate([scales[:, :4] | scales[:, 4:] >> 4 << 6, lows[:, :4] | lows[:, 4:] >> 4 << 6], axis=1)
    packed = np.concatenate([packed, scales[:, 4:] & 15 | (lows[:, 4:] & 15) << 4], axis=1)
    nibbles = (q[:, 0::2] | q[:, 1::2] << 4).reshape(len(x), 128)
    return np.concatenate([d.view(np.uint8), dmin.view(np.uint8), packed, nibbles], axis=1)


def _steps(x: np.ndarray, unit: np.ndarray, most: int) -> np.ndarray:
    """How many units these are, rounded; none where there is no unit."""
    counts = np.divide(x, unit, out=np.zeros_like(x, np.float32), where=unit > 0)
    return np.clip(np.rint(counts), 0, most).astype(np.uint8)


def _fitted(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and minimums [blocks, 8], not negative, with which x is nearly scale * q - minimum for q of 0 to 15.

    Large weights count more: their errors are what is heard. Each candidate cuts the range into some steps; the scale
    and minimum that fit those quants best are a least-squares fit.
    """
    weight = np.sqrt(np.mean(x * x, -1, keepdims=True)) + np.abs(x)
    least, most = np.minimum(x.min(-1), 0), x.max(-1)
    span = np.maximum(most - least, 1e-30)
    best, best_scale, best_low = np.full(span.shape, np.inf), span / 15, -least
    total, sum_x = weight.sum(-1), (weight * x).sum(-1)
    for more in CANDIDATES:
        q = np.clip(np.rint((x - least[..., None]) * ((15 + more) / span)[..., None]), 0, 15)
        weighted = weight * q
        sum_q, sum_qq, sum_qx = weighted.sum(-1), (weighted * q).sum(-1), (weighted * x).sum(-1)
        determinant = total * sum_qq - sum_q * sum_q
        safe = np.where(determinant > 0, determinant, 1)
        scale = (total * sum_qx - sum_x * sum_q) / safe
        low = (sum_q * sum_qx - sum_qq * sum_x) / safe
        alone = (low < 0) | (determinant <= 0)  # the minimum cannot be above 0
        low = np.where(alone, 0, low)
        scale = np.maximum(np.where(alone, sum_qx / np.maximum(sum_qq, 1e-30), scale), 0)
        error = (weight * (scale[..., None] * q - low[..., None] - x) ** 2).sum(-1)
        better = error < best
        best, best_scale = np.where(better, error, best), np.where(better, scale, best_scale)
        best_low = np.where(better, low, best_low)
    return best_scale, best_low
