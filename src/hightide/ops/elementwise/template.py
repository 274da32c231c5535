"""The mechanism of elementwise ops: an expression per op, filled into one kernel for the operands' forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.legacy import GPU_TYPE, Context, Dispatch, Kernel, LiveInt, Op, Tensor, ceil_div, kernel
from hightide.ops.movement.movement import broadcast_strides

Scalar = int | float | bool | str | None
STORAGE = {**GPU_TYPE, "bool": "bool", "int8": "i8"}  # what an element is in memory
BYTES = ("bool", "u8", "i8")  # packed four to a word


@dataclass(frozen=True, eq=False)  # an op is itself: expressions by type cannot be hashed
class Elementwise(Op):
    """`expr` over `operands` leading tensors (or numbers) and the `scalars` that follow them.

    `scalars` gives a default for each further argument; None means the argument is ignored.
    `compute` is the type of the arithmetic: "" is f32 if any operand or the result is float, else i32;
    "any" is that, or bool if all are; "out" is what the result is. An `expr` may differ by that type.
    """

    expr: str | Mapping[str, str] | Callable[..., str | Mapping[str, str]]
    meaning: Callable[..., np.ndarray]
    operands: int = 1
    scalars: tuple[Scalar, ...] = ()
    compute: str = ""
    condition: bool = False  # the first operand is a bool, whatever the others are

    def outputs(self, ctx: Context, *args: Any) -> list[Dims]:
        return [broadcast(*(x.dims for x in args[: self.operands] if isinstance(x, Tensor)))]

    def plan(self, ctx: Context, *args: Any, out: Tensor) -> Iterable[Dispatch]:
        operands, scalars = args[: self.operands], self._scalars(args)
        compute = self._compute(operands, out)
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
        types = ("bool" if self.condition else compute, compute, compute)[: self.operands]
        words = [*numbers, *(s for s in scalars if isinstance(s, int | float)), 0, 0][:5]
        to_word = float if compute == "f32" else _to_int32
        yield Dispatch(
            _route(self._expr(scalars, compute), compute, types, tuple(forms), STORAGE.get(out.dtype, out.dtype)),
            groups=ceil_div(out.numel, 256),
            params=(out.numel, *(to_word(w) for w in words), _pad8(out.dims, 1), *strides),
            reads=tuple(reads),
            writes=(out,),
        )

    def reference(self, *args: Any) -> np.ndarray:
        operands = [_widened(x, self.compute == "f32") for x in args[: self.operands]]
        return self.meaning(*operands, *self._scalars(args))

    def _scalars(self, args: tuple[Any, ...]) -> list[Scalar]:
        given = args[self.operands :]
        values = [given[n] if n < len(given) else default for n, default in enumerate(self.scalars)]
        return [v if v is not None else d for v, d in zip(values, self.scalars, strict=True)]

    def _compute(self, operands: tuple[Any, ...], out: Tensor) -> str:
        kinds = {_kind(x) for x in (*operands[self.condition :], out)}
        if self.compute == "out" and _kind(out) == "bool":
            return "bool"
        if self.compute not in ("", "any", "out"):
            return self.compute
        if "f32" in kinds:
            return "f32"
        return "bool" if self.compute == "any" and kinds == {"bool"} else "i32"

    def _expr(self, scalars: list[Scalar], compute: str) -> str:
        expr = self.expr(*scalars) if callable(self.expr) else self.expr
        if isinstance(expr, str):
            return expr
        if compute not in expr:
            raise UnsupportedError(f"it has no form in {compute}, only in {', '.join(expr)}")
        return expr[compute]


Form = tuple[str, bool, int] | None  # an operand: (stored type, flat, binding); None for a number
PACK = "out[i] = dot({bytes}, vec4<u32>(1u, 256u, 65536u, 16777216u));"
PACK_BYTES = PACK.format(bytes="vec4<u32>(vec4<i32>(result)) & vec4<u32>(255u)")
STORE = {"bool": PACK.format(bytes="vec4<u32>(vec4<bool>(result))"), "u8": PACK_BYTES, "i8": PACK_BYTES}


@cache
def _route(expr: str, compute: str, types: tuple[str, ...], forms: tuple[Form, ...], stored: str) -> Kernel:
    """The kernel for operands of these forms, computed as `types`, and a result stored as `stored`."""
    if bad := ({form[0] for form in forms if form} | {stored}) - {"f32", "i32", *BYTES}:
        raise UnsupportedError(f"elementwise ops have no form for {', '.join(sorted(bad))}")
    declarations: dict[int, str] = {}
    loads = []
    for n, form in enumerate(forms):
        name = "abc"[n]
        if form is None:
            loads.append(f"    let {name} = vec4<{types[n]}>(vec4<N>(params.n{n}));")
            continue
        kind, flat, binding = form
        if not flat:
            loads.append(f"    let {name}_at = places(i, params.strides{n});")
        array, value = _load(f"in{binding}", f"{name}_at", kind, flat)
        loads.append(f"    let {name} = vec4<{types[n]}>({value});")
        declarations[binding] = f"@group(0) @binding({2 + binding}) var<storage, read> in{binding}: array<{array}>;"
    out = "u32" if stored in BYTES else f"vec4<{stored}>"
    declarations[-1] = f"@group(0) @binding({2 + len(declarations)}) var<storage, read_write> out: array<{out}>;"
    return kernel(
        "elementwise/elementwise.wgsl",
        "elementwise" if all(form is None or form[1] for form in forms) else "elementwise_broadcast",
        EXPR=expr,
        C=compute,
        NUMBER="i32" if compute == "bool" else compute,
        OPERANDS="\n".join(declarations.values()),
        LOADS="\n".join(loads),
        STORE=STORE.get(stored, f"out[i] = vec4<{stored}>(result);"),
    )


def _load(array: str, at: str, kind: str, flat: bool) -> tuple[str, str]:
    """How an operand is declared, and the expression that loads four of its elements."""
    if kind in BYTES:
        word = "bytes_of" if kind != "i8" else "signed_bytes_of"
        places = ", ".join(f"{word}({array}[{at}.{c} / 4u])[{at}.{c} % 4u]" for c in "xyzw")
        return "u32", f"{word}({array}[i])" if flat else f"vec4({places})"
    if flat:
        return f"vec4<{kind}>", f"{array}[i]"
    return kind, f"vec4<{kind}>({', '.join(f'{array}[{at}.{c}]' for c in 'xyzw')})"


def _widened(x: Any, to_float: bool) -> Any:
    """An operand that NumPy computes on as the kernels do: not in halves or bytes, whatever it is held in."""
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "biu":
        return x
    if to_float:
        return x.astype(float)
    return x.astype(np.int64) if x.dtype.kind != "b" and x.itemsize == 1 else x


def _kind(value: Any) -> str:
    """What arithmetic a value asks for by itself."""
    if isinstance(value, Tensor):
        kind = STORAGE.get(value.dtype, value.dtype)
        return "i32" if kind in ("u8", "i8") else kind
    return {float: "f32", bool: "bool"}.get(type(value), "i32")


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
