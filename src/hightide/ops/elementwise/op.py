"""Elementwise ops: one kernel template, one line per op.

An op is an expression over the operands `a`, `b`, `c` and the scalars `p`, `q` (all `vec4` of the
compute type), and a NumPy function with the same meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import GPU_TYPE, Context, Dispatch, Kernel, LiveInt, Op, Tensor, add, ceil_div, kernel
from hightide.ops.movement.op import broadcast_strides

Scalar = int | float | bool | str | None
STORAGE = {**GPU_TYPE, "bool": "bool"}  # what an element is in memory


@dataclass(frozen=True)
class Elementwise(Op):
    """`expr` over `operands` leading tensors (or numbers) and the `scalars` that follow them.

    `scalars` gives a default for each further argument; None means the argument is ignored.
    `compute` fixes the type of the arithmetic; by default it is float if any operand is.
    """

    expr: str | Callable[..., str]
    meaning: Callable[..., np.ndarray]
    operands: int = 1
    scalars: tuple[Scalar, ...] = ()
    compute: str = ""
    converts: bool = False  # the result is the operand in the output's type

    def outputs(self, ctx: Context, *args: Any) -> list[Dims]:
        return [broadcast(*(x.dims for x in args[: self.operands] if isinstance(x, Tensor)))]

    def plan(self, ctx: Context, *args: Any, out: Tensor) -> Iterable[Dispatch]:
        operands, scalars = args[: self.operands], self._scalars(args)
        compute = self.compute or _compute_type([*operands, out])
        reads: list[Tensor] = []
        forms: list[Form] = []
        numbers = [0.0, 0.0, 0.0]
        strides: list[Dims] = [(0,), (0,), (0,)]
        for n, x in enumerate(operands):
            if isinstance(x, Tensor):
                if x not in reads:  # a tensor given twice is bound once
                    reads.append(x)
                flat = x.dims == out.dims
                if not flat:
                    strides[n] = _pad8(broadcast_strides(x.dims, out.dims), 0)
                forms.append((STORAGE.get(x.dtype, x.dtype), flat, reads.index(x)))
            else:
                numbers[n] = ctx.pin(x.expr) if isinstance(x, LiveInt) else x
                forms.append(None)
        expr = self.expr(*scalars) if callable(self.expr) else self.expr
        stored = STORAGE.get(out.dtype, out.dtype)
        if self.converts and stored == "bool" and forms[0] is not None and forms[0][0] != "bool":
            expr = f"a != vec4<{compute}>(0)"
        words = [*numbers, *(s for s in scalars if isinstance(s, int | float)), 0, 0][:5]
        to_word = float if compute == "f32" else _to_int32
        yield Dispatch(
            _route(expr, compute, tuple(forms), stored),
            groups=ceil_div(out.numel, 256),
            params=(out.numel, *(to_word(w) for w in words), _pad8(out.dims, 1), *strides),
            reads=tuple(reads),
            writes=(out,),
        )

    def reference(self, *args: Any) -> np.ndarray:
        return self.meaning(*args[: self.operands], *self._scalars(args))

    def _scalars(self, args: tuple[Any, ...]) -> list[Scalar]:
        given = args[self.operands :]
        values = [given[n] if n < len(given) else default for n, default in enumerate(self.scalars)]
        return [v if v is not None else d for v, d in zip(values, self.scalars, strict=True)]


Form = tuple[str, bool, int] | None  # an operand: (stored type, flat, binding); None for a number
PACK_BOOL = "out[i] = dot(vec4<u32>(result), vec4<u32>(1u, 256u, 65536u, 16777216u));"


@cache
def _route(expr: str, compute: str, forms: tuple[Form, ...], stored: str) -> Kernel:
    """The kernel for operands of these forms and a result stored as `stored`."""
    if bad := ({form[0] for form in forms if form} | {stored}) - {"f32", "i32", "bool"}:
        raise UnsupportedError(f"elementwise ops have no form for {', '.join(sorted(bad))}")
    declarations: dict[int, str] = {}
    loads = []
    for n, form in enumerate(forms):
        name = "abc"[n]
        if form is None:
            loads.append(f"    let {name} = vec4<{compute}>(params.n{n});")
            continue
        kind, flat, binding = form
        array, value = _load(f"in{binding}", n, kind, flat, compute)
        loads.append(f"    let {name} = {value};")
        declarations[binding] = f"@group(0) @binding({2 + binding}) var<storage, read> in{binding}: array<{array}>;"
    out = "u32" if stored == "bool" else f"vec4<{stored}>"
    declarations[-1] = f"@group(0) @binding({2 + len(declarations)}) var<storage, read_write> out: array<{out}>;"
    return kernel(
        "elementwise/elementwise.wgsl",
        "elementwise" if all(form is None or form[1] for form in forms) else "elementwise_broadcast",
        EXPR=expr,
        C=compute,
        OPERANDS="\n".join(declarations.values()),
        LOADS="\n".join(loads),
        STORE=PACK_BOOL if stored == "bool" else f"out[i] = vec4<{stored}>(result);",
    )


def _load(array: str, n: int, kind: str, flat: bool, compute: str) -> tuple[str, str]:
    """How operand `n` is declared, and the expression that loads four of its elements (bools as vec4<bool>)."""
    place = [f"at(i * 4u + {k}u, params.strides{n})" for k in range(4)]
    if kind == "bool":
        bytes_of = f"bytes_of({array}[i])"
        if not flat:
            bytes_of = "vec4<u32>(" + ", ".join(f"bytes_of({array}[{p} / 4u])[{p} % 4u]" for p in place) + ")"
        return "u32", f"{bytes_of} != vec4<u32>(0u)"
    if flat:
        return f"vec4<{kind}>", f"vec4<{compute}>({array}[i])"
    elements = ", ".join(f"{array}[{p}]" for p in place)
    return kind, f"vec4<{compute}>(vec4<{kind}>({elements}))"


def _compute_type(values: list[Any]) -> str:
    floats = any(isinstance(x, float) or (isinstance(x, Tensor) and STORAGE.get(x.dtype) == "f32") for x in values)
    return "f32" if floats else "i32"


def _to_int32(value: float) -> int:
    return int(min(max(value, -(2**31)), 2**31 - 1))


def _pad8(dims: Dims, fill: int) -> Dims:
    if len(dims) > 8:
        raise UnsupportedError(f"a tensor of rank {len(dims)} is over the 8 dims that kernels take")
    return (fill,) * (8 - len(dims)) + dims


def broadcast(*dims: Dims) -> Dims:
    """The dims that tensors of these dims have together, as torch and NumPy say."""
    if all(d == dims[0] for d in dims):
        return dims[0] if dims else ()
    rank = max(len(d) for d in dims)
    result = []
    for column in zip(*((1,) * (rank - len(d)) + d for d in dims), strict=True):
        sizes = {size for size in column if size != 1}
        if len(sizes) > 1:
            raise InputError(f"{' and '.join(str(list(d)) for d in dims)} do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _trunc_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.trunc(np.true_divide(a, b))


_DIVISIONS: dict[str, Callable[..., np.ndarray]] = {"floor": np.floor_divide, "trunc": _trunc_divide}
_UNARY: dict[str, tuple[str, Callable[..., np.ndarray]]] = {
    "aten.abs.default": ("abs(a)", np.abs),
    "aten.neg.default": ("-a", np.negative),
    "aten.exp.default": ("exp(a)", np.exp),
    "aten.log.default": ("log(a)", np.log),
    "aten.sqrt.default": ("sqrt(a)", np.sqrt),
    "aten.rsqrt.default": ("inverseSqrt(a)", lambda x: 1 / np.sqrt(x)),
    "aten.sin.default": ("sin(a)", np.sin),
    "aten.cos.default": ("cos(a)", np.cos),
    "aten.tanh.default": ("tanh(clamp(a, vec4<f32>(-15.0), vec4<f32>(15.0)))", np.tanh),  # exp overflows beyond
    "aten.sigmoid.default": ("1.0 / (1.0 + exp(-a))", _sigmoid),
    "aten.silu.default": ("a / (1.0 + exp(-a))", lambda x: x * _sigmoid(x)),
    "aten.relu.default": ("max(a, p)", lambda x: np.maximum(x, 0)),
    "aten.round.default": ("round(a)", np.round),
    "aten.floor.default": ("floor(a)", np.floor),
    "aten.ceil.default": ("ceil(a)", np.ceil),
    "aten.square.default": ("a * a", np.square),
    "aten.reciprocal.default": ("1.0 / a", np.reciprocal),
}
_FLOAT_UNARY = {"exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "silu", "reciprocal"}
for _name, (_expr, _meaning) in _UNARY.items():
    add(Elementwise(_expr, _meaning, compute="f32" if _name.split(".")[1] in _FLOAT_UNARY else ""), _name)

add(Elementwise("a + p * b", lambda a, b, p: a + p * b, 2, (1,)), "aten.add.Tensor", "aten.add.Scalar")
add(Elementwise("a - p * b", lambda a, b, p: a - p * b, 2, (1,)), "aten.sub.Tensor", "aten.sub.Scalar")
add(Elementwise("p * -a + b", lambda a, b, p: b - p * a, 2, (1,)), "aten.rsub.Scalar")
add(Elementwise("a * b", np.multiply, 2), "aten.mul.Tensor", "aten.mul.Scalar")
add(Elementwise("a / b", np.true_divide, 2, compute="f32"), "aten.div.Tensor", "aten.div.Scalar")
add(
    Elementwise(
        lambda mode: {"floor": "floor(a / b)", "trunc": "trunc(a / b)"}.get(mode, "a / b"),
        lambda a, b, mode: _DIVISIONS.get(mode, np.true_divide)(a, b),
        2,
        ("",),
        compute="f32",
    ),
    "aten.div.Tensor_mode",
    "aten.div.Scalar_mode",
)
add(Elementwise("min(a, b)", np.minimum, 2), "aten.minimum.default")
add(Elementwise("max(a, b)", np.maximum, 2), "aten.maximum.default")
add(Elementwise("power(a, b)", np.power, 2, compute="f32"), "aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor")
add(
    Elementwise("clamp(a, p, q)", lambda x, low, high: np.clip(x, low, high), 1, (-3.4e38, 3.4e38)),
    "aten.clamp.default",
    "aten.hardtanh.default",
)
add(
    Elementwise("select(p * a, a, a >= vec4<f32>(0.0))", lambda x, p: np.where(x >= 0, x, p * x), 1, (0.01,), "f32"),
    "aten.leaky_relu.default",
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
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_NUMPY_COMPARISONS = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal} | {
    "gt": np.greater,
    "ge": np.greater_equal,
}
for _name, _sign in _COMPARISONS.items():
    add(Elementwise(f"a {_sign} b", _NUMPY_COMPARISONS[_name], 2), f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")
add(Elementwise("!a", np.logical_not), "aten.logical_not.default")
add(Elementwise("a & b", np.logical_and, 2), "aten.logical_and.default")
add(Elementwise("a | b", np.logical_or, 2), "aten.logical_or.default")
add(Elementwise("select(c, b, a)", np.where, 3), "aten.where.self")

# The result takes the output's type; the remaining arguments say nothing that the output does not.
add(
    Elementwise(lambda *_: "a", lambda x, *_: x, 1, (None,) * 6, converts=True),
    "aten._to_copy.default",
    "dim_order_ops._to_dim_order_copy.default",
)
