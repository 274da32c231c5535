"""Reductions over any dims: a kernel that joins elements, one for variances, and one declaration per op."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, ClassVar

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.arguments import ignores
from hightide.ops.contract import Context, Op, ceil_div, normalize_dim, op, require_dtype, strides_of
from hightide.ops.fill.fill import fill
from hightide.ops.kernel import Dispatch, Kernel, Tensor, kernel
from hightide.ops.reduce import distance
from hightide.ops.storage import GPU_TYPE

HELD = {**GPU_TYPE, "int8": "i8"}  # what an element is in memory


class Reduction(Op):
    """The elements of some dims joined to one."""

    x: Tensor
    meaning: ClassVar[Callable[..., Any]]  # in NumPy
    join: ClassVar[str]  # "sum", "product", "max" or "min"
    result: ClassVar[str] = "value"  # what of the joined is the result: "value", "mean", "index" or "both"
    truth: ClassVar[bool] = False  # elements are joined as 0 or 1
    empty: ClassVar[float | None] = None  # what joining nothing gives; None: an error

    def outputs(self, ctx: Context) -> list[Dims]:
        x, reduced, keep = self.x, self.reduced(), getattr(self, "keepdim", False)
        if self.empty is None and not all(x.dims[d] for d in reduced):
            raise InputError(f"{list(x.dims)} has nothing to choose from over dims {reduced}")
        dims = tuple(1 if n in reduced else d for n, d in enumerate(x.dims) if keep or n not in reduced)
        return [dims, dims] if self.result == "both" else [dims]

    def plan(self, ctx: Context, out: Any) -> Iterable[Dispatch]:
        out, indices = out if self.result == "both" else (out, None)
        kind, to = HELD.get(self.x.dtype, ""), GPU_TYPE.get(out.dtype, "")
        if kind not in ("f32", "i32", "u8", "i8") or not self._gives(kind, to, out.dtype):
            raise UnsupportedError(f"reducing {self.x.dtype} to {out.dtype} has no kernel")
        if out.numel and not self.x.numel:
            yield fill(out, self.empty or 0)
            return
        floats = not self.truth and (kind == "f32" or (self.result != "index" and to == "f32"))
        lanes, given = places(self.x, self.reduced(), out)
        route = _route(kind, to, "f32" if floats else "i32", self.join, self.result, self.truth, lanes)
        outputs = 4 if to == "u8" and lanes == 64 else 64 // lanes
        yield route.over(ceil_div(out.numel, outputs), out=out, indices=indices, **given)

    def _gives(self, kind: str, to: str, dtype: str) -> bool:
        """Whether its kernel has this result: bytes are the truth, or one of the elements."""
        if to == "u8":
            return self.truth or (self.result in ("value", "both") and self.x.dtype == dtype and self._chooses)
        return to == kind if self.result == "both" else to in ("f32", "i32")

    @property
    def _chooses(self) -> bool:
        return self.join in ("max", "min")

    def reduced(self) -> list[int]:
        return reduced_dims(self.x.rank, getattr(self, "dim", ()))


def places(x: Tensor, reduced: list[int], out: Tensor) -> tuple[int, dict[str, Any]]:
    """Threads per output, and what elements.wgsl declares."""
    strides = strides_of(x.dims)
    if x.rank > 8:
        raise UnsupportedError(f"a tensor of rank {x.rank} is over the 8 dims that kernels take")
    kept_dims, kept_strides = _merged([(x.dims[n], strides[n]) for n in range(x.rank) if n not in reduced])
    dims, steps = _merged([(x.dims[n], strides[n]) for n in reduced])
    count = math.prod(dims)
    return lanes_for(count, out.numel, contiguous=steps[-1] == 1), {
        "x": x,
        "outputs": out.numel,
        "count": count,
        "kept_first": 8 - len(kept_dims),
        "reduced_first": 8 - len(dims),
        "kept_dims": _leading(kept_dims, 1),
        "kept_strides": _leading(kept_strides, 0),
        "reduced_dims": _leading(dims, 1),
        "reduced_strides": _leading(steps, 0),
    }


def mean_of(x: Tensor, reduced: list[int], out: Tensor) -> Dispatch:
    """The mean over some dims; of nothing NaN."""
    require_dtype("f32", x, out)
    if not x.numel:
        return fill(out, math.nan)
    lanes, given = places(x, reduced, out)
    route = _route("f32", "f32", "f32", "sum", "mean", False, lanes)
    return route.over(ceil_div(out.numel, 64 // lanes), out=out, indices=None, **given)


def variance_of(x: Tensor, reduced: list[int], correction: float, out: Tensor, eps: float | None = None) -> Dispatch:
    """The variance over some dims, or with `eps` 1 / sqrt(variance + eps)."""
    require_dtype("f32", x, out)
    lanes, given = places(x, reduced, out)
    divisor = max(given["count"] - correction, 0)
    if not x.numel or (divisor == 0 and given["count"] == 1):  # 0 / 0, which WGSL does not promise
        return fill(out, math.nan)
    scale = {} if eps is None else {"eps": eps}
    name = f"{'variance' if eps is None else 'deviation'}_{lanes}_lanes"
    route = kernel("reduce/variance.wgsl", name, KIND="f32", LANES=lanes, SCALE=eps is not None)
    return route.over(ceil_div(out.numel, 64 // lanes), out=out, divisor=float(divisor), **scale, **given)


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


class AlongDim(Reduction):
    """The best along a dim, and where it is; of equals the first."""

    dim: int
    keepdim: bool = False
    result = "both"

    @classmethod
    def reference(cls, x: np.ndarray, dim: int, keepdim: bool) -> tuple[Any, Any]:
        best, where = (np.amax, np.argmax) if cls.join == "max" else (np.amin, np.argmin)
        axis = dim if x.ndim else None
        return best(x, axis=axis, keepdims=keepdim), where(x, axis=axis, keepdims=keepdim)


def reduction(base: type[Op], name: str, meaning: Callable[..., Any], join: str, **members: Any) -> None:
    """Register a reduction."""
    members |= {"__doc__": f"{meaning.__name__}. {base.__doc__}", "meaning": staticmethod(meaning), "join": join}
    cls = type(name.split(".")[1], (base,), members)
    op(name, family="reduce")(ignores("dtype")(cls) if join in ("sum", "product") else cls)


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
reduction(AlongDim, "aten.max.dim", np.amax, "max")
reduction(AlongDim, "aten.min.dim", np.amin, "min")
reduction(OverDims, "aten.prod.dim_int", np.prod, "product", empty=1.0)
reduction(Whole, "aten.prod.default", np.prod, "product", empty=1.0)
reduction(OverDims, "aten.any.dim", np.any, "max", truth=True, empty=0.0)
reduction(OverDims, "aten.any.dims", np.any, "max", truth=True, empty=0.0)
reduction(Whole, "aten.any.default", np.any, "max", truth=True, empty=0.0)
reduction(OverDims, "aten.all.dim", np.all, "min", truth=True, empty=1.0)
reduction(Whole, "aten.all.default", np.all, "min", truth=True, empty=1.0)


class Variance(Reduction):
    """Squared distances from the mean, added up and divided by their count less a correction."""

    empty = math.nan

    def variance(self, correction: float, out: Tensor) -> Dispatch:
        return variance_of(self.x, self.reduced(), correction, out)


@op("aten.var.correction", family="reduce")
class VarianceByCorrection(Variance):
    """The variance over some dims or all, with a correction of any size."""

    dim: int | tuple[int, ...] | None = None
    correction: int | float = 1
    keepdim: bool = False

    def plan(self, ctx: Context, out: Any) -> Iterable[Dispatch]:
        yield self.variance(self.correction, out)

    @staticmethod
    def reference(x: np.ndarray, dim: int | tuple[int, ...] | None, correction: float, keepdim: bool) -> Any:
        return _variance(x, dim, correction, keepdim)


@op("aten.var_mean.correction", family="reduce")
class VarianceAndMean(VarianceByCorrection):
    """The variance over some dims or all, with a correction of any size, and the mean."""

    result = "both"

    def plan(self, ctx: Context, out: Any) -> Iterable[Dispatch]:
        yield self.variance(self.correction, out[0])
        yield mean_of(self.x, self.reduced(), out[1])

    @staticmethod
    def reference(x: np.ndarray, dim: int | tuple[int, ...] | None, correction: float, keepdim: bool) -> Any:
        axis: Any = tuple(reduced_dims(x.ndim, dim)) or None
        mean = np.mean(x, axis=axis, keepdims=keepdim) if x.size else np.sum(x, axis=axis, keepdims=keepdim) * math.nan
        return _variance(x, dim, correction, keepdim), mean


@op("aten.var.dim", family="reduce")
class VarianceOverDims(Variance):
    """The variance over some dims, of a sample (`unbiased`) or of all there is."""

    dim: int | tuple[int, ...] | None
    unbiased: bool = True
    keepdim: bool = False

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield self.variance(int(self.unbiased), out)

    @staticmethod
    def reference(x: np.ndarray, dim: int | tuple[int, ...] | None, unbiased: bool, keepdim: bool) -> Any:
        return _variance(x, dim, int(unbiased), keepdim)


def _variance(x: np.ndarray, dim: int | tuple[int, ...] | None, correction: float, keepdim: bool) -> Any:
    axis: Any = tuple(reduced_dims(x.ndim, dim)) or None
    with warnings.catch_warnings():  # of no element, or one: NaN
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.var(x, axis=axis, ddof=correction, keepdims=keepdim)


@cache
def _route(kind: str, out: str, compute: str, join: str, result: str, truth: bool, lanes: int) -> Kernel:
    constants = {"KIND": kind, "OUT": out, "C": compute, "JOIN": join, "RESULT": result}
    return kernel("reduce/reduce.wgsl", f"reduce_{lanes}_lanes", LANES=lanes, TRUTH=truth, **constants)


def reduced_dims(rank: int, dims: int | tuple[int, ...] | None) -> list[int]:
    """The dims that are joined, in order; none that are named means all."""
    listed = [dims] if isinstance(dims, int) else list(dims or ())
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


def lanes_for(count: int, outputs: int, contiguous: bool) -> int:
    """Threads per output: one where neighbouring outputs read neighbouring elements, or there is little to join."""
    if count < 16 or (not contiguous and outputs >= 1024):
        return 1
    return 8 if count < 256 else 64


def _leading(dims: Dims, fill: int) -> Dims:
    return (fill,) * (8 - len(dims)) + dims


__all__ = ["HELD", "distance", "lanes_for", "mean_of", "reduced_dims", "variance_of"]
