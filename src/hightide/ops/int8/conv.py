"""2d convolutions of 8-bit codes, to codes: plain, pointwise, depthwise and transposed.

Weights are int8 rows [out channels, >= kernel_y * kernel_x * channels of a group], or for depthwise
[kernel_y, kernel_x, channels]; sums, scales and biases may be padded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.int8.affine import inverse_of
from hightide.ops.int8.linear import bindings
from hightide.ops.int8.requantize import check_activation, check_columns, requantized, require_int8, tail
from hightide.ops.legacy import Context, Dispatch, Op, Tensor, add, ceil_div, kernel, require_dtype
from hightide.ops.linear.tiles import given

Pair = tuple[int, int]

FORWARD = """let at = o * stride + k * dilation - padding;
    return select(vec4<i32>(-1), at, (at >= vec4<i32>(0)) & (at < vec4<i32>(size)));"""
TRANSPOSED = """let steps = o + padding - k * dilation;
    let at = steps / stride;
    return select(vec4<i32>(-1), at, (steps >= vec4<i32>(0)) & (at * stride == steps) & (at < vec4<i32>(size)));"""


@dataclass(frozen=True)
class Shape:
    """A convolution's numbers, from its arguments."""

    kernel: Pair
    stride: Pair
    padding: Pair
    output_padding: Pair
    dilation: Pair
    groups: int
    activation: str

    def out_size(self, size: int, axis: int, transposed: bool) -> int:
        reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        if transposed:
            length = (size - 1) * self.stride[axis] - 2 * self.padding[axis] + reach + self.output_padding[axis]
            return length if size else 0
        return (size + 2 * self.padding[axis] - reach) // self.stride[axis] + 1


