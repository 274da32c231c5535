"""Tensors made from nothing: constants and ranges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import (
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
)


def fill(out: Tensor, start: float, step: float = 0) -> Dispatch:
    kind = GPU_TYPE.get(out.dtype)
    if kind not in ("f32", "i32"):
        raise UnsupportedError(f"filling {out.dtype} has no kernel")
    to_word = float if kind == "f32" else int
    return Dispatch(
        kernel("fill/fill.wgsl", T=kind),
        groups=ceil_div(out.numel, 64),
        params=(out.numel, to_word(start), to_word(step)),
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
        return np.full(like.shape if self.like else like, rest[0] if self.value is None else self.value)


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


@op("aten.arange.start_step")
class Arange(Op):
    """start, start + step, ... below end."""

    def outputs(self, ctx: Context, start: Any, end: Any, step: Any = 1, *_: Any) -> list[Dims]:
        first, last, by = (_number(ctx, v) for v in (start, end, step))
        if by == 0:
            raise InputError("a range with step 0")
        return [(max(0, int(np.ceil((last - first) / by))),)]

    def plan(self, ctx: Context, start: Any, end: Any, step: Any = 1, *_: Any, out: Tensor) -> Iterable[Dispatch]:
        yield fill(out, _number(ctx, start), _number(ctx, step))

    def reference(self, start: Any, end: Any, step: Any = 1, *_: Any) -> np.ndarray:
        return np.arange(start, end, step)


def _number(ctx: Context, value: int | float | LiveInt) -> int | float:
    return ctx.pin(value.expr) if isinstance(value, LiveInt) else value
