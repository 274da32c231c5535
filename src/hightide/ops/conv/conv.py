"""Convolutions: 1d and 2d, grouped, dilated, transposed, optionally followed by a clamp.

Two kernels: `pointwise` for 1 x 1 windows, whose pixels lie in whole vec4s, and `conv` for all others,
at eight output channels a thread, or fewer where a group has fewer (one: depthwise). On llvmpipe, eight are
1.3 times as fast as four, and `pointwise` 1.2 to 2 times as fast as `conv`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Int, Kernel, Op, Tensor, ceil_div, kernel, op
from hightide.ops.conv.geometry import NO_CONTEXT, ConvShape, Sizes, Windows, conv_flops, per_dim

QUADS = 2  # vec4s of pixels a thread of `pointwise` computes
LARGEST = float(np.finfo(np.float32).max)
Index = tuple[Any, ...]  # what NumPy takes within brackets


@op("aten.convolution.default", family="conv")
class Convolution(Op):
    """A window of weights over the spatial dims, within each of `groups` of channels."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    transposed: bool
    output_padding: Sizes
    groups: Int

    def outputs(self, ctx: Context) -> list[Dims]:
        out = self.shape(ctx, self.x.dims, self.weight.dims).out_dims
        if self.bias is not None and self.bias.dims != out[1:2]:
            raise InputError(f"a bias of {list(self.bias.dims)} does not fit {out[1]} channels")
        return [out]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        if self.x.rank > 4:
            raise UnsupportedError(f"convolutions over {self.x.rank - 2} spatial dims have no kernel")
        if not out.numel:
            return
        shape = self.shape(ctx, self.x.dims, self.weight.dims)
        quads = math.prod(shape.out_size) % 4 == 0 and shape.in_channels % 4 == 0
        yield (_pointwise if shape.pointwise and quads else _direct)(self, shape, out)

    def flops(self, dispatch: Dispatch) -> float:
        return conv_flops(self.x, self.weight.numel // max(1, self.weight.dims[0]), self.transposed, dispatch)

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> np.ndarray:
        call: Any = cls.bound(dict(arguments))  # of arrays
        out = convolve(call.x, call.weight, call.shape(NO_CONTEXT, call.x.shape, call.weight.shape))
        if call.bias is not None:
            out += call.bias.reshape(-1, *(1,) * (call.x.ndim - 2))
        return out if call.limits is None else np.clip(out, *call.limits).astype(out.dtype)

    def shape(self, ctx: Context, x: Dims, weight: Dims) -> ConvShape:
        rank = max(len(weight) - 2, 0)
        windows = Windows.of(ctx, rank, weight[2:], self.stride, self.padding, self.dilation)
        extra = per_dim(ctx, self.output_padding, rank, "output_padding") if self.transposed else None
        return ConvShape.of(x, weight, windows, per_dim(ctx, self.groups, 1, "groups", least=1)[0], extra)

    @property
    def limits(self) -> tuple[float, float] | None:
        """What the result is clamped to."""
        return None


@op("et_vk.conv_with_clamp.default", family="conv")
class ConvWithClamp(Convolution):
    """A convolution, then a clamp; either limit may be missing."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def limits(self) -> tuple[float, float] | None:
        """In float32: exporters write a relu as a clamp to the largest float64."""
        low = self.low if abs(self.low) <= LARGEST else -math.inf
        return low, self.high if abs(self.high) <= LARGEST else math.inf


@cache
def _kernel(file: str, route: str, bias: bool, clamp: bool, **constants: int) -> Kernel:
    return kernel(file, route, BIAS=bias, CLAMP=clamp, **constants)


def _direct(conv: Convolution, shape: ConvShape, out: Tensor) -> Dispatch:
    ins, outs, taps = shape.in_channels, shape.out_channels, math.prod(shape.windows.size)
    channels = 1 if outs == 1 else 4 if outs <= 4 else 8
    pixel_tiles, channel_tiles = ceil_div(math.prod(shape.out_size), 4), ceil_div(outs, channels)
    tiles = shape.batch * shape.groups * channel_tiles * pixel_tiles
    windows, transposed = shape.windows, shape.transposed
    route = "conv_transposed" if transposed else "conv_depthwise" if outs == 1 else "conv"
    clamp = conv.limits is not None
    return _kernel(
        "conv/conv.wgsl", route, conv.bias is not None, clamp, CHANNELS=channels, TRANSPOSED=transposed
    ).over(
        ceil_div(tiles, 64),
        **_given(conv, shape, out),
        tiles=tiles,
        pixel_tiles=pixel_tiles,
        channel_tiles=channel_tiles,
        groups=shape.groups,
        in_channels=ins,
        # [in, out / groups, taps] of a transposed convolution, [out, in / groups, taps] of a plain one
        weight_group=ins * outs * taps,
        weight_out=taps if transposed else ins * taps,
        weight_in=outs * taps if transposed else taps,
        # The height of a 1d convolution is 1.
        in_size=(1, *shape.in_size)[-2:],
        out_size=(1, *shape.out_size)[-2:],
        window=(1, *windows.size)[-2:],
        stride=(1, *windows.stride)[-2:],
        padding=(0, *windows.padding)[-2:],
        dilation=(1, *windows.dilation)[-2:],
    )


def _pointwise(conv: Convolution, shape: ConvShape, out: Tensor) -> Dispatch:
    pixel_quads = math.prod(shape.out_size) // 4
    pixel_tiles, channel_tiles = ceil_div(pixel_quads, QUADS), ceil_div(shape.out_channels, 4)
    tiles = shape.batch * channel_tiles * pixel_tiles
    bias, clamp = conv.bias is not None, conv.limits is not None
    return _kernel("conv/pointwise.wgsl", "conv_pointwise", bias, clamp, QUADS=QUADS).over(
        ceil_div(tiles, 64),
        **_given(conv, shape, out),
        tiles=tiles,
        pixel_tiles=pixel_tiles,
        channel_tiles=channel_tiles,
        in_quads=shape.in_channels // 4,
        pixel_quads=pixel_quads,
    )


def _given(conv: Convolution, shape: ConvShape, out: Tensor) -> dict[str, Any]:
    """What both kernels take."""
    low, high = conv.limits or (None, None)
    tensors = {"x": conv.x, "weight": conv.weight, "bias": conv.bias, "out": out}
    return {**tensors, "out_channels": shape.out_channels, "low": low, "high": high}


def convolve(x: np.ndarray, weight: np.ndarray, shape: ConvShape) -> np.ndarray:
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
