"""How a product of codes ends: an exact 32-bit sum becomes a float, or a code of the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.ops.contract import Op, Tensor
from hightide.ops.int8.affine import codes_of, inverse_of

ACTIVATIONS = ("none", "relu")


@dataclass(frozen=True)
class Ending:
    """What becomes of sums of codes x and weights with a scale per channel; tensors are arrays in references."""

    x_scale: float
    x_zero: int
    scales: Any
    bias: Any
    activation: str | None = None  # None: the output is floats
    out_scale: float = 1.0
    out_zero: int = 0

    @property
    def constants(self) -> dict[str, bool]:
        """Of requantize.wgsl."""
        codes, relu = self.activation is not None, self.activation == "relu"
        return {"BIAS": self.bias is not None, "TO_CODES": codes, "RELU": relu}

    @property
    def given(self) -> dict[str, Any]:
        """What requantize.wgsl takes."""
        return {
            "scales": self.scales,
            "bias": self.bias,
            "none": 0,
            "x_zero": self.x_zero,
            "x_scale": self.x_scale,
            "inverse": inverse_of(self.out_scale),
            "out_zero": self.out_zero,
        }

    def codes(self, total: np.ndarray) -> np.ndarray:
        """Exact sums as codes, in float32 as on the GPU; `scales` and `bias` broadcast."""
        value = total.astype(np.float32) * (np.float32(self.x_scale) * self.scales.astype(np.float32))
        if self.bias is not None:
            value = value + self.bias.astype(np.float32)
        value = np.maximum(value, 0) if self.activation == "relu" else value
        return codes_of(value, inverse_of(self.out_scale), self.out_zero, -128, 127)


class CodesProduct(Op):
    """Base of products of codes x, of a scale and zero point; `sums` are those of the weight's rows."""

    x: Tensor
    scale: float
    zero: int
    weight: Tensor
    sums: Tensor
    scales: Tensor


class ToCodes(CodesProduct):
    """Base of those whose output is codes."""

    out_scale: float
    out_zero: int
    bias: Tensor | None
    if TYPE_CHECKING:  # the last argument
        activation: str

    @property
    def ending(self) -> Ending:
        numbers = (self.activation, self.out_scale, self.out_zero)
        return Ending(self.scale, self.zero, self.scales, self.bias, *numbers)


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
