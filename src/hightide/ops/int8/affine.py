"""Floats to codes and back: per tensor, per channel, per row, or per block.

All forms are one: a scale and a zero point for each block of a tensor. References round in float32
whatever they are held in: torch does, and at ties the type decides the code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.int8.elements import elements
from hightide.ops.legacy import Context, Dispatch, Op, Tensor, add, expr_of, normalize_dim, strides_of

Array = np.ndarray
Arguments = tuple[Any, Any, Any, Any, Any]  # scale, zero point, block of each dim (None: all of it), low, high


def codes_of(x: Array, inverse: Any, zero: Any, low: float, high: float, *, zero_first: bool = False) -> Array:
    """clamp(round(x * inverse) + zero), half to even, in float32; `zero_first` adds before it rounds."""
    scaled = np.asarray(x, np.float32) * np.float32(inverse)
    shifted = np.round(scaled + np.float32(zero)) if zero_first else np.round(scaled) + np.float32(zero)
    return np.clip(shifted, np.float32(low), np.float32(high)).astype(np.int64)


def inverse_of(scale: float) -> float:
    if not scale:
        raise InputError("a scale is 0")
    return 1 / float(scale)


@dataclass(frozen=True)
class Affine(Op):
    """`arguments` sorts the op's own arguments after x into (scale, zero point, block, low, high)."""

    quantizes: bool
    arguments: Callable[..., Arguments]
    zero_first: bool = False  # the zero point is added before rounding

    def outputs(self, ctx: Context, x: Tensor, *args: Any) -> list[Dims]:
        scale, zero, block, low, high = self.arguments(x.rank, *args)
        if self.quantizes and (low is None or high is None):
            raise UnsupportedError("a range of codes that only the type tells: it must be given")
        if isinstance(scale, Tensor):
            blocks = math.prod(_blocks(x, _pinned(ctx, block)))
            for what, tensor in (("scales", scale), ("zero points", zero)):
                if isinstance(tensor, Tensor) and tensor.numel != blocks and not (zero is tensor and not zero.numel):
                    raise InputError(f"{tensor.numel} {what} do not fit the {blocks} blocks of {list(x.dims)}")
        return [x.dims]

    def plan(self, ctx: Context, x: Tensor, *args: Any, out: Tensor) -> Iterable[Dispatch]:
        scale, zero, block, low, high = self.arguments(x.rank, *args)
        if not out.numel:
            return
        if isinstance(scale, Tensor):
            box, x_strides, block_strides = _box(x, _pinned(ctx, block))
        else:
            box, x_strides, block_strides = x.dims, strides_of(x.dims), ()
        operands, scalars = [(x, x_strides)], {}
        if isinstance(scale, Tensor):
            operands.append((scale, block_strides))
            inverse, factor = "(1.0 / b)", "b"
        else:
            scalars = {"scale": float(scale), "inverse": inverse_of(scale)}
            inverse, factor = "params.inverse", "params.scale"
        if isinstance(zero, Tensor) and zero.numel:
            operands.append((zero, block_strides))
            shift = f"f32({'abc'[len(operands) - 1]})"
        else:
            scalars["zero"] = 0.0 if zero is None or isinstance(zero, Tensor) else float(zero)
            shift = "params.zero"
        if not self.quantizes:
            expr = f"(f32(a) - {shift}) * {factor}"
        else:
            scalars |= {"low": float(low), "high": float(high)}
            values = f"rounded(a * {inverse}) + {shift}, 0.0" if self.zero_first else f"a * {inverse}, {shift}"
            expr = f"to_code({values}, params.low, params.high)"
        yield elements(expr, out, box, operands, scalars)

    def reference(self, x: Array, *args: Any) -> Array:
        if not x.size:
            return x
        scale, zero, block, low, high = self.arguments(x.ndim, *args)
        spread = _spread(x.shape, block)
        scale_of = spread(scale) if isinstance(scale, np.ndarray) else scale
        zero_of = 0 if zero is None or not np.size(zero) else spread(zero) if isinstance(zero, np.ndarray) else zero
        if not self.quantizes:
            return (x.astype(np.float64) - zero_of) * np.float32(scale_of).astype(np.float64)
        exact = np.float32(1) / np.float32(scale_of) if isinstance(scale, np.ndarray) else inverse_of(scale)
        return codes_of(x, exact, zero_of, low, high, zero_first=self.zero_first)


