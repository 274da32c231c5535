"""The mechanism of elementwise ops: an expression per op, put into one kernel for what its inputs are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.arguments import arguments_of
from hightide.ops.contract import Context, Op, ceil_div, op
from hightide.ops.elementwise.expressions import Expressions
from hightide.ops.kernel import Dispatch, Int, Kernel, LiveInt, Tensor, kernel
from hightide.ops.movement.strided import broadcast_strides
from hightide.ops.storage import GPU_TYPE

Number = float | Int
Operand = Tensor | Number
Input = tuple[str, str, str]  # an input of the kernel: its name, its kind, how it is spread over the output
HELD = {**GPU_TYPE, "bool": "bool", "int8": "i8"}  # what an element is in memory
KINDS = ("number", "a", "f32", "i32", "bool", "u8", "i8")  # what an input may be, as elementwise.wgsl says


class Elementwise(Op):
    """An expression of the arguments, by name, for every element of the tensors among them, which are broadcast.

    One that is called `condition` is a bool whatever the others are.
    """

    expressions: ClassVar[Expressions]

    def expression(self) -> Expressions:
        """The expressions of this call."""
        return self.expressions

    def outputs(self, ctx: Context) -> list[Dims]:
        return [broadcast(*[x.dims for x in self._tensors()])]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        compute = self._computed_in(out)
        expression = self.expression()[compute]
        to_number = NUMBERS[compute]
        cls: Any = type(self)
        given: dict[str, Any] = {}
        inputs: list[Input] = []
        for name in _names(cls, expression):
            x = getattr(self, name)
            if not isinstance(x, Tensor):
                given[name] = to_number(ctx.pin(x) if isinstance(x, LiveInt) else x)
                inputs.append((name, "number", "flat"))
            elif name == "b" and x is given.get("a"):  # a tensor that is given twice is bound once
                inputs.append((name, "a", "flat"))
            else:
                spread = _spread(x, out.dims)
                given[name] = x
                if spread != "flat":
                    given[f"{name}_strides"] = _leading(broadcast_strides(x.dims, out.dims), 0)
                    given["dims"] = _leading(out.dims, 1)
                inputs.append((name, _held(x), spread))
        route = _route(expression, compute, tuple(inputs), _held(out))
        return [route.over(ceil_div(out.numel, 256), numel=out.numel, out=out, **given)]

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> Any:
        bound: Any = cls.bound(dict(arguments))
        to_float = [*bound.expression()] == ["f32"]
        return super().evaluate({name: _widened(value, to_float) for name, value in arguments.items()})

    def _computed_in(self, out: Tensor) -> str:
        """The type of the arithmetic."""
        types = self.expression()
        if len(types) == 1 and "i32" not in types:
            return next(iter(types))
        if "bool" in types and out.dtype == "bool":
            return "bool"
        operands = (out, *self._tensors(), getattr(self, "a", None), getattr(self, "b", None))
        compute = "f32" if any(is_float(x) for x in operands) else "i32"
        if compute not in types:
            raise UnsupportedError(f"it has no form in {compute}, only in {', '.join(types)}")
        return compute

    def _tensors(self) -> Iterator[Tensor]:
        given = (getattr(self, argument.name) for argument in arguments_of(type(self)))
        return (x for x in given if isinstance(x, Tensor))


class Unary(Elementwise):
    a: Tensor


class Binary(Elementwise):
    a: Operand
    b: Operand


def elementwise(*names: str) -> Callable[[type[Op]], type[Op]]:
    """Register a class of this family."""
    return op(*names, family="elementwise")


def unary(name: str, expressions: Expressions, meaning: Callable[..., Any], **scalars: float) -> None:
    """Register an op of one tensor, `aten.<name>.default`, and of further numbers with their defaults."""
    _declare(Unary, [f"aten.{name}.default"], expressions, meaning if scalars else lambda a: meaning(a), scalars)


def binary(name: str, expressions: Expressions, meaning: Callable[..., Any], **scalars: float) -> None:
    """The same of two operands: `aten.<name>.Tensor` and `.Scalar`, or whole names."""
    names = name.split() if "." in name else [f"aten.{name}.Tensor", f"aten.{name}.Scalar"]
    _declare(Binary, names, expressions, meaning if scalars else lambda a, b: meaning(a, b), scalars)


def _declare(
    base: type[Op], names: list[str], expressions: Expressions, reference: Callable[..., Any], scalars: dict[str, float]
) -> None:
    members = {
        "__doc__": f"{next(iter(expressions.values()))}, element by element.",
        "__annotations__": dict.fromkeys(scalars, Number),
        "expressions": expressions,
        "reference": staticmethod(reference),
        **scalars,
    }
    elementwise(*names)(type(names[0].split(".")[1], (base,), members))


@cache
def _names(cls: type, expression: str) -> tuple[str, ...]:
    """The arguments that an expression is over."""
    words = re.findall(r"\w+", expression)
    return tuple(argument.name for argument in arguments_of(cls) if argument.name in words)


@cache
def _route(expression: str, compute: str, inputs: tuple[Input, ...], out: str) -> Kernel:
    """The kernel for these inputs, and a result that is held as `out`."""
    if bad := {out, *(kind for _, kind, _ in inputs)}.difference(KINDS):
        raise UnsupportedError(f"elementwise ops have no form for {', '.join(sorted(bad))}")
    constants: dict[str, str] = {}
    for n, (name, kind, spread) in enumerate(inputs):
        constants |= {f"NAME{n}": name, f"KIND{n}": kind, f"SPREAD{n}": spread}
    broadcast = not all(spread == "flat" for _, _, spread in inputs)
    return kernel(
        "elementwise/elementwise.wgsl",
        "elementwise_broadcast" if broadcast else "elementwise",
        EXPR=expression,
        C=compute,
        INPUTS=len(inputs),
        BROADCAST=broadcast,
        OUT=out,
        **constants,
    )


def _spread(x: Tensor, out: Dims) -> str:
    """How a tensor is broadcast, as elementwise.wgsl says. Four elements are of one row if rows are fours."""
    if x.dims == out:
        return "flat"
    if out[-1] % 4 or _held(x) not in ("f32", "i32"):
        return "each"
    return "fours" if x.dims[-1:] == out[-1:] else "once"


def _held(x: Tensor) -> str:
    return HELD.get(x.dtype, x.dtype)


def is_float(x: Any) -> bool:
    return HELD.get(x.dtype) == "f32" if isinstance(x, Tensor) else isinstance(x, float)


def _widened(x: Any, to_float: bool) -> Any:
    """An operand that NumPy computes on as the kernels do: not in halves or bytes, whatever it is held in."""
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "biu":
        return x
    if to_float:
        return x.astype(float)
    return x.astype(np.int64) if x.dtype.kind != "b" and x.itemsize == 1 else x


def _to_int32(value: float) -> int:
    if value != value:
        raise UnsupportedError("NaN is no integer")
    return int(min(max(value, -(2**31)), 2**31 - 1))


NUMBERS: dict[str, Callable[[Any], float]] = {"f32": float, "i32": _to_int32, "bool": bool}  # as parameters


def _leading(dims: Dims, fill: int) -> Dims:
    """Eight dims, those before the given ones all `fill`."""
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
