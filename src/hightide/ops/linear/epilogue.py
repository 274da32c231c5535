"""What a linear does with its product before it is stored: bias, a gated activation, a residual.

With an activation the weight holds the gate's rows and then as many rows of `up`: a thread that computes
columns `c` and `F + c` of the product stores activation(gate) * up. Kernels include `source()` and call
`finish` (or `four_columns` and `finish_four`), so that every route has every epilogue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.legacy import Binding, Dispatch, Tensor, ceil_div, kernel, require_dtype

ACTIVATIONS = ("silu", "gelu_tanh", "gelu")


@dataclass(frozen=True)
class Epilogue:
    """out = activation(product + bias) + residual; without an activation the product is kept as it is."""

    bias: Tensor | None = None
    residual: Tensor | None = None
    activation: str = ""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(t for t in (self.bias, self.residual) if t is not None)

    @property
    def halves(self) -> int:
        """How many columns of the product make one of the output."""
        return 2 if self.activation else 1

    def check(self, dims: Dims, padded: bool = False) -> list[Dims]:
        """The dims of the output for a product of these dims; a padded bias may be longer than it."""
        if self.activation and (self.activation not in ACTIVATIONS or dims[-1] % 2):
            raise UnsupportedError(f"an activation {self.activation!r} over {dims[-1]} columns has no kernel")
        check_bias(self.bias, dims[-1], padded and not self.activation)
        out = (*dims[:-1], dims[-1] // self.halves)
        if self.residual is not None and self.residual.dims != out:
            raise InputError(f"a residual of {list(self.residual.dims)} does not fit an output of {list(out)}")
        return [out]

    def require(self, out: Tensor) -> None:
        require_dtype("f32", out, *self.tensors)

    def defines(self, binding: int) -> dict[str, object]:
        """Its WGSL as a define of a kernel whose next free binding this is."""
        return {"EPILOGUE": source(binding, self.bias is not None, self.residual is not None, self.activation)}

    def apply(self, product: np.ndarray, bias: np.ndarray | None, residual: np.ndarray | None) -> np.ndarray:
        """What it means."""
        value = product if bias is None else product + bias[: product.shape[-1]]
        if self.activation:
            gate, up = np.split(value, 2, axis=-1)
            value = activate(self.activation, gate) * up
        return value if residual is None else value + residual


def check_bias(bias: Tensor | None, n: int, padded: bool = False) -> None:
    """One element per column; exporters pad the bias of a quantised linear."""
    if bias is not None and (bias.rank != 1 or bias.width < n or (bias.width > n and not padded)):
        raise InputError(f"a bias of {list(bias.dims)} does not fit {n} columns")


def activate(name: str, x: np.ndarray) -> np.ndarray:
    if name == "silu":
        return x / (1 + np.exp(-x))
    if name == "gelu_tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))


@cache
def source(binding: int, bias: bool, residual: bool, activation: str) -> str:
    """WGSL: the bindings from `binding` on, `finish` and what tiles need of it."""
    names = ["bias"] * bias + ["residual"] * residual
    bindings = [
        f"@group(0) @binding({n}) var<storage, read> {name}: array<f32>;" for n, name in enumerate(names, binding)
    ]
    bindings.append(f"@group(0) @binding({binding + len(names)}) var<storage, read_write> out: array<f32>;")
    folder = resources.files("hightide.ops.linear")
    text = folder.joinpath("epilogue.wgsl").read_text()
    if activation:
        text += folder.joinpath("activations.wgsl").read_text()
    return "\n".join(
        [
            *bindings,
            text.replace("$GATED", str(bool(activation)).lower())
            .replace("$ACTIVATE", f"{activation}(value)" if activation else "value")
            .replace("$BIAS_N2", " + bias[n2]" if bias else "")
            .replace("$BIAS_N", " + bias[n]" if bias else "")
            .replace("$RESIDUAL", " + residual[at]" if residual else ""),
        ]
    )


def apart(product: Binding, n: int, epilogue: Epilogue, rows: int, out: Tensor) -> Dispatch:
    """The epilogue as a dispatch of its own, over a product of `n` columns in memory."""
    return Dispatch(
        kernel("linear/epilogue_apart.wgsl", **epilogue.defines(3)),
        groups=ceil_div(rows * out.width, 64),
        params=(rows, n, out.width, 0),
        reads=(product, *epilogue.tensors),
        writes=(out,),
    )
