"""Elementwise ops, one declaration per op.

An op is an expression over its arguments by name (all `V`, a `vec4` of the type that is computed in), and a NumPy
function with the same meaning. An expression may call what WGSL has and what `functions.wgsl` and `precise.wgsl` add.
`template.py` makes kernels of them. One line declares most ops, with the defaults of further numbers:

    unary("exp", floats("exp(a)"), np.exp)
    binary("add", numbers("a + alpha * b"), lambda a, b, alpha: a + alpha * b, alpha=1)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.arguments import ignores
from hightide.ops.contract import Context, Dispatch, Op, Tensor, ceil_div, existing_dim, kernel
from hightide.ops.elementwise.expressions import Expressions, anything, bits, bools, floats, ints, numbers
from hightide.ops.elementwise.template import (
    Binary,
    Elementwise,
    Operand,
    Unary,
    binary,
    broadcast,
    elementwise,
    is_float,
    unary,
)

Array = np.ndarray


def _sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _clamp(a: Array, low: float, high: float) -> Array:
    return np.minimum(np.maximum(a, low), high)


def _power(a: Array, b: Array) -> Array:
    """NumPy refuses whole numbers to negative powers; torch cuts the result to a whole number."""
    if np.result_type(a, b).kind not in "iu":
        return np.power(a, b)
    positive = np.power(a, np.maximum(b, 0))
    inverse = np.where(a == 1, 1, np.where(np.equal(a, -1), 1 - 2 * (b % 2), 0))
    return np.where(np.less(b, 0), inverse, positive)


unary("abs", numbers("abs(a)"), np.abs)
unary("neg", numbers("-a"), np.negative)
unary("relu", numbers("keep_nan(a, max(a, V()))"), lambda x: np.maximum(x, 0))
unary("round", numbers("round(a)", ints="a"), np.round)  # halves to even
unary("floor", numbers("floor(a)", ints="a"), np.floor)
unary("ceil", numbers("ceil(a)", ints="a"), np.ceil)
unary("trunc", numbers("trunc(a)", ints="a"), np.trunc)
unary("sign", numbers("sign(a)"), lambda x: np.greater(x, 0).astype(np.int8) - np.less(x, 0))  # of NaN: 0
unary("square", numbers("a * a"), np.square)
unary("exp", floats("exp(a)"), np.exp)
unary("exp2", floats("keep_nan(a, exp2(a))"), np.exp2)
unary("expm1", floats("precise_expm1(a)"), np.expm1)
unary("log", floats("precise_log(a)"), np.log)
unary("log1p", floats("precise_log1p(a)"), np.log1p)
unary("log2", floats("precise_log(a) * 1.4426950409"), np.log2)
unary("log10", floats("precise_log(a) * 0.4342944819"), np.log10)
unary("sqrt", floats("sqrt(a)"), np.sqrt)
unary("rsqrt", floats("inverseSqrt(a)"), lambda x: 1 / np.sqrt(x))
unary("reciprocal", floats("1.0 / a"), lambda x: 1 / x)
unary("sin", floats("sine(a, 0)"), np.sin)
unary("cos", floats("sine(a, 1)"), np.cos)
unary("tan", floats("sine(a, 0) / sine(a, 1)"), np.tan)
unary("asin", floats("precise_asin(a)"), np.arcsin)
unary("acos", floats("precise_acos(a)"), np.arccos)
unary("atan", floats("precise_atan2(a, V(1.0))"), np.arctan)
unary("sinh", floats("precise_sinh(a)"), np.sinh)
unary("cosh", floats("precise_cosh(a)"), np.cosh)
unary("asinh", floats("precise_asinh(a)"), np.arcsinh)
unary("acosh", floats("precise_acosh(a)"), np.arccosh)
unary("atanh", floats("precise_atanh(a)"), np.arctanh)
unary("erf", floats("precise_erf(a)"), _erf)
unary("tanh", floats("precise_tanh(a)"), np.tanh)
unary("sigmoid", floats("1.0 / (1.0 + exp(-a))"), _sigmoid)
unary("silu", floats("a / (1.0 + exp(-a))"), lambda x: x * _sigmoid(x))
unary("hardswish", floats("a * clamp(a + 3.0, V(), V(6.0)) / 6.0"), lambda x: x * _clamp(x + 3, 0, 6) / 6)
unary("hardsigmoid", floats("clamp(a + 3.0, V(), V(6.0)) / 6.0"), lambda x: _clamp(x + 3, 0, 6) / 6)
CLAMP = numbers("keep_nan(a, min(max(a, low), high))")
unary("clamp", CLAMP, _clamp, low=-math.inf, high=math.inf)
unary("hardtanh", CLAMP, _clamp, low=-1, high=1)
unary(
    "leaky_relu", floats("select(slope * a, a, a >= V())"), lambda a, slope: np.where(a >= 0, a, slope * a), slope=0.01
)
unary(
    "elu",
    floats("keep_nan(a, scale * select(alpha * precise_expm1(min(a, V()) * input_scale), a, a > V()))"),
    lambda a, alpha, scale, input_scale: scale * np.where(a > 0, a, alpha * np.expm1(np.minimum(a, 0) * input_scale)),
    alpha=1,
    scale=1,
    input_scale=1,
)
unary(
    "hardshrink", floats("select(a, V(), abs(a) <= lambd)"), lambda a, lambd: np.where(abs(a) <= lambd, 0, a), lambd=0.5
)
unary("isnan", floats("is_nan(a)"), np.isnan)
unary("isinf", floats("is_infinite(a)"), np.isinf)
unary("logical_not", bools("!a"), np.logical_not)
unary("bitwise_not", bits("~a", bools="!a"), np.bitwise_not)

binary("add", numbers("a + alpha * b"), lambda a, b, alpha: a + alpha * b, alpha=1)
binary("sub", numbers("a - alpha * b"), lambda a, b, alpha: a - alpha * b, alpha=1)
binary("aten.rsub.Scalar", numbers("alpha * -a + b"), lambda a, b, alpha: b - alpha * a, alpha=1)
binary("mul", numbers("a * b"), np.multiply)
binary("aten.pow.Tensor_Scalar aten.pow.Tensor_Tensor aten.pow.Scalar", numbers("power(a, b)"), _power)
binary("div", floats("a / b"), np.true_divide)
binary("aten.floor_divide.default", numbers("floor_div(a, b)"), np.floor_divide)
binary("remainder", numbers("remainder(a, b)"), np.remainder)  # the sign of the divisor, as in Python
binary("fmod", numbers("fmod(a, b)"), np.fmod)  # the sign of the dividend, as in C
binary("aten.atan2.default", floats("precise_atan2(a, b)"), np.arctan2)
binary("aten.hypot.default", floats("hypotenuse(a, b)"), np.hypot)
binary("aten.minimum.default", numbers("keep_nan(a, keep_nan(b, min(a, b)))"), np.minimum)
binary("aten.maximum.default", numbers("keep_nan(a, keep_nan(b, max(a, b)))"), np.maximum)
binary("eq", numbers("a == b"), np.equal)
binary("ne", numbers("a != b"), np.not_equal)
binary("lt", numbers("a < b"), np.less)
binary("le", numbers("a <= b"), np.less_equal)
binary("gt", numbers("a > b"), np.greater)
binary("ge", numbers("a >= b"), np.greater_equal)
binary("aten.logical_and.default", bools("a & b"), np.logical_and)
binary("aten.logical_or.default", bools("a | b"), np.logical_or)
binary("aten.logical_xor.default", bools("a != b"), np.logical_xor)
binary("bitwise_and", bits("a & b"), np.bitwise_and)
binary("bitwise_or", bits("a | b"), np.bitwise_or)
binary("bitwise_xor", bits("a ^ b", bools="a != b"), np.bitwise_xor)
LEFT, RIGHT = "aten.bitwise_left_shift", "aten.bitwise_right_shift"
binary(f"{LEFT}.Tensor {LEFT}.Tensor_Scalar", ints("shift_left(a, b)"), np.left_shift)
binary(f"{RIGHT}.Tensor {RIGHT}.Tensor_Scalar", ints("shift_right(a, b)"), np.right_shift)
# Gated activations of an MLP, in one pass: activation(a) * b.
binary("hightide.silu_mul.default", floats("a / (1.0 + exp(-a)) * b"), lambda a, b: a * _sigmoid(a) * b)
binary("hightide.gelu_mul.default", floats("gelu_tanh(a) * b"), lambda a, b: _gelu_tanh(a) * b)


@elementwise("aten.div.Tensor_mode", "aten.div.Scalar_mode")
class RoundedDiv(Binary):
    """a / b, rounded down ("floor") or towards zero ("trunc")."""

    rounding_mode: str = ""

    def expression(self) -> Expressions:
        match self.rounding_mode:
            case "floor":
                return numbers("floor_div(a, b)")
            case "trunc":
                return numbers("trunc(a / b)", ints="trunc_div(a, b)")
        return floats("a / b")

    @staticmethod
    def reference(a: Array, b: Array, rounding_mode: str) -> Any:
        if rounding_mode == "floor":
            return np.floor_divide(a, b)
        if rounding_mode == "trunc" and np.result_type(a, b).kind in "iu":
            return np.floor_divide(a - np.fmod(a, b), b)
        return np.trunc(np.true_divide(a, b)) if rounding_mode == "trunc" else np.true_divide(a, b)


@elementwise("aten.gelu.default")
class Gelu(Unary):
    """0.5 a (1 + erf(a / sqrt 2)), or its approximation by tanh."""

    approximate: str = "none"

    def expression(self) -> Expressions:
        return floats("gelu_tanh(a)" if self.approximate == "tanh" else "gelu(a)")

    @staticmethod
    def reference(a: Array, approximate: str) -> Array:
        return _gelu_tanh(a) if approximate == "tanh" else 0.5 * a * (1 + _erf(a / math.sqrt(2)))


@elementwise("aten.logit.default")
class Logit(Unary):
    """log(a / (1 - a)); with `eps`, of a no closer than that to 0 and 1."""

    eps: float | None = None

    def expression(self) -> Expressions:
        return floats(
            "precise_logit(keep_nan(a, min(max(a, eps), 1.0 - eps)))" if self._limited(self.eps) else "precise_logit(a)"
        )

    @staticmethod
    def _limited(eps: float | None) -> bool:
        return eps is not None and eps >= 0

    @classmethod
    def reference(cls, a: Array, eps: float | None) -> Array:
        limited = _clamp(a, eps, 1 - eps) if eps is not None and cls._limited(eps) else a
        return np.log(limited / (1 - limited))


@elementwise("aten.round.decimals")
class RoundDecimals(Unary):
    """a rounded to so many decimal places, or to tens where they are negative; halves to even."""

    decimals: int = 0

    def expression(self) -> Expressions:
        if not -30 <= self.decimals <= 30:
            raise UnsupportedError(f"{self.decimals} decimals are more than a float has")
        power = f"1e{abs(self.decimals)}"
        return floats(f"round(a * {power}) / {power}" if self.decimals >= 0 else f"round(a / {power}) * {power}")

    @staticmethod
    def reference(a: Array, decimals: int) -> Array:
        power = 10.0 ** abs(decimals)
        return np.round(a * power) / power if decimals >= 0 else np.round(a / power) * power


@elementwise("aten.glu.default")
class Glu(Op):
    """The first half of x along a dim, by the sigmoid of the other half."""

    x: Tensor
    dim: int = -1

    def outputs(self, ctx: Context) -> list[Dims]:
        dim = existing_dim(self.dim, self.x.dims)
        if self.x.dims[dim] % 2:
            raise InputError(f"dim {dim} of {list(self.x.dims)} has no two halves")
        return [(*self.x.dims[:dim], self.x.dims[dim] // 2, *self.x.dims[dim + 1 :])]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        half = math.prod(out.dims[existing_dim(self.dim, out.dims) :])
        yield GLU.over(ceil_div(out.numel, 64), x=self.x, out=out, numel=out.numel, half=half)

    @staticmethod
    def reference(x: Array, dim: int) -> Array:
        a, b = np.split(x, 2, axis=dim)
        return a * _sigmoid(b)


GLU = kernel("elementwise/glu.wgsl")


@elementwise("aten.clamp.Tensor")
class ClampTensor(Unary):
    """a, no less than low and then no more than high, where they are given."""

    low: Tensor | None = None
    high: Tensor | None = None

    def expression(self) -> Expressions:
        limited, given = "a", ["a"]
        for name, limit, function in (("low", self.low, "max"), ("high", self.high, "min")):
            if limit is not None:
                limited, given = f"{function}({limited}, {name})", [*given, name]
        for name in given:
            limited = f"keep_nan({name}, {limited})"
        return numbers(limited)

    reference = staticmethod(lambda a, low, high: np.clip(a, low, high))


@elementwise("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
class MaskedFill(Elementwise):
    """The value where the condition holds, else a."""

    a: Tensor
    condition: Tensor
    value: Operand
    expressions = anything("select(a, value, condition)")

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        if isinstance(self.value, Tensor) and is_float(self.value) and not is_float(self.a):
            raise UnsupportedError(f"filling {self.a.dtype} with a {self.value.dtype} tensor has no kernel")
        return super().plan(ctx, out)

    reference = staticmethod(lambda a, condition, value: np.where(condition, value, a))


@elementwise("aten.where.self")
class Where(Elementwise):
    """a where the condition holds, else b."""

    condition: Tensor
    a: Operand
    b: Operand
    expressions = anything("select(b, a, condition)")
    reference = staticmethod(lambda condition, a, b: np.where(condition, a, b))


@elementwise("aten._to_copy.default", "dim_order_ops._to_dim_order_copy.default")
@ignores("dtype", "layout", "device", "pin_memory", "non_blocking", "memory_format")
class ToCopy(Unary):
    """a in the type of the output."""

    expressions = anything("a")
    reference = staticmethod(lambda a: a)


@elementwise("aten.copy.default", "aten.fill.Tensor")
@ignores("non_blocking")
class Copy(Elementwise):
    """b, at the dims and in the type of a."""

    a: Tensor
    b: Tensor
    expressions = anything("b")

    def outputs(self, ctx: Context) -> list[Dims]:
        if broadcast(self.a.dims, self.b.dims) != self.a.dims:
            raise InputError(f"{list(self.b.dims)} does not broadcast to {list(self.a.dims)}")
        return [self.a.dims]

    reference = staticmethod(lambda a, b: np.broadcast_to(b, a.shape).astype(a.dtype))


__all__ = ["broadcast"]
