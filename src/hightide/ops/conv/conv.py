"""Convolutions: 1d and 2d, grouped, dilated, transposed, with or without a clamp behind.

Two kernels: `pointwise` for 1 x 1 windows, whose pixels lie in whole vec4s, and `conv` for all others,
at eight output channels a thread, or fewer where a group has fewer (one: depthwise). On llvmpipe, eight are
1.3 times as fast as four, and `pointwise` 1.2 to 2 times as fast as `conv`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.conv.geometry import Windows, per_dim
from hightide.ops.legacy import Context, Dispatch, Op, Tensor, ceil_div, kernel, op, require_dtype
from hightide.ops.linear.tiles import bias_defines, given

PLACE = "return at * stride + vec4<i32>(tap * dilation - padding);"
PLACE_TRANSPOSED = """let from_start = at + vec4<i32>(padding - tap * dilation);
    return select(NONE, from_start / stride, (from_start >= vec4<i32>()) & (from_start % stride == vec4<i32>()));"""
CLAMP = "clamp(value, {T}(params.low), {T}(params.high))"
QUADS = 2  # vec4s of pixels a thread of `pointwise` computes
LARGEST = float(np.finfo(np.float32).max)
Index = tuple[Any, ...]  # what NumPy takes within brackets


@dataclass(frozen=True)
class Shape:
    """A convolution at its live dims."""

    windows: Windows
    groups: int
    transposed: bool
    batch: int
    in_channels: int  # of one group
    out_channels: int  # of one group
    in_size: Dims
    out_size: Dims

    @property
    def out_dims(self) -> Dims:
        return (self.batch, self.groups * self.out_channels, *self.out_size)

    @property
    def pointwise(self) -> bool:
        """A matrix product: each output pixel sees the input pixel at its place, and all channels."""
        windows = self.windows
        ones = (*windows.size, *windows.stride, self.groups)
        return not self.transposed and all(n == 1 for n in ones) and not any(windows.padding)


def shape_of(
    ctx: Context,
    x: Dims,
    weight: Dims,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: Any,
) -> Shape:
    """The convolution of these live arguments, checked as torch does."""
    rank = len(weight) - 2
    groups = per_dim(ctx, groups, 1, "groups", least=1)[0]
    if rank < 1 or len(x) != len(weight):
        raise InputError(f"an input of {list(x)} does not fit a weight of {list(weight)}")
    if 0 in x[2:]:
        raise InputError(f"an input of {list(x)} has no pixels; only its batch may be 0")
    windows = Windows(
        size=weight[2:],
        stride=per_dim(ctx, stride, rank, "stride", least=1),
        padding=per_dim(ctx, padding, rank, "padding"),
        dilation=per_dim(ctx, dilation, rank, "dilation", least=1),
    )
    if transposed:
        ins, outs = weight[0], weight[1]  # weight [in, out / groups, ...]
        extra = per_dim(ctx, output_padding, rank, "output_padding")
        if any(e >= max(s, d) for e, s, d in zip(extra, windows.stride, windows.dilation, strict=True)):
            raise InputError(f"output_padding {list(extra)} must be smaller than the stride or the dilation")
        out_size = windows.spread(x[2:], extra)
    else:
        ins, outs = weight[1] * groups, weight[0] // groups  # weight [out, in / groups, ...]
        out_size = windows.count(x[2:])
    if x[1] != ins or (weight[0] % groups):
        raise InputError(f"{x[1]} channels do not fit a weight of {list(weight)} in {groups} groups")
    return Shape(windows, groups, transposed, x[0], ins // groups, outs, x[2:], out_size)


@op("aten.convolution.default")
class Convolution(Op):
    """A window of weights over the spatial dims, `groups` of channels apart from each other."""

    def outputs(self, ctx: Context, x: Tensor, weight: Tensor, bias: Tensor | None, *args: Any) -> list[Dims]:
        shape = shape_of(ctx, x.dims, weight.dims, *args[:6])
        channels = shape.out_dims[1]
        if bias is not None and bias.dims != (channels,):
            raise InputError(f"a bias of {list(bias.dims)} does not fit {channels} channels")
        return [shape.out_dims]

    def plan(
        self, ctx: Context, x: Tensor, weight: Tensor, bias: Tensor | None, *args: Any, out: Tensor
    ) -> Iterable[Dispatch]:
        require_dtype("f32", x, weight, out, *given(bias))
        if x.rank > 4:
            raise UnsupportedError(f"convolutions over {x.rank - 2} spatial dims have no kernel")
        if not out.numel:
            return
        shape = shape_of(ctx, x.dims, weight.dims, *args[:6])
        limits = self.limits(args)
        pixels = math.prod(shape.out_size)
        if shape.pointwise and pixels % 4 == 0 and shape.in_channels % 4 == 0:
            yield _pointwise(shape, limits, x, weight, bias, out)
        else:
            yield _direct(shape, limits, x, weight, bias, out)

    def reference(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, *args: Any) -> np.ndarray:
        ctx = Context({}, {}, 0)  # plain numbers: nothing to pin
        out = convolve(x, weight, shape_of(ctx, x.shape, weight.shape, *args[:6]))
        if bias is not None:
            out += bias.reshape(-1, *(1,) * (x.ndim - 2))
        limits = self.limits(args)
        return out if limits is None else np.clip(out, *limits).astype(out.dtype)

    def limits(self, args: tuple[Any, ...]) -> tuple[float, float] | None:
        """What the result is clamped to."""
        return None


@op("et_vk.conv_with_clamp.default")
class ConvWithClamp(Convolution):
    """A convolution, then a clamp; either limit may be missing."""

    def limits(self, args: tuple[Any, ...]) -> tuple[float, float] | None:
        low, high = (*args[6:8], None, None)[:2]
        return _limit(low, -math.inf), _limit(high, math.inf)


def _limit(value: float | None, default: float) -> float:
    """A limit in float32: exporters write a relu as a clamp to the largest float64."""
    return default if value is None or abs(value) > LARGEST else float(value)


def _direct(
    shape: Shape, limits: tuple[float, float] | None, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor
) -> Dispatch:
    ins, outs, taps = shape.in_channels, shape.out_channels, math.prod(shape.windows.size)
    # [in, out / groups, taps] of a transposed convolution, [out, in / groups, taps] of a plain one
    weight_strides = (
        (ins * outs * taps, taps, outs * taps) if shape.transposed else (ins * outs * taps, ins * taps, taps)
    )
    channels = 1 if outs == 1 else 4 if outs <= 4 else 8
    pixel_tiles, channel_tiles = ceil_div(math.prod(shape.out_size), 4), ceil_div(outs, channels)
    tiles = shape.batch * shape.groups * channel_tiles * pixel_tiles
    windows = shape.windows
    spatial = (shape.in_size, shape.out_size, windows.size, windows.stride, windows.padding, windows.dilation)
    fill = (1, 1, 1, 1, 0, 1)  # the height of a 1d convolution
    route = "conv_transposed" if shape.transposed else "conv_depthwise" if outs == 1 else "conv"
    return Dispatch(
        kernel(
            "conv/conv.wgsl",
            route,
            CHANNELS=channels,
            PLACE=PLACE_TRANSPOSED if shape.transposed else PLACE,
            RESULT="value" if limits is None else CLAMP.format(T="f32"),
            **bias_defines(bias, 4, "value += bias[o % (params.groups * params.out_channels)];"),
        ),
        groups=ceil_div(tiles, 64),
        params=(
            *(tiles, pixel_tiles, channel_tiles, shape.groups, ins, outs),
            *weight_strides,
            *(limits or (0.0, 0.0)),
            0,
            *(n for dims, one in zip(spatial, fill, strict=True) for n in (one, *dims)[-2:]),
        ),
        reads=given(x, weight, bias),
        writes=(out,),
    )


def _pointwise(
    shape: Shape, limits: tuple[float, float] | None, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor
) -> Dispatch:
    pixel_quads = math.prod(shape.out_size) // 4
    pixel_tiles, channel_tiles = ceil_div(pixel_quads, QUADS), ceil_div(shape.out_channels, 4)
    tiles = shape.batch * channel_tiles * pixel_tiles
    return Dispatch(
        kernel(
            "conv/pointwise.wgsl",
            "conv_pointwise",
            QUADS=QUADS,
            RESULT="value" if limits is None else CLAMP.format(T="vec4<f32>"),
            **bias_defines(bias, 4, "value += bias[channel + c];"),
        ),
        groups=ceil_div(tiles, 64),
        params=(
            *(tiles, pixel_tiles, channel_tiles, shape.out_channels, shape.in_channels // 4, pixel_quads),
            *(limits or (0.0, 0.0)),
        ),
        reads=given(x, weight, bias),
        writes=(out,),
    )


def convolve(x: np.ndarray, weight: np.ndarray, shape: Shape) -> np.ndarray:
    """Tap by tap of the window, each a matrix product over channels; any number of spatial dims."""
    windows, lead = shape.windows, (shape.batch, shape.groups)
    split = weight.reshape(shape.groups, weight.shape[0] // shape.groups, weight.shape[1], math.prod(windows.size))
    # A plain one reads its windows from the padded input, a transposed one adds them to the padded output.
    wide, narrow = (shape.out_size, shape.in_size) if shape.transposed else (shape.in_size, shape.out_size)
    padded = tuple(n + 2 * p for n, p in zip(wide, windows.padding, strict=True))
    inner: Index = (..., *(slice(p, p + n) for n, p in zip(wide, windows.padding, strict=True)))
    source, dtype = x, np.result_type(x, weight)
    if shape.transposed:
        total = np.zeros((*lead, shape.out_channels, *padded), dtype)
    else:
        source = np.zeros((*lead, shape.in_channels, *padded), x.dtype)
        source[inner] = x.reshape(*lead, shape.in_channels, *shape.in_size)
        total = np.zeros((*lead, shape.out_channels, *shape.out_size), dtype)
    count = math.prod(narrow)
    for number, tap in enumerate(np.ndindex(windows.size)):
        starts = [t * d for t, d in zip(tap, windows.dilation, strict=True)]
        steps = zip(starts, narrow, windows.stride, strict=True)
        at: Index = (..., *(slice(start, start + n * s, s) for start, n, s in steps))
        matrix = split[..., number]  # [groups, out, in]; transposed: [groups, in, out]
        if shape.transposed:
            spread = np.swapaxes(matrix, -1, -2) @ source.reshape(*lead, shape.in_channels, count)
            total[at] += spread.reshape(*lead, shape.out_channels, *narrow)
        else:
            total += (matrix @ source[at].reshape(*lead, shape.in_channels, count)).reshape(total.shape)
    return (total[inner] if shape.transposed else total).reshape(shape.out_dims)
