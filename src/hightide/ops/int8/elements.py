"""One kernel for what happens to codes one by one: an expression over operands at any strides of a box."""

from __future__ import annotations

import math

from hightide.errors import UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.legacy import Dispatch, Tensor, ceil_div, kernel

# How an element of each type is read from `array` at `at`: bytes are packed four to a word.
LOADS = {
    "int8": "extractBits(bitcast<i32>({array}[{at} / 4u]), {at} % 4u * 8u, 8u)",
    "uint8": "i32(extractBits({array}[{at} / 4u], {at} % 4u * 8u, 8u))",
    "int32": "{array}[{at}]",
    "int64": "{array}[{at}]",
    "float32": "{array}[{at}]",
    "float16": "{array}[{at}]",
}
ELEMENT = {"int8": "u32", "uint8": "u32", "int32": "i32", "int64": "i32", "float32": "f32", "float16": "f32"}
# What `expr` gives, and how four of it are stored.
STORES = {"u32": ("i32", "pack4xI8(result)"), "i32": ("i32", "result"), "f32": ("f32", "result")}


def elements(
    expr: str, out: Tensor, box: Dims, operands: list[tuple[Tensor, Dims]], scalars: dict[str, float]
) -> Dispatch:
    """out = `expr` over `a`, `b`, `c`: tensors with their strides in `box`, which is `out` in order.

    Floats are `f32`, all integers `i32`; `scalars` are `params.name`.
    """
    types = [_element(x) for x, _ in operands]
    stored = _element(out)
    result, store = STORES[stored]
    names = [f"in{n}" for n in range(len(operands))]
    arrays = [*types, stored if stored == "u32" else f"vec4<{stored}>"]
    access = ["read"] * len(operands) + ["read_write"]
    bindings = [
        f"@group(0) @binding({2 + n}) var<storage, {mode}> {name}: array<{array}>;"
        for n, (name, mode, array) in enumerate(zip([*names, "out"], access, arrays, strict=True))
    ]
    loads = [
        f"    let {'abc'[n]} = {LOADS[x.dtype].format(array=names[n], at='at.' + 'xyz'[n])};"
        for n, (x, _) in enumerate(operands)
    ]
    box, strides = _merge(box, [s for _, s in operands])
    lead = 8 - len(box)
    if lead < 0:
        raise UnsupportedError(f"a box of rank {len(box)} is over the 8 dims that kernels take")
    padded = [(0,) * lead + s for s in strides] + [(0,)] * (3 - len(strides))
    return Dispatch(
        kernel(
            "int8/elements.wgsl",
            "codes",
            EXPR=expr,
            SCALARS=" ".join(f"{name}: f32," for name in scalars),
            BINDINGS="\n".join(bindings),
            LOADS="\n".join(loads),
            T=result,
            STORE=store,
        ),
        groups=ceil_div(out.numel, 256),
        params=(out.numel, 0, *(float(s) for s in scalars.values()), (1,) * lead + box, *padded),
        reads=tuple(x for x, _ in operands),
        writes=(out,),
    )


def _element(x: Tensor) -> str:
    if x.dtype not in ELEMENT:
        raise UnsupportedError(f"its kernel has no form for {x.dtype} (tensor {x.value.id})")
    return ELEMENT[x.dtype]


def _merge(box: Dims, strides: list[Dims]) -> tuple[Dims, list[Dims]]:
    """Join neighbouring dims that every operand steps through evenly, and drop dims of 1."""
    merged: list[tuple[int, ...]] = []  # (size, stride of each operand)
    for dim in zip(box, *strides, strict=True):
        if dim[0] == 1:
            continue
        if merged and all(outer == inner * dim[0] for outer, inner in zip(merged[-1][1:], dim[1:], strict=True)):
            merged[-1] = (merged[-1][0] * dim[0], *dim[1:])
        else:
            merged.append(dim)
    if not merged or not math.prod(box):
        return (1,), [(0,)] * len(strides)
    sizes, *rest = zip(*merged, strict=True)
    return sizes, list(rest)
