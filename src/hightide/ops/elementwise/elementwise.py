"""Elementwise ops, one line per op.

An op is an expression over the operands `a`, `b`, `c` and the scalars `p`, `q` (all `vec4` of the
compute type), and a NumPy function with the same meaning. `template.py` turns it into kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.elementwise.template import Elementwise, broadcast
from hightide.ops.legacy import Context, Tensor, add

INFINITY = float("inf")


def both(floats: str, ints: str) -> dict[str, str]:
    return {"f32": floats, "i32": ints}


def bits(ints: str, bools: str) -> dict[str, str]:
    return {"i32": ints, "bool": bools}


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _trunc_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.trunc(np.true_divide(a, b))


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NumPy refuses whole numbers to negative powers; torch cuts the result to a whole number."""
    if np.result_type(a, b).kind not in "iu":
        return np.power(a, b)
    positive = np.power(a, np.maximum(b, 0))
    inverse = np.where(a == 1, 1, np.where(np.equal(a, -1), 1 - 2 * (b % 2), 0))
    return np.where(np.less(b, 0), inverse, positive)


def _clamp(x: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.minimum(np.maximum(x, low), high)


_CLAMP = both("keep_nan(a, min(max(a, p), q))", "min(max(a, p), q)")
_UNARY: dict[str, tuple[str | dict[str, str], Callable[..., np.ndarray]]] = {
    "abs": ("abs(a)", np.abs),
    "neg": ("-a", np.negative),
    "relu": (both("keep_nan(a, max(a, p))", "max(a, p)"), lambda x: np.maximum(x, 0)),
    "round": (both("round(a)", "a"), np.round),  # halves to even
    "floor": (both("floor(a)", "a"), np.floor),
    "ceil": (both("ceil(a)", "a"), np.ceil),
    "trunc": (both("trunc(a)", "a"), np.trunc),
    "sign": ("sign(a)", lambda x: np.greater(x, 0).astype(np.int8) - np.less(x, 0)),  # of NaN: 0
    "square": ("a * a", np.square),
}
_FLOAT_UNARY: dict[str, tuple[str, Callable[..., np.ndarray]]] = {
    "exp": ("exp(a)", np.exp),
    "log": ("log(a)", np.log),
    "log2": ("log2(a)", np.log2),
    "log10": ("log(a) * 0.4342944819", np.log10),
    "sqrt": ("sqrt(a)", np.sqrt),
    "rsqrt": ("inverseSqrt(a)", lambda x: 1 / np.sqrt(x)),
    "reciprocal": ("1.0 / a", lambda x: 1 / x),
    "sin": ("sine(a, 0)", np.sin),
    "cos": ("sine(a, 1)", np.cos),
    "tan": ("sine(a, 0) / sine(a, 1)", np.tan),
    "atan": ("atan(a)", np.arctan),
    "tanh": ("tanh(clamp(a, vec4<f32>(-15.0), vec4<f32>(15.0)))", np.tanh),  # exp overflows beyond
    "sigmoid": ("1.0 / (1.0 + exp(-a))", _sigmoid),
    "silu": ("a / (1.0 + exp(-a))", lambda x: x * _sigmoid(x)),
    "hardswish": ("a * clamp(a + 3.0, vec4<f32>(), vec4<f32>(6.0)) / 6.0", lambda x: x * _clamp(x + 3, 0, 6) / 6),
    "hardsigmoid": ("clamp(a + 3.0, vec4<f32>(), vec4<f32>(6.0)) / 6.0", lambda x: _clamp(x + 3, 0, 6) / 6),
}
for _name, (_expr, _meaning) in _UNARY.items():
    add(Elementwise(_expr, _meaning), f"aten.{_name}.default")
for _name, (_expr, _meaning) in _FLOAT_UNARY.items():
    add(Elementwise(_expr, _meaning, compute="f32"), f"aten.{_name}.default")

add(Elementwise("a + p * b", lambda a, b, p: a + p * b, 2, (1,)), "aten.add.Tensor", "aten.add.Scalar")
add(Elementwise("a - p * b", lambda a, b, p: a - p * b, 2, (1,)), "aten.sub.Tensor", "aten.sub.Scalar")
add(Elementwise("p * -a + b", lambda a, b, p: b - p * a, 2, (1,)), "aten.rsub.Scalar")
add(Elementwise("a * b", np.multiply, 2), "aten.mul.Tensor", "aten.mul.Scalar")
add(Elementwise("a / b", np.true_divide, 2, compute="f32"), "aten.div.Tensor", "aten.div.Scalar")
_FLOOR_DIVIDE = both("floor_div(a, b)", "floor_div_int(a, b)")
_DIVISIONS: dict[str, tuple[dict[str, str], Callable[..., np.ndarray]]] = {
    "floor": (_FLOOR_DIVIDE, np.floor_divide),
    "trunc": (both("trunc(a / b)", "a / b"), _trunc_divide),
    "": ({"f32": "a / b"}, np.true_divide),
}
add(
    Elementwise(lambda mode: _DIVISIONS[mode][0], lambda a, b, mode: _DIVISIONS[mode][1](a, b), 2, ("",)),
    "aten.div.Tensor_mode",
    "aten.div.Scalar_mode",
)
add(Elementwise(_FLOOR_DIVIDE, np.floor_divide, 2), "aten.floor_divide.default")
add(Elementwise(both("keep_nan(a, keep_nan(b, min(a, b)))", "min(a, b)"), np.minimum, 2), "aten.minimum.default")
add(Elementwise(both("keep_nan(a, keep_nan(b, max(a, b)))", "max(a, b)"), np.maximum, 2), "aten.maximum.default")
add(
    Elementwise(both("power(a, b)", "power_int(a, b)"), _power, 2),
    "aten.pow.Tensor_Scalar",
    "aten.pow.Tensor_Tensor",
    "aten.pow.Scalar",
)
add(Elementwise(_CLAMP, _clamp, 1, (-INFINITY, INFINITY)), "aten.clamp.default")
add(Elementwise(_CLAMP, _clamp, 1, (-1, 1)), "aten.hardtanh.default")
add(
    Elementwise("select(p * a, a, a >= vec4<f32>(0.0))", lambda x, p: np.where(x >= 0, x, p * x), 1, (0.01,), "f32"),
    "aten.leaky_relu.default",
)
add(
    Elementwise("select(a, vec4<f32>(), abs(a) <= p)", lambda x, p: np.where(np.abs(x) <= p, 0, x), 1, (0.5,), "f32"),
    "aten.hardshrink.default",
)
add(
    Elementwise(
        lambda kind: "gelu_tanh(a)" if kind == "tanh" else "gelu(a)",
        lambda x, kind: _gelu_tanh(x) if kind == "tanh" else 0.5 * x * (1 + _erf(x / math.sqrt(2))),
        1,
        ("none",),
        "f32",
    ),
    "aten.gelu.default",
)
# Gated activations of an MLP, in one pass: activation(a) * b.
add(Elementwise("a / (1.0 + exp(-a)) * b", lambda a, b: a * _sigmoid(a) * b, 2, (), "f32"), "hightide.silu_mul.default")
add(Elementwise("gelu_tanh(a) * b", lambda a, b: _gelu_tanh(a) * b, 2, (), "f32"), "hightide.gelu_mul.default")

_COMPARISONS: dict[str, tuple[str, Callable[..., np.ndarray]]] = {
    "eq": ("a == b", np.equal),
    "ne": ("a != b", np.not_equal),
    "lt": ("a < b", np.less),
    "le": ("a <= b", np.less_equal),
    "gt": ("a > b", np.greater),
    "ge": ("a >= b", np.greater_equal),
}
for _name, (_expr, _meaning) in _COMPARISONS.items():
    add(Elementwise(_expr, _meaning, 2), f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")
add(Elementwise("!a", np.logical_not, compute="bool"), "aten.logical_not.default")
add(Elementwise("a & b", np.logical_and, 2, compute="bool"), "aten.logical_and.default")
add(Elementwise("a | b", np.logical_or, 2, compute="bool"), "aten.logical_or.default")
add(Elementwise("a != b", np.logical_xor, 2, compute="bool"), "aten.logical_xor.default")
add(Elementwise(bits("~a", "!a"), np.bitwise_not, compute="any"), "aten.bitwise_not.default")
_BITWISE: dict[str, tuple[dict[str, str], Callable[..., np.ndarray]]] = {
    "and": (bits("a & b", "a & b"), np.bitwise_and),
    "or": (bits("a | b", "a | b"), np.bitwise_or),
    "xor": (bits("a ^ b", "a != b"), np.bitwise_xor),
}
for _name, (_bits, _meaning) in _BITWISE.items():
    add(Elementwise(_bits, _meaning, 2, compute="any"), f"aten.bitwise_{_name}.Tensor", f"aten.bitwise_{_name}.Scalar")
add(Elementwise("select(c, b, a)", np.where, 3, compute="any", condition=True), "aten.where.self")

# The result takes the output's type; the remaining arguments say nothing that the output does not.
add(
    Elementwise("a", lambda x, *_: x, 1, (None,) * 6, compute="out"),
    "aten._to_copy.default",
    "dim_order_ops._to_dim_order_copy.default",
)


class Copy(Elementwise):
    """The second tensor, at the dims and in the type of the first."""

    def outputs(self, ctx: Context, x: Tensor, source: Tensor, *_: Any) -> list[Dims]:
        if broadcast(x.dims, source.dims) != x.dims:
            raise InputError(f"{list(source.dims)} does not broadcast to {list(x.dims)}")
        return [x.dims]


add(
    Copy("b", lambda x, source, *_: np.broadcast_to(source, x.shape).astype(x.dtype), 2, (None,), compute="out"),
    "aten.copy.default",
)

__all__ = ["Elementwise", "broadcast"]