@dataclass(frozen=True)
class Conv2dCodes(Op):
    depthwise: bool = False
    transposed: bool = False

    def outputs(
        self,
        ctx: Context,
        x: Tensor,
        scale: float,
        zero: int,
        weight: Tensor,
        sums: Tensor,
        scales: Tensor,
        out_scale: float,
        out_zero: int,
        bias: Tensor | None,
        *args: Any,
    ) -> list[Dims]:
        shape = self._shape(args)
        check_activation(shape.activation)
        if min(shape.groups, *shape.kernel, *shape.stride, *shape.dilation) < 1:
            raise InputError(f"a convolution of {shape}: sizes and steps are at least 1")
        if x.rank not in (3, 4) or weight.rank != (3 if self.depthwise else 2):
            raise InputError(f"a convolution of {list(x.dims)} with a weight of {list(weight.dims)}")
        channels, group_out, group_x = self._channels(shape, x.dims, weight.dims)
        taps = math.prod(shape.kernel)
        fits = weight.dims[:2] == shape.kernel if self.depthwise else weight.width >= taps * group_x
        if channels % shape.groups or x.dims[-3] != group_x * shape.groups or not fits:
            raise InputError(
                f"{list(x.dims)} in {shape.groups} groups does not fit a weight of {list(weight.dims)} "
                f"with a kernel of {list(shape.kernel)}"
            )
        check_columns(group_out if self.transposed else channels, scales)
        check_columns(channels, scales if not self.transposed else sums, bias)
        height, width = (shape.out_size(x.dims[axis - 2], axis, self.transposed) for axis in (0, 1))
        if height < 1 or width < 1:
            raise InputError(f"{list(x.dims)} is too small for a kernel of {list(shape.kernel)}")
        return [(*x.dims[:-3], channels, height, width)]

    def plan(
        self,
        ctx: Context,
        x: Tensor,
        scale: float,
        zero: int,
        weight: Tensor,
        sums: Tensor,
        scales: Tensor,
        out_scale: float,
        out_zero: int,
        bias: Tensor | None,
        *args: Any,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        require_int8(x, weight, out)
        require_dtype("f32", scales, *given(bias))
        if not out.numel:
            return
        shape = self._shape(args)
        channels, group_out, group_x = self._channels(shape, x.dims, weight.dims)
        x_channels, x_height, x_width = x.dims[-3:]
        height, width = out.dims[-2:]
        buffers = {"x": "u32", "weight": "u32", "scales": "f32"} | ({"bias": "f32"} if bias is not None else {})
        declared, text = bindings(buffers, "u32"), tail(bias, shape.activation)
        reads = given(x, weight, scales, bias)
        numbers = (int(zero), float(scale), inverse_of(out_scale), float(out_zero))
        if self._is_pointwise(shape) and x_channels % 4 == 0 and height * width % 4 == 0 and weight.width % 4 == 0:
            words, channel_tiles = height * width // 4, ceil_div(channels, 4)
            tiles = math.prod(out.dims[:-3]) * channel_tiles * words
            yield Dispatch(
                kernel("int8/conv_pointwise.wgsl", "conv2d_codes_pointwise", BINDINGS=declared, TAIL=text),
                groups=ceil_div(tiles, 64),
                params=(0, *numbers, tiles, channels, channel_tiles, words, x_channels // 4, weight.width // 4),
                reads=reads,
                writes=(out,),
            )
            return
        strides = (1, weight.width) if self.depthwise else (weight.width, group_x)
        rest = (
            *(x_channels, x_height, x_width, group_x, group_out, group_out if self.transposed else channels),
            *(*strides, *shape.kernel, *shape.stride, *shape.padding, *shape.dilation),
        )
        defines = {"BINDINGS": declared, "TAIL": text, "SOURCE": TRANSPOSED if self.transposed else FORWARD}
        name = "conv2d_codes_transposed" if self.transposed else "conv2d_codes"
        if height * width % 4 == 0:
            words, tile = height * width // 4, 4 if shape.groups == 1 or group_out % 4 == 0 else 1
            channel_tiles = ceil_div(channels, tile)
            tiles = math.prod(out.dims[:-3]) * channel_tiles * words
            yield Dispatch(
                kernel("int8/conv_tile.wgsl", f"{name}_tile", TILE=tile, **defines),
                groups=ceil_div(tiles, 64),
                params=(tiles, 0, *numbers, channels, channel_tiles, words, width, *rest),
                reads=reads,
                writes=(out,),
            )
            return
        yield Dispatch(
            kernel("int8/conv.wgsl", name, **defines),
            groups=ceil_div(out.numel, 256),
            params=(out.numel, 0, *numbers, channels, height, width, *rest),
            reads=reads,
            writes=(out,),
        )

    def reference(
        self,
        x: np.ndarray,
        scale: float,
        zero: int,
        weight: np.ndarray,
        sums: np.ndarray,
        scales: np.ndarray,
        out_scale: float,
        out_zero: int,
        bias: np.ndarray | None,
        *args: Any,
    ) -> np.ndarray:
        shape = self._shape(args)
        channels, group_out, group_x = self._channels(shape, x.shape, weight.shape)
        taps = math.prod(shape.kernel)
        if self.depthwise:
            rows = np.moveaxis(weight, -1, 0).reshape(channels, taps, 1)
        else:
            rows = weight[:, : taps * group_x].reshape(channels, taps, group_x)
        values = (x.astype(np.float64) - zero).reshape(-1, *x.shape[-3:])
        height, width = values.shape[-2:]
        size = (shape.out_size(height, 0, self.transposed), shape.out_size(width, 1, self.transposed))
        total = _convolve(values, rows.astype(np.float64), shape, size, self.transposed)
        scale_of = np.resize(scales[:group_out], channels) if self.transposed else scales[:channels]
        part = None if bias is None else bias[:channels].reshape(-1, 1, 1)
        codes = requantized(total, scale, scale_of.reshape(-1, 1, 1), part, out_scale, out_zero, shape.activation)
        return codes.reshape(*x.shape[:-3], channels, *size)

    def _shape(self, args: tuple[Any, ...]) -> Shape:
        if self.transposed:
            kernel_size, stride, padding, output_padding, dilation, groups, activation = args
        else:
            kernel_size, stride, padding, dilation, groups, activation = args
            output_padding = (0, 0)
        pairs = (_pair(kernel_size), _pair(stride), _pair(padding), _pair(output_padding), _pair(dilation))
        return Shape(*pairs, groups, activation)

    def _channels(self, shape: Shape, x: Dims, weight: Dims) -> tuple[int, int, int]:
        """Output channels, output channels of a group, input channels of a group."""
        channels = weight[-1] if self.depthwise else weight[0]
        return channels, channels // shape.groups, x[-3] // shape.groups

    def _is_pointwise(self, shape: Shape) -> bool:
        plain = shape.kernel == shape.stride == shape.dilation == (1, 1) and shape.padding == (0, 0)
        return plain and shape.groups == 1 and not self.depthwise and not self.transposed


def _pair(items: Any) -> Pair:
    return (items[0], items[-1]) if isinstance(items, tuple) else (items, items)


def _convolve(x: np.ndarray, rows: np.ndarray, shape: Shape, size: Pair, transposed: bool) -> np.ndarray:
    """Sums of x [N, C, H, W] by rows [out channels, taps, channels of a group], tap by tap.

    A tap steps over `large` (the padded input, or the uncut output) and meets `small` (the output, or the input).
    """
    (batch, _, height, width), (channels, taps, group_x) = x.shape, rows.shape
    (py, px), (sy, sx), (dy, dx) = shape.padding, shape.stride, shape.dilation
    x = x.reshape(batch, shape.groups, group_x, height, width)
    weights = rows.reshape(shape.groups, channels // shape.groups, taps, group_x)
    group_out = weights.shape[1]
    small = (height, width) if transposed else size
    large = (size[0] + 2 * py, size[1] + 2 * px) if transposed else (height + 2 * py, width + 2 * px)
    canvas = np.zeros((batch, shape.groups, group_out if transposed else group_x, *large))
    total = canvas if transposed else np.zeros((batch, shape.groups, group_out, *size))
    if not transposed:
        canvas[..., py : py + height, px : px + width] = x
    for tap in range(taps):
        y, x0 = tap // shape.kernel[1] * dy, tap % shape.kernel[1] * dx
        steps = np.s_[..., y : y + (small[0] - 1) * sy + 1 : sy, x0 : x0 + (small[1] - 1) * sx + 1 : sx]
        product = np.einsum("ngchw,goc->ngohw", x if transposed else canvas[steps], weights[:, :, tap])
        total[steps if transposed else ...] += product
    if transposed:
        total = total[..., py : py + size[0], px : px + size[1]]
    return total.reshape(batch, channels, *size)


add(Conv2dCodes(), "et_vk.q8ta_conv2d.default", "et_vk.q8ta_conv2d_pw.default")
add(Conv2dCodes(depthwise=True), "et_vk.q8ta_conv2d_dw.default")
add(Conv2dCodes(transposed=True), "et_vk.q8ta_conv2d_transposed.default")
