"""2d convolutions of 8-bit codes, to codes: plain, pointwise, depthwise and transposed.

Weights are int8 rows [out channels, >= kernel_y * kernel_x * channels of a group], or for depthwise
[kernel_y, kernel_x, channels]; sums, scales and biases may be padded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Tensor, ceil_div, kernel, op
from hightide.ops.conv.conv import convolve
from hightide.ops.conv.geometry import NO_CONTEXT, ConvShape, Sizes, Windows, conv_flops, per_dim
from hightide.ops.int8.requantize import ToCodes, check_activation, check_columns, require_int8


class ConvOfCodes(ToCodes):
    """Base of the convolutions of codes."""

    depthwise: ClassVar[bool] = False
    transposed: ClassVar[bool] = False
    kernel_size: Sizes
    stride: Sizes
    padding: Sizes
    if TYPE_CHECKING:  # in the order of each op
        output_padding: Sizes
        dilation: Sizes
        groups: int

    def outputs(self, ctx: Context) -> list[Dims]:
        x, weight = self.x, self.weight
        check_activation(self.activation)
        shape = self.shape(ctx, x.dims, weight.dims)
        channels, (height, width) = shape.out_dims[1], shape.windows.size
        row = height * width * shape.in_channels
        if channels % shape.groups or (weight.dims[:2] != (height, width) if self.depthwise else weight.width < row):
            raise InputError(
                f"{list(x.dims)} in {shape.groups} groups does not fit a weight of {list(weight.dims)} "
                f"with a kernel of {[height, width]}"
            )
        check_columns(shape.out_channels if self.transposed else channels, self.scales)
        check_columns(channels, self.sums if self.transposed else self.scales, self.bias)
        return [(*x.dims[:-3], *shape.out_dims[1:])]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        x, weight = self.x, self.weight
        require_int8(x, weight, out)
        if not out.numel:
            return
        shape, ending = self.shape(ctx, x.dims, weight.dims), self.ending
        channels, pixels = shape.out_dims[1], math.prod(shape.out_size)
        given = {"x": x, "weight": weight, "out": out, "channels": channels, **ending.given}
        words = pixels // 4
        if shape.pointwise and not self.depthwise and not (x.dims[-3] % 4 or pixels % 4 or weight.width % 4):
            tiles = shape.batch * ceil_div(channels, 4) * words
            yield kernel("int8/conv_pointwise.wgsl", "conv2d_codes_pointwise", **ending.constants).over(
                ceil_div(tiles, 64),
                **given,
                tiles=tiles,
                channel_tiles=ceil_div(channels, 4),
                words=words,
                steps=x.dims[-3] // 4,
                row_words=weight.width // 4,
            )
            return
        name = "conv2d_codes_transposed" if self.transposed else "conv2d_codes"
        constants = {"TRANSPOSED": self.transposed, **ending.constants}
        given |= self._taps(shape)
        if pixels % 4 == 0:
            tile = 4 if shape.groups == 1 or shape.out_channels % 4 == 0 else 1
            tiles = shape.batch * ceil_div(channels, tile) * words
            yield kernel("int8/conv_tile.wgsl", f"{name}_tile", TILE=tile, **constants).over(
                ceil_div(tiles, 64),
                **given,
                tiles=tiles,
                channel_tiles=ceil_div(channels, tile),
                words=words,
                width=out.dims[-1],
            )
            return
        yield kernel("int8/conv.wgsl", name, **constants).over(
            ceil_div(out.numel, 256), **given, numel=out.numel, height=out.dims[-2], width=out.dims[-1]
        )

    def flops(self, dispatch: Dispatch) -> float:
        channels = self.weight.dims[-1 if self.depthwise else 0]
        return conv_flops(self.x, self.weight.numel // max(1, channels), self.transposed, dispatch)

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> np.ndarray:
        call: Any = cls.bound(dict(arguments))  # of arrays
        x, weight, bias = call.x, call.weight, call.bias
        shape = call.shape(NO_CONTEXT, x.shape, weight.shape)
        ins, outs, channels, taps = shape.in_channels, shape.out_channels, shape.out_dims[1], shape.windows.size
        if cls.depthwise:
            rows = np.moveaxis(weight, -1, 0).reshape(channels, 1, *taps)
        else:
            rows = weight[:, : math.prod(taps) * ins].reshape(channels, *taps, ins)
            rows = np.moveaxis(rows, -1, 1)  # as torch has it: [out, in / groups, y, x]
        if cls.transposed:  # [in, out / groups, y, x]
            rows = np.swapaxes(rows.reshape(shape.groups, outs, ins, *taps), 1, 2).reshape(-1, outs, *taps)
        values = (x.astype(np.float64) - call.zero).reshape(-1, *x.shape[-3:])
        total = convolve(values, rows.astype(np.float64), shape)  # whole numbers: exact
        scales = np.resize(call.scales[:outs], channels) if cls.transposed else call.scales[:channels]
        ending = replace(
            call.ending,
            scales=scales.reshape(-1, 1, 1),
            bias=None if bias is None else bias[:channels].reshape(-1, 1, 1),
        )
        return ending.codes(total).reshape(*x.shape[:-3], *total.shape[1:])

    def shape(self, ctx: Context, x: Dims, weight: Dims) -> ConvShape:
        if len(x) not in (3, 4) or len(weight) != (3 if self.depthwise else 2) or self.groups < 1:
            raise InputError(f"a convolution of {list(x)} with a weight of {list(weight)} in {self.groups} groups")
        windows = Windows.of(ctx, 2, self.kernel_size, self.stride, self.padding, self.dilation)
        channels, images = weight[-1] if self.depthwise else weight[0], (math.prod(x[:-3]), *x[-3:])
        if self.transposed:
            extra = per_dim(ctx, self.output_padding, 2, "output_padding")
            rows = (images[1], channels // self.groups, *windows.size)
            return ConvShape.of(images, rows, windows, self.groups, extra)
        rows = (channels, images[1] // self.groups, *windows.size)
        return ConvShape.of(images, rows, windows, self.groups)

    def _taps(self, shape: ConvShape) -> dict[str, Any]:
        """What taps.wgsl takes."""
        windows, width = shape.windows, self.weight.width
        return {
            "x_channels": self.x.dims[-3],
            "x_size": shape.in_size,
            "group_x": shape.in_channels,
            "group_out": shape.out_channels,
            "scale_count": shape.out_channels if self.transposed else shape.out_dims[1],
            "weight_o": 1 if self.depthwise else width,
            "weight_tap": width if self.depthwise else shape.in_channels,
            "window": windows.size,
            "stride": windows.stride,
            "padding": windows.padding,
            "dilation": windows.dilation,
        }


@op("et_vk.q8ta_conv2d.default", "et_vk.q8ta_conv2d_pw.default", family="conv")
class Conv2dCodes(ConvOfCodes):
    """A 2d convolution of codes, to codes of another scale and zero point."""

    dilation: Sizes
    groups: int
    activation: str


@op("et_vk.q8ta_conv2d_dw.default", family="conv")
class Conv2dCodesDepthwise(Conv2dCodes):
    """A depthwise 2d convolution of codes, to codes of another scale and zero point."""

    depthwise = True


@op("et_vk.q8ta_conv2d_transposed.default", family="conv")
class Conv2dCodesTransposed(ConvOfCodes):
    """A transposed 2d convolution of codes, to codes of another scale and zero point."""

    transposed = True
    output_padding: Sizes
    dilation: Sizes
    groups: int
    activation: str
