"""Pooling over height and width: one kernel, with a few lines of WGSL for the mean and for the maximum.

Inputs are [C, H, W] or [N, C, H, W]; arguments are those of torch, a missing stride is the window's size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.conv.geometry import Windows, per_dim
from hightide.ops.legacy import Context, Dispatch, Kernel, Op, Tensor, ceil_div, kernel, op, require_dtype

# `past` is where a window ends in the padded plane.
WINDOW = """let first = at * params.stride - params.padding;
    let start = first + (max(-first, vec2<i32>()) + params.dilation - 1) / params.dilation * params.dilation;
    let past = min(first + (params.window - 1) * params.dilation + 1, params.in_size + params.padding);
    let end = min(past, params.in_size);"""
ADAPTIVE_WINDOW = """let start = at * params.in_size / params.out_size;
    let end = ((at + 1) * params.in_size + params.out_size - 1) / params.out_size;"""
COUNT_INSIDE = "max(end.x - start.x, 0) * max(end.y - start.y, 0)"
COUNT_PADDED = "(past.x - first.x) * (past.y - first.y)"
INDICES = "@group(0) @binding(4) var<storage, read_write> indices: array<i32>;"
ONE = (1, 1)
NO_CONTEXT = Context({}, {}, 0)  # for references, whose arguments are plain numbers


def average_kernel(route: str, window: str, divisor: str) -> Kernel:
    return kernel(
        "pool/pool.wgsl",
        route,
        INDICES="",
        WINDOW=window,
        INIT="var total = 0.0;",
        STEP="total += value;",
        STORE=f"out[i] = total / f32(max({divisor}, 1));",
    )


def maximum_kernel(indices: bool) -> Kernel:
    """As torch: the first of equal maxima, and NaN above all."""
    return kernel(
        "pool/pool.wgsl",
        "max_pool",
        INDICES=INDICES if indices else "",
        WINDOW=WINDOW,
        INIT="var best = minus_infinity(); var best_at = start.x * params.in_size.y + start.y;",
        STEP="if (value > best || is_nan(value)) { best = value; best_at = place; }",
        STORE="out[i] = best;" + (" indices[i] = best_at;" if indices else ""),
    )


def windows_of(ctx: Context, size: Any, stride: Any, padding: Any, dilation: Any = 1) -> Windows:
    windows = Windows(
        size=per_dim(ctx, size, 2, "kernel_size", least=1),
        stride=per_dim(ctx, stride or size, 2, "stride", least=1),
        padding=per_dim(ctx, padding, 2, "padding"),
        dilation=per_dim(ctx, dilation, 2, "dilation", least=1),
    )
    if any(p > n // 2 for p, n in zip(windows.padding, windows.size, strict=True)):
        raise InputError(f"padding {list(windows.padding)} is over half of windows of {list(windows.size)}")
    return windows


def pooled(dims: Dims, windows: Windows, ceil_mode: bool) -> Dims:
    check_planes(dims)
    return (*dims[:-2], *(windows.count_up if ceil_mode else windows.count)(dims[-2:]))


def check_planes(dims: Dims) -> None:
    if len(dims) not in (3, 4) or 0 in dims[-3:]:
        raise InputError(f"{list(dims)} has no planes to pool: it must be [C, H, W] or [N, C, H, W], only N may be 0")


def pool_dispatch(route: Kernel, x: Tensor, outs: tuple[Tensor, ...], windows: Windows, divisor: int = 1) -> Dispatch:
    out = outs[0]
    geometry = (windows.size, windows.stride, windows.padding, windows.dilation)
    return Dispatch(
        route,
        groups=ceil_div(out.numel, 64),
        params=(out.numel, divisor, *x.dims[-2:], *out.dims[-2:], *(n for pair in geometry for n in pair)),
        reads=(x,),
        writes=outs,
    )


@op("aten.avg_pool2d.default")
class AvgPool(Op):
    """The mean of each window; what it is divided by may count the padding, or be given."""

    def outputs(self, ctx: Context, x: Tensor, *args: Any) -> list[Dims]:
        windows, ceil_mode, _, _ = self.settings(ctx, *args)
        return [pooled(x.dims, windows, ceil_mode)]

    def plan(self, ctx: Context, x: Tensor, *args: Any, out: Tensor) -> Iterable[Dispatch]:
        require_dtype("f32", x, out)
        windows, _, padded, divisor = self.settings(ctx, *args)
        counted = "params.divisor" if divisor is not None else COUNT_PADDED if padded else COUNT_INSIDE
        yield pool_dispatch(average_kernel("avg_pool", WINDOW, counted), x, (out,), windows, divisor or 1)

    def reference(self, x: np.ndarray, *args: Any) -> np.ndarray:
        windows, ceil_mode, padded, divisor = self.settings(NO_CONTEXT, *args)
        out_size = pooled(x.shape, windows, ceil_mode)[-2:]
        places, inside = places_of(windows, x.shape[-2:], out_size)
        counts = []
        for n, out, size, stride, padding in zip(
            x.shape[-2:], out_size, windows.size, windows.stride, windows.padding, strict=True
        ):
            first = np.arange(out) * stride - padding
            counts.append(np.minimum(first + size, n + padding) - first)
        if not padded:
            counts = [mask.sum(axis=1) for mask in inside]
        total = np.zeros((*x.shape[:-2], *out_size), x.dtype)
        for value, mask, _ in taps(x, places, inside):
            total += np.where(mask, value, 0)
        area = counts[0][:, None] * counts[1] if divisor is None else divisor
        return (total / np.maximum(area, 1) if divisor is None else total / area).astype(x.dtype)

    @staticmethod
    def settings(
        ctx: Context,
        size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> tuple[Windows, bool, bool, int | None]:
        if divisor_override == 0:
            raise InputError("divisor_override is 0")
        return windows_of(ctx, size, stride, padding), bool(ceil_mode), bool(count_include_pad), divisor_override


@op("aten._adaptive_avg_pool2d.default", "aten.adaptive_avg_pool2d.default")
class AdaptiveAvgPool(Op):
    """Means of windows that divide height and width into the sizes that are asked for."""

    def outputs(self, ctx: Context, x: Tensor, size: Any) -> list[Dims]:
        check_planes(x.dims)
        return [(*x.dims[:-2], *per_dim(ctx, size, 2, "output_size"))]

    def plan(self, ctx: Context, x: Tensor, size: Any, *, out: Tensor) -> Iterable[Dispatch]:
        require_dtype("f32", x, out)
        route = average_kernel("adaptive_avg_pool", ADAPTIVE_WINDOW, COUNT_INSIDE)
        yield pool_dispatch(route, x, (out,), Windows(ONE, ONE, (0, 0), ONE))

    def reference(self, x: np.ndarray, size: Any) -> np.ndarray:
        out_size = per_dim(NO_CONTEXT, size, 2, "output_size")
        out = np.zeros((*x.shape[:-2], *out_size), x.dtype)
        for row, column in np.ndindex(out_size):
            spans = zip((row, column), x.shape[-2:], out_size, strict=True)
            box: tuple[Any, ...] = (..., *(slice(at * n // m, -(-(at + 1) * n // m)) for at, n, m in spans))
            out[..., row, column] = x[box].mean(axis=(-2, -1))
        return out


@op("aten.max_pool2d_with_indices.default")
class MaxPoolWithIndices(Op):
    """The maximum of each window, and its place in the plane."""

    def outputs(self, ctx: Context, x: Tensor, *args: Any) -> list[Dims]:
        return [pooled(x.dims, *self.settings(ctx, *args))] * 2

    def plan(self, ctx: Context, x: Tensor, *args: Any, out: tuple[Tensor, ...]) -> Iterable[Dispatch]:
        require_dtype("f32", x, out[0])
        require_dtype("i32", *out[1:])
        yield pool_dispatch(maximum_kernel(indices=len(out) > 1), x, tuple(out), self.settings(ctx, *args)[0])

    def reference(self, x: np.ndarray, *args: Any) -> Any:
        windows, ceil_mode = self.settings(NO_CONTEXT, *args)
        out_size = pooled(x.shape, windows, ceil_mode)[-2:]
        places, inside = places_of(windows, x.shape[-2:], out_size)
        best = np.full((*x.shape[:-2], *out_size), -np.inf, x.dtype)
        rows, columns = (np.where(p < 0, np.iinfo(np.int64).max, p).min(axis=1) for p in places)
        best_at = np.broadcast_to(rows[:, None] * x.shape[-1] + columns, best.shape)
        for value, mask, place in taps(x, places, inside):
            better = mask & ((value > best) | np.isnan(value))
            best, best_at = np.where(better, value, best), np.where(better, place, best_at)
        return best, best_at

    @staticmethod
    def settings(
        ctx: Context, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> tuple[Windows, bool]:
        return windows_of(ctx, size, stride, padding, dilation), bool(ceil_mode)


@op("aten.max_pool2d.default")
class MaxPool(MaxPoolWithIndices):
    """The maximum of each window."""

    def outputs(self, ctx: Context, x: Tensor, *args: Any) -> list[Dims]:
        return super().outputs(ctx, x, *args)[:1]

    def plan(self, ctx: Context, x: Tensor, *args: Any, out: Any) -> Iterable[Dispatch]:
        return super().plan(ctx, x, *args, out=(out,))

    def reference(self, x: np.ndarray, *args: Any) -> Any:
        return super().reference(x, *args)[0]


Pair = tuple[np.ndarray, np.ndarray]


def places_of(windows: Windows, in_size: Dims, out_size: Dims) -> tuple[Pair, Pair]:
    """Per dim, which input place each tap of each window takes [windows, taps], and whether there is one."""
    places = [
        (np.arange(out) * stride - padding)[:, None] + np.arange(size) * dilation
        for out, stride, padding, size, dilation in zip(
            out_size, windows.stride, windows.padding, windows.size, windows.dilation, strict=True
        )
    ]
    inside = [(p >= 0) & (p < n) for p, n in zip(places, in_size, strict=True)]
    return (places[0], places[1]), (inside[0], inside[1])


def taps(x: np.ndarray, places: Pair, inside: Pair) -> Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each tap of the windows, in order: its values, where they are real, and their places in the plane."""
    height, width = x.shape[-2:]
    for ky, kx in np.ndindex(places[0].shape[1], places[1].shape[1]):
        rows = np.clip(places[0][:, ky], 0, height - 1)[:, None]
        columns = np.clip(places[1][:, kx], 0, width - 1)
        yield x[..., rows, columns], inside[0][:, ky, None] & inside[1][:, kx], rows * width + columns
