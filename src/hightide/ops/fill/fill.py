"""Tensors made from nothing: constants and ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.arguments import ignores
from hightide.ops.contract import (
    GPU_TYPE,
    ROUNDED,
    Context,
    Dispatch,
    Int,
    Kernel,
    LiveInt,
    Op,
    Tensor,
    ceil_div,
    kernel,
    op,
)

GRID_PRIORS = kernel("fill/grid_priors.wgsl")
Number = float | Int
# What the output says already.
OPTIONS = ("dtype", "layout", "device", "pin_memory", "memory_format")


def fill(out: Tensor, start: float, step: float = 0) -> Dispatch:
    """out = start, start + step, ...; bytes are all `start`."""
    kind = GPU_TYPE.get(out.dtype)
    if kind not in ("f32", "i32", "u8") or (kind == "u8" and step):
        raise UnsupportedError(f"{'a range of' if step else 'filling'} {out.dtype} has no kernel")
    words = out.numel
    if kind == "u8":  # four to a word
        words, kind = ceil_div(words, 4), "u32"
        start = (bool(start) if out.dtype == "bool" else int(start) & 255) * 0x01010101
    number = float if kind == "f32" else int
    return _fill(kind).over(ceil_div(words, 64), words=words, start=number(start), step=number(step), out=out)


@cache
def _fill(word: str) -> Kernel:
    return kernel("fill/fill.wgsl", T=word)


def _made(*names: str) -> Callable[[type[Op]], type[Op]]:
    """Register an op that makes a tensor."""
    return lambda cls: op(*names, family="fill", tolerance=ROUNDED)(ignores(*OPTIONS)(cls))


class Sized(Op):
    size: tuple[Int, ...]

    def outputs(self, ctx: Context) -> list[Dims]:
        return [tuple(ctx.pin(size) for size in self.size)]


class Like(Op):
    x: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        return [self.x.dims]


@_made("aten.full.default")
class Full(Sized):
    """A tensor of one value."""

    fill_value: Number

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield fill(out, _number(ctx, self.fill_value))

    reference = staticmethod(lambda size, fill_value: np.full(size, fill_value))


@_made("aten.full_like.default")
class FullLike(Like):
    """A tensor of one value, at the dims of another."""

    fill_value: Number

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield fill(out, _number(ctx, self.fill_value))

    reference = staticmethod(lambda x, fill_value: np.full(x.shape, fill_value))


def _constant(value: int, base: type[Op], *names: str) -> None:
    """Register an op that makes a tensor of this value."""
    meaning: Any = (lambda size: np.full(size, value)) if base is Sized else (lambda x: np.full(x.shape, value))
    members = {
        "__doc__": f"A tensor of {value}s.",
        "plan": lambda self, ctx, out: [fill(out, value)],
        "reference": staticmethod(meaning),
    }
    _made(*names)(type(f"{base.__name__}{value}", (base,), members))


_constant(0, Sized, "aten.zeros.default", "aten.empty.memory_format")
_constant(1, Sized, "aten.ones.default")
_constant(0, Like, "aten.zeros_like.default")
_constant(1, Like, "aten.ones_like.default")


@_made("aten.scalar_tensor.default")
class ScalarTensor(Op):
    """A number as a tensor of rank 0."""

    value: Number

    def outputs(self, ctx: Context) -> list[Dims]:
        return [()]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield fill(out, _number(ctx, self.value))

    reference = staticmethod(lambda value: np.asarray(value))


class Range(Op):
    """start, start + step, ... below end."""

    def outputs(self, ctx: Context) -> list[Dims]:
        start, end, step = self._numbers(ctx)
        if step == 0 or (end - start) / step < 0:
            raise InputError(f"a range from {start} to {end} by {step}")
        return [(math.ceil((end - start) / step),)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        start, _, step = self._numbers(ctx)
        yield fill(out, start, step)

    def _numbers(self, ctx: Context) -> tuple[float, ...]:
        defaults = {"start": 0, "end": 0, "step": 1}
        return tuple(_number(ctx, getattr(self, name, default)) for name, default in defaults.items())


@_made("aten.arange.start_step")
class ArangeByStep(Range):
    """start, start + step, ... below end."""

    start: Number
    end: Number
    step: Number = 1
    reference = staticmethod(lambda start, end, step: np.arange(start, end, step))


@_made("aten.arange.start")
class ArangeFromStart(Range):
    """start, start + 1, ... below end."""

    start: Number
    end: Number
    reference = staticmethod(lambda start, end: np.arange(start, end))


@_made("aten.arange.default")
class Arange(Range):
    """0, 1, ... below end."""

    end: Number
    reference = staticmethod(lambda end: np.arange(end))


@op("et_vk.grid_priors.default", family="fill", tolerance=ROUNDED)
class GridPriors(Op):
    """The points (column, row) of a feature map [..., H, W], in pixels of the image: (index + offset) * stride."""

    x: Tensor
    stride: float
    offset: float

    def outputs(self, ctx: Context) -> list[Dims]:
        if self.x.rank < 2:
            raise InputError(f"a feature map of {list(self.x.dims)} has no rows and columns")
        return [(self.x.dims[-2] * self.x.dims[-1], 2)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        points = out.numel // 2
        yield GRID_PRIORS.over(
            ceil_div(points, 64), points=points, columns=self.x.width, stride=self.stride, offset=self.offset, out=out
        )

    @staticmethod
    def reference(x: np.ndarray, stride: float, offset: float) -> np.ndarray:
        rows, columns = np.indices(x.shape[-2:]).reshape(2, -1)
        return (np.stack([columns, rows], axis=-1) + offset) * stride


def _number(ctx: Context, value: Number) -> float:
    return ctx.pin(value) if isinstance(value, LiveInt) else value
