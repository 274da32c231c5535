"""One kernel for what happens to codes one by one, with operands at any strides of a box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from hightide.errors import UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import Dispatch, Kernel, Tensor, ceil_div, kernel

# How elements of each type are held, as elements.wgsl has it.
HELD = {"int8": "i8", "uint8": "u8", "int32": "i32", "int64": "i32", "float32": "f32", "float16": "f32"}
TENSORS = ("y", "scales", "zeros")
NUMBERS = {"scale": 0.0, "zero": 0.0, "inverse": 0.0, "out_zero": 0.0, "low": -128.0, "high": 127.0}
ABSENT = dict.fromkeys((*TENSORS, "y_scale", "y_zero", "alpha"))


@dataclass(frozen=True)
class Box:
    """The output in order, and how x and the other operands step through it."""

    dims: Dims
    x_strides: Dims
    other_strides: Dims

    def merged(self) -> Box:
        """Neighbouring dims that every operand steps through evenly joined, dims of 1 dropped."""
        merged: list[tuple[int, int, int]] = []
        for size, x, other in zip(self.dims, self.x_strides, self.other_strides, strict=True):
            if size == 1:
                continue
            if merged and merged[-1][1:] == (x * size, other * size):
                merged[-1] = (merged[-1][0] * size, x, other)
            else:
                merged.append((size, x, other))
        if not merged or not math.prod(self.dims):
            return Box((1,), (0,), (0,))
        if len(merged) > 8:
            raise UnsupportedError(f"a box of rank {len(merged)} is over the 8 dims that kernels take")
        return Box(*zip(*merged, strict=True))


def elements(op: str, x: Tensor, out: Tensor, box: Box, *, zero_first: bool = False, **given: Any) -> Dispatch:
    """The operation `op` of elements.wgsl; `given` are its other tensors and numbers, as far as it uses them."""
    others = (given.get(name) for name in TENSORS)
    held = ["" if tensor is None else _held(tensor) for tensor in (x, *others, out)]
    box = box.merged()
    return _elements(op, zero_first, *held).over(
        ceil_div(out.numel, 256),
        x=x,
        out=out,
        **{**NUMBERS, **ABSENT, **given},
        numel=out.numel,
        none=0,
        dims=box.dims,
        x_strides=box.x_strides,
        other_strides=box.other_strides,
    )


@cache
def _elements(op: str, zero_first: bool, x: str, y: str, scales: str, zeros: str, out: str) -> Kernel:
    held = {"X": x, "Y": y, "SCALES": scales, "ZEROS": zeros, "OUT": out}
    return kernel("int8/elements.wgsl", "codes", OP=op, ZERO_FIRST=zero_first, **held)


def _held(tensor: Tensor) -> str:
    if tensor.dtype not in HELD:
        raise UnsupportedError(f"its kernel has no form for {tensor.dtype} (tensor {tensor.value.id})")
    return HELD[tensor.dtype]
