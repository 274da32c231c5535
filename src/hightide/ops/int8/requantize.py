"""How a product of codes ends: an exact 32-bit sum becomes a float, or a code of the output.

The WGSL here is the tail of the linear and convolution kernels; it reads `params.x_scale`, `.inverse`,
`.out_zero` and `.none`, and the buffers `scales` and `bias`.
"""

from __future__ import annotations

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.ops.int8.affine import codes_of, inverse_of
from hightide.ops.legacy import Tensor

# `none` is always zero, which the compiler cannot know: the product is rounded before the bias is added.
_VALUE = """
fn value_of(total: i32, channel: u32, scale: u32) -> f32 {
    var value = bitcast<f32>(bitcast<u32>(f32(total) * (params.x_scale * scales[scale])) ^ params.none);
    $add_bias
    return value;
}"""
_CODE = """
fn code_of(total: i32, channel: u32, scale: u32) -> i32 {
    let value = $activation;
    return i32(clamp(round(value * params.inverse) + params.out_zero, -128.0, 127.0));
}"""
ACTIVATIONS = {"none": "value_of(total, channel, scale)", "relu": "max(value_of(total, channel, scale), 0.0)"}


def tail(bias: Tensor | None, activation: str | None) -> str:
    """WGSL of `value_of`, and of `code_of` where the output is codes (`activation` given)."""
    value = _VALUE.replace("$add_bias", "" if bias is None else "value += bias[channel];")
    return value if activation is None else value + _CODE.replace("$activation", ACTIVATIONS[activation])


def check_activation(activation: str) -> None:
    if activation not in ACTIVATIONS:
        raise UnsupportedError(f"the activation {activation!r}: only {' and '.join(ACTIVATIONS)} have a form")


def require_int8(*tensors: Tensor) -> None:
    for tensor in tensors:
        if tensor.dtype != "int8":
            raise UnsupportedError(f"its kernels take int8 codes; tensor {tensor.value.id} is {tensor.dtype}")


def check_columns(n: int, scales: Tensor, *others: Tensor | None) -> None:
    """Parameters of columns may be padded, but not too few."""
    for tensor in (scales, *others):
        if tensor is not None and (tensor.rank != 1 or tensor.numel < n):
            raise InputError(f"parameters of {list(tensor.dims)} do not cover {n} channels")


def values(total: np.ndarray, x_scale: float, scales: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Exact sums as floats, in float32 as on the GPU; `scales` and `bias` broadcast."""
    value = total.astype(np.float32) * (np.float32(x_scale) * scales.astype(np.float32))
    return value if bias is None else value + bias.astype(np.float32)


def requantized(
    total: np.ndarray,
    x_scale: float,
    scales: np.ndarray,
    bias: np.ndarray | None,
    out_scale: float,
    out_zero: int,
    activation: str,
) -> np.ndarray:
    value = values(total, x_scale, scales, bias)
    return codes_of(np.maximum(value, 0) if activation == "relu" else value, inverse_of(out_scale), out_zero, -128, 127)
