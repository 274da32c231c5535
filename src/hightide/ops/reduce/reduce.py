"""Reductions over any dims: one kernel, and one declaration per op."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, ClassVar

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.arguments import ignores
from hightide.ops.contract import Context, Op, ceil_div, normalize_dim, op, strides_of
from hightide.ops.fill.fill import fill
from hightide.ops.kernel import Dispatch, Kernel, Tensor, kernel
from hightide.ops.storage import GPU_TYPE

HELD = {**GPU_TYPE, "int8": "i8"}  # what an element is in memory


class Reduction(Op):
    """The elements of some dims joined to one."""

    x: Tensor
    meaning: ClassVar[Callable[..., Any]]  # in NumPy
    join: ClassVar[str]  # "sum", "max" or "min"
    result: ClassVar[str] = "value"  # what of the joined is the result: "value", "mean" or "index"
    empty: ClassVar[float | None] = None  # what joining nothing gives; None: an error

    def outputs(self, ctx: Context) -> list[Dims]:
        x, reduced, keep = self.x, self._reduced(), getattr(self, "keepdim", False)
        if self.empty is None and not all(x.dims[d] for d in reduced):
            raise InputError(f"{list(x.dims)} has nothing to choose from over dims {reduced}")
        return [tuple(1 if n in reduced else d for n, d in enumerate(x.dims) if keep or n not in reduced)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        x, kind, to = self.x, HELD.get(self.x.dtype), GPU_TYPE.get(out.dtype)
        if kind not in ("f32", "i32", "u8", "i8") or to not in ("f32", "i32"):
            raise UnsupportedError(f"reducing {x.dtype} to {out.dtype} has no kernel")
        if x.rank > 8:
            raise UnsupportedError(f"a tensor of rank {x.rank} is over the 8 dims that kernels take")
        if out.numel and not x.numel:
            yield fill(out, self.empty or 0)
            return
        reduced, strides = self._reduced(), strides_of(x.dims)
        kept_dims, kept_strides = _merged([(x.dims[n], strides[n]) for n in range(x.rank) if n not in reduced])
        dims, steps = _merged([(x.dims[n], strides[n]) for n in reduced])
        count = math.prod(dims)
        compute = "f32" if kind == "f32" or (self.result != "index" and to == "f32") else "i32"
        lanes = _lanes(count, out.numel, contiguous=steps[-1] == 1)
        yield _route(kind, to, compute, self.join, self.result, lanes).over(
            ceil_div(out.numel, 64 // lanes),
            outputs=out.numel,
            count=count,
            first_kept=8 - len(kept_dims),
            first_reduced=8 - len(dims),
            kept_dims=_leading(kept_dims, 1),
            kept_strides=_leading(kept_strides, 0),
            reduced_dims=_leading(dims, 1),
            reduced_strides=_leading(steps, 0),
            x=x,
            out=out,
        )

    def _reduced(self) -> list[int]:
        return reduced_dims(self.x.rank, getattr(self, "dim", ()))


class Whole(Reduction):
    """Over all elements."""

    @classmethod
    def reference(cls, x: np.ndarray) -> Any:
        return cls.meaning(x)


class OverDims(Reduction):
    """Over some dims, which are then 1 (`keepdim`) or gone; if none are named, over all."""

    dim: int | tuple[int, ...] = ()
    keepdim: bool = False

    @classmethod
    def reference(cls, x: np.ndarray, dim: int | tuple[int, ...], keepdim: bool) -> Any:
        axis: Any = tuple(reduced_dims(x.ndim, dim)) or None
        if cls.result == "index":  # NumPy's take one axis, or all
            axis = axis[0] if axis and len(axis) == 1 else None
        return cls.meaning(x, axis=axis, keepdims=keepdim)


def reduction(base: type[Op], name: str, meaning: Callable[..., Any], join: str, **members: Any) -> None:
    """Register a reduction."""
    members |= {"__doc__": f"{meaning.__name__}. {base.__doc__}", "meaning": staticmethod(meaning), "join": join}
    cls = type(name.split(".")[1], (base,), members)
    op(name, family="reduce")(ignores("dtype")(cls) if join == "sum" else cls)


reduction(OverDims, "aten.sum.dim_IntList", np.sum, "sum", empty=0.0)
reduction(Whole, "aten.sum.default", np.sum, "sum", empty=0.0)
reduction(OverDims, "aten.mean.dim", np.mean, "sum", result="mean", empty=math.nan)
reduction(Whole, "aten.mean.default", np.mean, "sum", result="mean", empty=math.nan)
reduction(OverDims, "aten.amax.default", np.amax, "max")
reduction(OverDims, "aten.amin.default", np.amin, "min")
reduction(Whole, "aten.max.default", np.amax, "max")
reduction(Whole, "aten.min.default", np.amin, "min")
reduction(OverDims, "aten.argmax.default", np.argmax, "max", result="index")
reduction(OverDims, "aten.argmin.default", np.argmin, "min", result="index")


@cache
def _route(kind: str, out: str, compute: str, join: str, result: str, lanes: int) -> Kernel:
    name = f"reduce_{lanes}_lanes"
    return kernel("reduce/reduce.wgsl", name, KIND=kind, OUT=out, C=compute, JOIN=join, RESULT=result, LANES=lanes)


def reduced_dims(rank: int, dims: int | tuple[int, ...]) -> list[int]:
    """The dims that are joined, in order; none that are named means all."""
    listed = [dims] if isinstance(dims, int) else list(dims)
    found = {normalize_dim(d, rank) for d in listed}
    if len(found) != len(listed):
        raise InputError(f"a dim is twice in {listed}")
    return sorted(found) or list(range(rank)) if rank else []


def _merged(box: list[tuple[int, int]]) -> tuple[Dims, Dims]:
    """(dims, strides) with neighbours that follow each other in memory joined, at least one."""
    merged: list[tuple[int, int]] = []
    for size, stride in box:
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    merged = merged or [(1, 1)]
    return tuple(d for d, _ in merged), tuple(s for _, s in merged)


def _lanes(count: int, outputs: int, contiguous: bool) -> int:
    """Threads per output: one where neighbouring outputs read neighbouring elements, or there is little to join."""
    if count < 16 or (not contiguous and outputs >= 1024):
        return 1
    return 8 if count < 256 else 64


def _leading(dims: Dims, fill: int) -> Dims:
    return (fill,) * (8 - len(dims)) + dims
