"""Tensors made from nothing: constants and ranges."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.legacy import (
    GPU_TYPE,
    Context,
    Dispatch,
    LiveInt,
    Op,
    Tensor,
    add,
    ceil_div,
    expr_of,
    kernel,
    op,
    require_dtype,
)
from hightide.ops.movement.strided import word_of

GRID_PRIORS = kernel("fill/grid_priors.wgsl")


def fill(out: Tensor, start: float, step: float = 0) -> Dispatch:
    kind = GPU_TYPE.get(out.dtype)
    if kind not in ("f32", "i32", "u8") or (kind == "u8" and step):
        raise UnsupportedError(f"{'a range of' if step else 'filling'} {out.dtype} has no kernel")
    words = ceil_div(out.numel, 4) if kind == "u8" else out.numel
    return Dispatch(
        kernel("fill/fill.wgsl", T="u32" if kind == "u8" else kind),
        groups=ceil_div(words, 64),
        params=(words, word_of(out.dtype, start), word_of(out.dtype, step)),
        reads=(),
        writes=(out,),
    )


class Full(Op):
    """A tensor of one value: of given sizes, or like another tensor. `value` None: the next argument is it."""

    def __init__(self, value: float | None = None, like: bool = False) -> None:
        self.value, self.like = value, like

    def outputs(self, ctx: Context, like: Any, *_: Any) -> list[Dims]:
        return [like.dims if self.like else tuple(ctx.pin(expr_of(size)) for size in like)]

    def plan(self, ctx: Context, like: Any, *rest: Any, out: Tensor) -> Iterable[Dispatch]:
        yield fill(out, _number(ctx, rest[0]) if self.value is None else self.value)

    def reference(self, like: Any, *rest: Any) -> np.ndarray:
        value = rest[0] if self.value is None else self.value
        return np.full(like.shape if self.like else like, value)


add(Full(), "aten.full.default")
add(Full(0), "aten.zeros.default", "aten.empty.memory_format")
add(Full(1), "aten.ones.default")
add(Full(like=True), "aten.full_like.default")
add(Full(0, like=True), "aten.zeros_like.default")
add(Full(1, like=True), "aten.ones_like.default")


@op("aten.scalar_tensor.default")
class ScalarTensor(Op):
    """A number as a tensor of rank 0."""

    def outputs(self, ctx: Context, value: Any, *_: Any) -> list[Dims]:
        return [()]

    def plan(self, ctx: Context, value: Any, *_: Any, out: Tensor) -> Iterable[Dispatch]:
        yield fill(out, _number(ctx, value))

    def reference(self, value: Any, *_: Any) -> np.ndarray:
        return np.asarray(value)


class Arange(Op):
    """start, start + step, ... below end; `given` says which of these lead the arguments."""

    def __init__(self, *given: str) -> None:
        self.given = given

    def outputs(self, ctx: Context, *args: Any) -> list[Dims]:
        start, end, step = self._range(tuple(_number(ctx, a) for a in args[: len(self.given)]))
        if step == 0 or (end - start) / step < 0:
            raise InputError(f"a range from {start} to {end} by {step}")
        return [(math.ceil((end - start) / step),)]

    def plan(self, ctx: Context, *args: Any, out: Tensor) -> Iterable[Dispatch]:
        start, _, step = self._range(tuple(_number(ctx, a) for a in args[: len(self.given)]))
        yield fill(out, start, step)

    def reference(self, *args: Any) -> np.ndarray:
        return np.arange(*self._range(args[: len(self.given)]))

    def _range(self, args: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        given = dict(zip(self.given, args, strict=False))
        step = given.get("step")
        return given.get("start", 0), given["end"], 1 if step is None else step


add(Arange("start", "end", "step"), "aten.arange.start_step")
add(Arange("start", "end"), "aten.arange.start")
add(Arange("end"), "aten.arange.default")


@op("et_vk.grid_priors.default")
class GridPriors(Op):
    """The points (column, row) of a feature map [..., H, W], in pixels of the image: (index + offset) * stride."""

    def outputs(self, ctx: Context, x: Tensor, stride: int, offset: float) -> list[Dims]:
        if x.rank < 2:
            raise InputError(f"a feature map of {list(x.dims)} has no rows and columns")
        return [(x.dims[-2] * x.dims[-1], 2)]

    def plan(self, ctx: Context, x: Tensor, stride: int, offset: float, *, out: Tensor) -> Iterable[Dispatch]:
        require_dtype("f32", out)
        params = (out.numel // 2, x.width, float(stride), float(offset))
        yield Dispatch(GRID_PRIORS, groups=ceil_div(out.numel // 2, 64), params=params, reads=(), writes=(out,))

    def reference(self, x: np.ndarray, stride: int, offset: float) -> np.ndarray:
        rows, columns = np.indices(x.shape[-2:]).reshape(2, -1)
        return (np.stack([columns, rows], axis=-1) + offset) * stride


def _number(ctx: Context, value: int | float | LiveInt) -> int | float:
    return ctx.pin(value.expr) if isinstance(value, LiveInt) else value
