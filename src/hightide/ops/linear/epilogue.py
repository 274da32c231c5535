"""What a linear does with its product before it is stored: bias, an activation, a residual.

With a gate the weight holds the gate's rows and then as many rows of `up`: a thread that computes columns `c`
and `F + c` of the product stores activation(gate) * up. Every kernel of a linear includes epilogue.wgsl, so that every
route has every epilogue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import Dispatch, Scratch, Tensor, ceil_div, kernel
from hightide.ops.elementwise.template import broadcast
from hightide.wgsl.preprocessor import Constant

ACTIVATIONS = ("silu", "gelu_tanh", "gelu", "clamped_swiglu")
LIMIT, STEEPNESS = 7.0, 1.702  # of clamped_swiglu, the gate of gpt-oss


@dataclass(slots=True)
class Epilogue:
    """out = activation(product + bias) + residual; without an activation the product is kept as it is.

    Where it is `gated`, the activation is of the gate, and multiplies `up`.
    """

    bias: Tensor | None = None
    residual: Tensor | None = None
    activation: str = ""
    gated: bool = True
    experts: str = ""  # how rows find the matrix and the bias that is theirs; see `Experts`

    @property
    def sides(self) -> int:
        """How many columns of the product make one of the output."""
        return 2 if self.activation and self.gated else 1

    @property
    def constants(self) -> dict[str, Constant]:
        """Of epilogue.wgsl."""
        given = {"BIAS": self.bias is not None, "RESIDUAL": self.residual is not None}
        words = {"ACTIVATION": self.activation, "EXPERTS": self.experts}
        return {**given, **words, "GATED": self.sides == 2, "APART": False}

    def check(self, dims: Dims, padded: bool = False, spread: bool = False) -> list[Dims]:
        """The dims of the output for a product of these dims.

        A padded bias may be longer than it. With `spread`, one row of a residual may be for many of the product, or one
        row of the product for many of a residual.
        """
        n = dims[-1]
        if self.activation and (self.activation not in ACTIVATIONS or n % self.sides):
            raise UnsupportedError(f"an activation {self.activation!r} over {n} columns has no kernel")
        bias, padded = self.bias, padded and self.sides == 1
        if bias is not None and (bias.rank != 1 or bias.width < n or (bias.width > n and not padded)):
            raise InputError(f"a bias of {list(bias.dims)} does not fit {n} columns")
        out = (*dims[:-1], n // self.sides)
        if self.residual is None or self.residual.dims == out:
            return [out]
        rows = {axis for x in (out, self.residual.dims) for axis, size in enumerate(x[:-1]) if size != 1}
        if not spread or len(rows) > 1 or self.residual.rank != len(out) or self.residual.width != out[-1]:
            raise InputError(f"a residual of {list(self.residual.dims)} does not fit an output of {list(out)}")
        return [broadcast(out, self.residual.dims)]


class Norm(NamedTuple):
    """x / sqrt(mean(x^2) + eps) * weight."""

    weight: Tensor
    eps: float


@dataclass(slots=True)
class Experts:
    """Of several matrices, which one each row is multiplied with; see row_experts.wgsl."""

    count: int
    each: int  # rows that share a row of x
    route: str  # "gathered", "grouped" or "heads"
    chosen: Tensor | None = None  # an expert for each row; with "heads" they take turns
    first: int = 0  # of those whose matrices this weight has
    held: int = 0
    lists: dict[int, Scratch] = field(default_factory=dict)  # of tiles, by their rows; made by experts/group.wgsl


@dataclass(slots=True)
class Product:
    """Rows of x times a weight, with an epilogue, into rows of an output: what a route computes."""

    x: Tensor | Scratch  # [rows, k]
    rows: int
    k: int
    epilogue: Epilogue
    out: Tensor | Scratch  # [rows, width]
    width: int
    norm: Norm | None = None  # of x, before the product
    experts: Experts | None = None

    def stored(self, n: int, first: int = 0) -> dict[str, Any]:
        """What epilogue.wgsl takes for a weight of `n` columns, of which the first is column `first` of the product."""
        epilogue = self.epilogue
        given = {"n": n, "out_width": self.width, "first": first, "out": self.out}
        if epilogue.bias is not None:
            given["bias"] = epilogue.bias
        if epilogue.residual is not None:
            given["residual"] = epilogue.residual
        return given


def store_apart(product: Product, plain: Scratch, n: int, rows: int) -> Dispatch:
    """The epilogue as a dispatch of its own, for `rows` of output: the plain product of `n` columns is in memory."""
    strides = {"product_row": n if product.rows == rows else 0}
    if product.epilogue.residual is not None:
        strides["residual_row"] = product.width if product.epilogue.residual.rows == rows else 0
    constants = {**product.epilogue.constants, "APART": True}
    return kernel("linear/epilogue_apart.wgsl", **constants).over(
        ceil_div(rows * product.width, 64), product=plain, rows=rows, **strides, **product.stored(n)
    )


def finished(
    product: np.ndarray,
    bias: np.ndarray | None,
    residual: np.ndarray | None = None,
    activation: str = "",
    gated: bool = True,
) -> np.ndarray:
    """What an epilogue means."""
    value = product if bias is None else product + bias[: product.shape[-1]]
    if activation and not gated:
        value = activate(activation, value)
    elif activation:
        gate, up = np.split(value, 2, axis=-1)
        up = np.clip(up, -LIMIT, LIMIT) + 1 if activation == "clamped_swiglu" else up
        value = activate(activation, gate) * up
    return value if residual is None else value + residual


def activate(name: str, x: np.ndarray) -> np.ndarray:
    if name == "silu":
        return x / (1 + np.exp(-x))
    if name == "clamped_swiglu":
        gate = np.minimum(x, LIMIT)
        return gate / (1 + np.exp(-STEEPNESS * gate))
    if name == "gelu_tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))
