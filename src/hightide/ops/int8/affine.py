"""Floats to codes and back: per tensor, per channel, per row, or per block.

All forms are one: a scale and a zero point for each block of a tensor. References round in float32
whatever they are held in: torch does, and at ties the type decides the code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Int, Op, Tensor, normalize_dim, op, strides_of
from hightide.ops.conv.geometry import NO_CONTEXT
from hightide.ops.int8.elements import Box, elements

Array = np.ndarray
Blocks = tuple[int | None, ...]  # the length of a block in each dim, None for all of it


def codes_of(x: Array, inverse: Any, zero: Any, low: float, high: float, *, zero_first: bool = False) -> Array:
    """clamp(round(x * inverse) + zero), half to even, in float32; `zero_first` adds before it rounds."""
    scaled = np.asarray(x, np.float32) * np.float32(inverse)
    shifted = np.round(scaled + np.float32(zero)) if zero_first else np.round(scaled) + np.float32(zero)
    return np.clip(shifted, np.float32(low), np.float32(high)).astype(np.int64)


def inverse_of(scale: float) -> float:
    if not scale:
        raise InputError("a scale is 0")
    return 1 / float(scale)


class Affine(Op):
    """Codes from `low` to `high`, or what they stand for: (code - zero) * scale."""

    quantizes: ClassVar[bool]
    zero_first: ClassVar[bool] = False  # the zero point is added before rounding
    if TYPE_CHECKING:  # forms declare them, each in its own order
        x: Tensor
        scale: float | Tensor
        zero: int | Tensor | None
        low: float | None
        high: float | None

    def blocks(self, ctx: Context, rank: int) -> Blocks:
        raise NotImplementedError

    def outputs(self, ctx: Context) -> list[Dims]:
        x = self.x
        if self.quantizes and (self.low is None or self.high is None):
            raise UnsupportedError("a range of codes that only the type tells: it must be given")
        if isinstance(self.scale, Tensor):
            count = math.prod(n for n, _ in _cut(x.dims, x.value.dims, self.blocks(ctx, x.rank)))
            zeros = self.zero.numel if isinstance(self.zero, Tensor) else 0
            if self.scale.numel != count or zeros not in (0, count):
                counts = f"{self.scale.numel} scales and {zeros} zero points"
                raise InputError(f"{counts} do not fit the {count} blocks of {list(x.dims)}")
        return [x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        if not out.numel:
            return
        x, given = self.x, dict[str, Any]()
        if isinstance(self.scale, Tensor):
            given["scales"], box = self.scale, _box(x, _cut(x.dims, x.value.dims, self.blocks(ctx, x.rank)))
        else:
            given |= {"scale": self.scale, "inverse": inverse_of(self.scale)}
            box = Box(x.dims, strides_of(x.dims), (0,) * x.rank)
        if isinstance(self.zero, Tensor):
            given["zeros"] = self.zero if self.zero.numel else None
        else:
            given["zero"] = self.zero or 0
        if not self.quantizes:
            yield elements("dequantize", x, out, box, **given)
        else:
            given |= {"low": self.low, "high": self.high}
            yield elements("quantize", x, out, box, zero_first=self.zero_first, **given)

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> Array:
        call: Any = cls.bound(dict(arguments))  # of arrays
        x, scale, zero = call.x, call.scale, call.zero
        if not x.size:
            return np.asarray(x)
        blocks = call.blocks(NO_CONTEXT, x.ndim)
        if isinstance(zero, Array):
            zero = _spread(zero, x.shape, blocks) if zero.size else None
        zero = 0 if zero is None else zero
        by_tensor = isinstance(scale, Array)
        scale = np.float32(_spread(scale, x.shape, blocks) if by_tensor else scale)
        if not cls.quantizes:
            return np.asarray((x.astype(np.float64) - zero) * scale.astype(np.float64))
        inverse = np.float32(1) / scale if by_tensor else inverse_of(call.scale)
        return codes_of(x, inverse, zero, call.low, call.high, zero_first=cls.zero_first)


def affine(name: str, *overloads: str) -> Callable[[type[Affine]], type[Affine]]:
    """Register a form as two ops: `name` has a place for "quantize" or "dequantize"."""

    def register(form: type[Affine]) -> type[Affine]:
        for word, what in (("quantize", "Floats to codes"), ("dequantize", "Codes to floats")):
            members = {"quantizes": word == "quantize", "__doc__": f"{what}, with {form.__doc__}"}
            cls = type(word.capitalize() + form.__name__, (form,), members)
            op(*(f"{name.format(word)}.{overload}" for overload in overloads), family="quantize")(cls)
        return form

    return register


@affine("quantized_decomposed.{}_per_tensor", "default", "tensor")
class PerTensor(Affine):
    """one scale and zero point."""

    x: Tensor
    scale: float | Tensor
    zero: int | Tensor
    low: int
    high: int
    dtype: int | None = None
    out_dtype: int | None = None

    def blocks(self, ctx: Context, rank: int) -> Blocks:
        return (None,) * rank


@affine("quantized_decomposed.{}_per_channel", "default")
class PerChannel(Affine):
    """a scale and zero point for each place along `axis`."""

    x: Tensor
    scale: Tensor
    zero: Tensor | None
    axis: int
    low: int
    high: int
    dtype: int | None = None
    out_dtype: int | None = None

    def blocks(self, ctx: Context, rank: int) -> Blocks:
        at = normalize_dim(self.axis, rank)
        return tuple(1 if dim == at else None for dim in range(rank))


@affine("quantized_decomposed.{}_per_token", "default")
class PerToken(PerTensor):
    """a scale and zero point for each row."""

    zero_first = True

    def blocks(self, ctx: Context, rank: int) -> Blocks:
        return (1,) * (rank - 1) + (None,) * min(rank, 1)


@affine("torchao.{}_affine", "default")
class PerBlock(Affine):
    """a scale and zero point for each block."""

    x: Tensor
    block: tuple[Int, ...]
    scale: Tensor
    zero: Tensor | None
    dtype: int | None
    low: float | None = None
    high: float | None = None
    domain: str | int | None = None  # of the zero points; later torchao has the output's type here
    out_dtype: int | None = None

    def blocks(self, ctx: Context, rank: int) -> Blocks:
        return tuple(ctx.pin(size) for size in self.block)


def _cut(dims: Dims, most: Dims, blocks: Blocks) -> list[tuple[int, int]]:
    """(number of blocks, their length) in each dim; a block as long as the max dim is whole at every level."""
    if len(blocks) != len(dims):
        raise InputError(f"blocks of {list(blocks)} do not fit {list(dims)}")
    cut = []
    for size, max_size, b in zip(dims, most, blocks, strict=True):
        if b is None or (b != 1 and b in (size, max_size)):
            cut.append((1, size))
        elif b < 1 or size % b:
            raise InputError(f"{list(dims)} cannot be cut into blocks of {list(blocks)}")
        else:
            cut.append((size // b, b))
    return cut


def _box(x: Tensor, cut: list[tuple[int, int]]) -> Box:
    """x as a box of blocks and their elements; the other operands are the blocks' parameters."""
    box: list[tuple[int, int, int]] = []
    steps = strides_of(tuple(count for count, _ in cut))
    for (count, length), stride, step in zip(cut, strides_of(x.dims), steps, strict=True):
        box += [(count, stride * length, step), (length, stride, 0)]
    return Box(*zip(*box, strict=True)) if box else Box((), (), ())


def _spread(parameter: Array, shape: Dims, blocks: Blocks) -> Array:
    """Each block's parameter, repeated over its block."""
    most = tuple(max(size, b or 0) for size, b in zip(shape, blocks, strict=True))
    cut = _cut(shape, most, blocks)
    result = parameter.reshape([count for count, _ in cut])
    for dim, (_, length) in enumerate(cut):
        result = np.repeat(result, length, axis=dim)
    return result