def _pinned(ctx: Context, block: tuple[Any, ...]) -> tuple[int | None, ...]:
    return tuple(None if b is None else ctx.pin(expr_of(b)) for b in block)


def _sizes(x: Tensor, block: tuple[int | None, ...]) -> list[int | None]:
    """Each dim's block, None for all of it: a block as long as the max dim stays whole at any level."""
    if len(block) != x.rank:
        raise InputError(f"blocks of {list(block)} do not fit {list(x.dims)}")
    sizes: list[int | None] = []
    for size, most, b in zip(x.dims, x.value.dims, block, strict=True):
        whole = b is None or (b != 1 and b in (size, most))
        if not whole and (b is None or b < 1 or size % b):
            raise InputError(f"{list(x.dims)} cannot be cut into blocks of {list(block)}")
        sizes.append(None if whole else b)
    return sizes


def _blocks(x: Tensor, block: tuple[int | None, ...]) -> Dims:
    return tuple(1 if b is None else size // b for size, b in zip(x.dims, _sizes(x, block), strict=True))


def _box(x: Tensor, block: tuple[int | None, ...]) -> tuple[Dims, Dims, Dims]:
    """x as a box, in which a dim of several blocks is two: (dims, strides of x, strides of the blocks)."""
    box: list[tuple[int, int, int]] = []
    steps = strides_of(_blocks(x, block))
    for size, b, stride, step in zip(x.dims, _sizes(x, block), strides_of(x.dims), steps, strict=True):
        if b is None:
            box.append((size, stride, 0))
        else:
            box += [(size // b, stride * b, step), (b, stride, 0)]
    dims, x_strides, block_strides = zip(*box, strict=True) if box else ((), (), ())
    return dims, x_strides, block_strides


def _spread(shape: Dims, block: tuple[int | None, ...]) -> Callable[[Array], Array]:
    """Repeats each block's parameter over its block."""

    def spread(parameter: Array) -> Array:
        sizes = [None if b is None or (b != 1 and b >= size) else b for b, size in zip(block, shape, strict=True)]
        counts = [1 if b is None else size // b for b, size in zip(sizes, shape, strict=True)]
        result = parameter.reshape(counts)
        for dim, (b, size) in enumerate(zip(sizes, shape, strict=True)):
            result = np.repeat(result, size if b is None else b, axis=dim)
        return result

    return spread


def _per_tensor(rank: int, scale: Any, zero: Any, low: Any, high: Any, *_: Any) -> Arguments:
    return scale, zero, (None,) * rank, low, high


def _per_channel(rank: int, scale: Any, zero: Any, axis: int, low: Any, high: Any, *_: Any) -> Arguments:
    at = normalize_dim(axis, rank)
    return scale, zero, tuple(1 if dim == at else None for dim in range(rank)), low, high


def _per_token(rank: int, scale: Any, zero: Any, low: Any, high: Any, *_: Any) -> Arguments:
    return scale, zero, (1,) * (rank - 1) + (None,) * min(rank, 1), low, high


def _per_block(
    rank: int, block: Any, scale: Any, zero: Any, dtype: Any, low: Any = None, high: Any = None, *_: Any
) -> Arguments:
    return scale, zero, tuple(block), low, high


FORMS: dict[str, Callable[..., Arguments]] = {
    "per_tensor.default": _per_tensor,
    "per_tensor.tensor": _per_tensor,
    "per_channel.default": _per_channel,
    "per_token.default": _per_token,
}
for _form, _arguments in FORMS.items():
    _zero_first = _arguments is _per_token
    add(Affine(True, _arguments, _zero_first), f"quantized_decomposed.quantize_{_form}")
    add(Affine(False, _arguments), f"quantized_decomposed.dequantize_{_form}")
add(Affine(True, _per_block), "torchao.quantize_affine.default")
add(Affine(False, _per_block), "torchao.dequantize_affine.default")
