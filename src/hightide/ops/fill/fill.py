"""Tensors made from nothing: constants and ranges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.arguments import ignores
from hightide.ops.contract import Context, Op, ceil_div, op
from hightide.ops.kernel import Dispatch, Int, Kernel, LiveInt, Tensor, kernel
from hightide.ops.storage import GPU_TYPE

GRID_PRIORS = kernel("fill/grid_priors.wgsl")
Number = float | Int
OPTIONS = ("dtype", "layout", "device", "pin_memory", "memory_format")  # the output says all of this


def fill(out: Tensor, start: float, step: float = 0) -> Dispatch:
    """out = start, start + step, ...; bytes are all `start`."""
    kind, words = GPU_TYPE.get(out.dtype), out.numel
    if kind not in ("f32", "i32", "u8") or (kind == "u8" and step):
        raise UnsupportedError(f"{'a range of' if step else 'filling'} {out.dtype} has no kernel")
    if kind == "u8" and out.dtype != "bool" and not math.isfinite(start):
        raise UnsupportedError(f"filling {out.dtype} with {start}")
    if kind == "u8":  # four to a word
        kind, words = "u32", ceil_div(words, 4)
        start = (bool(start) if out.dtype == "bool" else int(start) & 255) * 0x01010101
    if kind != "f32" and not (math.isfinite(start) and math.isfinite(step)):
        raise UnsupportedError(f"filling {out.dtype} with {start} and steps of {step}")
    number = float if kind == "f32" else int
    return _fill(kind).over(ceil_div(words, 64), words=words, start=number(start), step=number(step), out=out)


@cache
def _fill(word: str) -> Kernel:
    return kernel("fill/fill.wgsl", T=word)


class Full(Op):
    """A tensor of one value: of a size, or of the dims of x; else of rank 0."""

    value: ClassVar[float] = 0  # where no argument says it

    def outputs(self, ctx: Context) -> list[Dims]:
        given = self.__dict__
        return [given["x"].dims if "x" in given else tuple(ctx.pin(size) for size in given.get("size", ()))]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield fill(out, _number(ctx, self.__dict__.get("fill_value", self.value)))

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> Any:
        dims = arguments["x"].shape if "x" in arguments else arguments.get("size", ())
        return np.full(dims, arguments.get("fill_value", cls.value))


class Arange(Op):
    """start, start + step, ... below end."""

    def outputs(self, ctx: Context) -> list[Dims]:
        start, end, step = self._numbers(ctx)
        if step == 0 or not 0 <= (end - start) / step < 2**63 or not math.isfinite(step):
            raise InputError(f"a range from {start} to {end} by {step}")
        return [(math.ceil((end - start) / step),)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        start, _, step = self._numbers(ctx)
        yield fill(out, start, step)

    def _numbers(self, ctx: Context) -> list[float]:
        return [_number(ctx, value) for value in _range(self.__dict__)]

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> Any:
        return np.arange(*_range(arguments))


def _range(given: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return given.get("start", 0), given["end"], given.get("step", 1)


def _declare(base: type[Op], *names: str, arguments: Mapping[str, Any], **members: Any) -> None:
    """Register an op that makes a tensor, with these arguments and those of all such ops."""
    cls = type(base.__name__, (base,), {"__doc__": base.__doc__, "__annotations__": dict(arguments), **members})
    op(*names, family="fill")(ignores(*OPTIONS)(cls))


SIZE: dict[str, Any] = {"size": tuple[Int, ...]}
LIKE: dict[str, Any] = {"x": Tensor}
VALUE: dict[str, Any] = {"fill_value": Number}
_declare(Full, "aten.full.default", arguments=SIZE | VALUE)
EMPTY = (
    "aten.empty.memory_format",
    "aten.empty.default",
    "aten.empty_permuted.default",
    "dim_order_ops._empty_dim_order.default",
)
_declare(Full, "aten.zeros.default", *EMPTY, arguments=SIZE)
_declare(Full, "aten.ones.default", arguments=SIZE, value=1)
_declare(Full, "aten.full_like.default", "aten.fill.Scalar", arguments=LIKE | VALUE)
_declare(Full, "aten.zeros_like.default", arguments=LIKE)
_declare(Full, "aten.ones_like.default", arguments=LIKE, value=1)
_declare(Full, "aten.scalar_tensor.default", arguments=VALUE)
_declare(Arange, "aten.arange.start_step", arguments=dict.fromkeys(("start", "end", "step"), Number), step=1)
_declare(Arange, "aten.arange.start", arguments=dict.fromkeys(("start", "end"), Number))
_declare(Arange, "aten.arange.default", arguments={"end": Number})


@op("et_vk.grid_priors.default", family="fill")
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
        points, columns = out.numel // 2, self.x.width
        yield GRID_PRIORS.over(
            ceil_div(points, 64), points=points, columns=columns, stride=self.stride, offset=self.offset, out=out
        )

    @staticmethod
    def reference(x: np.ndarray, stride: float, offset: float) -> np.ndarray:
        rows, columns = np.indices(x.shape[-2:]).reshape(2, -1)
        return (np.stack([columns, rows], axis=-1) + offset) * stride


def _number(ctx: Context, value: Number) -> float:
    return ctx.pin(value) if isinstance(value, LiveInt) else value
