"""Pooling over height and width, and means over depth, too: one kernel for means and maxima.

Inputs are [C, H, W] or [N, C, H, W]; arguments are those of torch, and a missing stride is the window's size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Kernel, Op, Scratch, Tensor, ceil_div, kernel, op
from hightide.ops.conv.geometry import NO_CONTEXT, Sizes, Windows, per_dim

Pair = tuple[np.ndarray, np.ndarray]
LARGEST_ROW = 46_340  # its square is an i32: the kernel divides places by sizes


class Pool(Op):
    """Base of poolings over windows of the last two dims."""

    x: Tensor
    size: Sizes
    stride: Sizes = ()
    padding: Sizes = 0


@op("aten.avg_pool2d.default", family="pool")
class AvgPool(Pool):
    """The mean of each window; what it is divided by may count the padding, or be given."""

    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor: int | None = None

    def outputs(self, ctx: Context) -> list[Dims]:
        if self.divisor == 0:
            raise InputError("divisor_override is 0")
        return [_pooled(self.x.dims, _windows(ctx, self.size, self.stride, self.padding), self.ceil_mode)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        over = "given" if self.divisor is not None else "padded" if self.count_include_pad else "inside"
        windows = _windows(ctx, self.size, self.stride, self.padding)
        yield _dispatch(
            _kernel("avg_pool", over), self.x, self.x.dims, out, out.dims, windows, divisor=self.divisor or 1
        )

    @staticmethod
    def reference(
        x: np.ndarray,
        size: Sizes,
        stride: Sizes,
        padding: Sizes,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor: int | None,
    ) -> np.ndarray:
        windows = _windows(NO_CONTEXT, size, stride, padding)
        out_size = _pooled(x.shape, windows, ceil_mode)[-2:]
        places, inside = _places(windows, x.shape[-2:], out_size)
        total = np.zeros((*x.shape[:-2], *out_size), x.dtype)
        for value, mask, _ in _taps(x, places, inside):
            total += np.where(mask, value, 0)
        if divisor is not None:
            return (total / divisor).astype(x.dtype)
        if count_include_pad:
            padded = zip(places, x.shape[-2:], windows.size, windows.padding, strict=True)
            counts = [np.minimum(p[:, 0] + s, n + pad) - p[:, 0] for p, n, s, pad in padded]
        else:
            counts = [mask.sum(axis=1) for mask in inside]
        return (total / np.maximum(counts[0][:, None] * counts[1], 1)).astype(x.dtype)


@op("aten._adaptive_avg_pool2d.default", "aten.adaptive_avg_pool2d.default", family="pool")
class AdaptiveAvgPool(Op):
    """Means of windows that divide height and width into the sizes that are asked for."""

    x: Tensor
    size: Sizes

    def outputs(self, ctx: Context) -> list[Dims]:
        _check_planes(self.x.dims)
        return [(*self.x.dims[:-2], *per_dim(ctx, self.size, 2, "output_size"))]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield _divided(self.x, self.x.dims, out, out.dims)

    @staticmethod
    def reference(x: np.ndarray, size: Sizes) -> np.ndarray:
        return _means(x, per_dim(NO_CONTEXT, size, 2, "output_size"))


@op("aten._adaptive_avg_pool3d.default", "aten.adaptive_avg_pool3d.default", family="pool")
class AdaptiveAvgPool3d(Op):
    """Means of boxes that divide depth, height and width into the sizes that are asked for."""

    x: Tensor
    size: Sizes

    def outputs(self, ctx: Context) -> list[Dims]:
        dims = self.x.dims
        if len(dims) not in (4, 5) or 0 in dims[-4:]:
            what = "it must be [C, D, H, W] or [N, C, D, H, W], only N may be 0"
            raise InputError(f"{list(dims)} has no boxes to pool: {what}")
        return [(*dims[:-3], *per_dim(ctx, self.size, 3, "output_size"))]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        """Means over height and width, then of these over depth: rows of whole planes."""
        plane = out.dims[-2] * out.dims[-1]
        if plane > LARGEST_ROW:
            raise UnsupportedError(f"planes of {plane} means; {LARGEST_ROW} is the most")
        deep, flat = (*self.x.dims[:-2], *out.dims[-2:]), (*self.x.dims[:-2], plane)
        means = ctx.scratch(4 * math.prod(deep))
        yield _divided(self.x, self.x.dims, means, deep)
        yield _divided(means, flat, out, (*out.dims[:-2], plane))

    @staticmethod
    def reference(x: np.ndarray, size: Sizes) -> np.ndarray:
        return _means(x, per_dim(NO_CONTEXT, size, 3, "output_size"))


def _divided(x: Tensor | Scratch, in_dims: Dims, out: Tensor | Scratch, out_dims: Dims) -> Dispatch:
    """Means of windows that divide the planes of the last two dims."""
    route = _kernel("adaptive_avg_pool", "inside", adaptive=True)
    return _dispatch(route, x, in_dims, out, out_dims, Windows((1, 1), (1, 1), (0, 0), (1, 1)))


def _means(x: np.ndarray, out_size: Dims) -> np.ndarray:
    over = tuple(range(-len(out_size), 0))
    out = np.zeros((*x.shape[: -len(out_size)], *out_size), x.dtype)
    for place in np.ndindex(out_size):
        spans = zip(place, x.shape[-len(out_size) :], out_size, strict=True)
        box: tuple[Any, ...] = (..., *(slice(p * n // m, -(-(p + 1) * n // m)) for p, n, m in spans))
        at: tuple[Any, ...] = (..., *place)
        out[at] = x[box].mean(axis=over)
    return out


@op("aten.max_pool2d_with_indices.default", family="pool")
class MaxPoolWithIndices(Pool):
    """The maximum of each window, and its place in the plane."""

    dilation: Sizes = 1
    ceil_mode: bool = False

    def outputs(self, ctx: Context) -> list[Dims]:
        return [_pooled(self.x.dims, self.windows(ctx), self.ceil_mode)] * 2

    def plan(self, ctx: Context, out: Any) -> Iterable[Dispatch]:
        route, values = _kernel("max_pool", indices=True), out[0]
        yield _dispatch(route, self.x, self.x.dims, values, values.dims, self.windows(ctx), indices=out[1])

    def windows(self, ctx: Context) -> Windows:
        return _windows(ctx, self.size, self.stride, self.padding, self.dilation)

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> Any:
        call: Any = cls.bound(dict(arguments))  # of arrays
        return _maxima(call.x, call.windows(NO_CONTEXT), call.ceil_mode)


@op("aten.max_pool2d.default", family="pool")
class MaxPool(MaxPoolWithIndices):
    """The maximum of each window."""

    def outputs(self, ctx: Context) -> list[Dims]:
        return super().outputs(ctx)[:1]

    def plan(self, ctx: Context, out: Any) -> Iterable[Dispatch]:
        yield _dispatch(_kernel("max_pool"), self.x, self.x.dims, out, out.dims, self.windows(ctx))

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> Any:
        return super().evaluate(arguments)[0]


def _windows(ctx: Context, size: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes = 1) -> Windows:
    windows = Windows.of(ctx, 2, size, stride or size, padding, dilation)
    if any(p > n // 2 for p, n in zip(windows.padding, windows.size, strict=True)):
        raise InputError(f"padding {list(windows.padding)} is over half of windows of {list(windows.size)}")
    return windows


def _pooled(dims: Dims, windows: Windows, ceil_mode: bool) -> Dims:
    _check_planes(dims)
    return (*dims[:-2], *(windows.count_up if ceil_mode else windows.count)(dims[-2:]))


def _check_planes(dims: Dims) -> None:
    if len(dims) not in (3, 4) or 0 in dims[-3:]:
        raise InputError(f"{list(dims)} has no planes to pool: it must be [C, H, W] or [N, C, H, W], only N may be 0")


def _kernel(route: str, over: str = "", adaptive: bool = False, indices: bool = False) -> Kernel:
    return kernel("pool/pool.wgsl", route, OVER=over, ADAPTIVE=adaptive, INDICES=indices)


def _dispatch(
    route: Kernel,
    x: Tensor | Scratch,
    in_dims: Dims,
    out: Tensor | Scratch,
    out_dims: Dims,
    windows: Windows,
    divisor: int = 1,
    indices: Tensor | None = None,
) -> Dispatch:
    return route.over(
        ceil_div(math.prod(out_dims), 64),
        x=x,
        out=out,
        indices=indices,
        numel=math.prod(out_dims),
        divisor=divisor,
        in_size=in_dims[-2:],
        out_size=out_dims[-2:],
        window=windows.size,
        stride=windows.stride,
        padding=windows.padding,
        dilation=windows.dilation,
    )


def _maxima(x: np.ndarray, windows: Windows, ceil_mode: bool) -> Pair:
    """(maxima, their places in the plane)."""
    out_size = _pooled(x.shape, windows, ceil_mode)[-2:]
    places, inside = _places(windows, x.shape[-2:], out_size)
    best = np.full((*x.shape[:-2], *out_size), -np.inf, x.dtype)
    rows, columns = (np.where(p < 0, np.iinfo(np.int64).max, p).min(axis=1) for p in places)
    best_at = np.broadcast_to(rows[:, None] * x.shape[-1] + columns, best.shape)
    for value, mask, place in _taps(x, places, inside):
        better = mask & ((value > best) | np.isnan(value))
        best, best_at = np.where(better, value, best), np.where(better, place, best_at)
    return best, best_at


def _places(windows: Windows, in_size: Dims, out_size: Dims) -> tuple[Pair, Pair]:
    """Per dim, which input place each tap of each window takes [windows, taps], and whether there is one."""
    places = [
        (np.arange(out) * stride - padding)[:, None] + np.arange(size) * dilation
        for out, stride, padding, size, dilation in zip(
            out_size, windows.stride, windows.padding, windows.size, windows.dilation, strict=True
        )
    ]
    inside = [(p >= 0) & (p < n) for p, n in zip(places, in_size, strict=True)]
    return (places[0], places[1]), (inside[0], inside[1])


def _taps(x: np.ndarray, places: Pair, inside: Pair) -> Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each tap of the windows, in order: its values, where they are real, and their places in the plane."""
    height, width = x.shape[-2:]
    for ky, kx in np.ndindex(places[0].shape[1], places[1].shape[1]):
        rows = np.clip(places[0][:, ky], 0, height - 1)[:, None]
        columns = np.clip(places[1][:, kx], 0, width - 1)
        yield x[..., rows, columns], inside[0][:, ky, None] & inside[1][:, kx], rows * width + columns
