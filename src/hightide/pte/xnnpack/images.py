"""Convolutions, pools and resizing: NHWC in XNNPACK, NCHW in hightide."""

from __future__ import annotations

from math import inf

import numpy as np

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.xnngraph import XnnNode
from hightide.graph.values import TensorValue
from hightide.pte.xnnpack.elements import Translate
from hightide.pte.xnnpack.products import rows_of
from hightide.pte.xnnpack.tensors import NHWC, Tensors

TENSORFLOW, ALIGN_CORNERS = 4, 8  # flags: what padding or rounding TensorFlow would have chosen; corners stay corners
CHANNELS_FIRST = (0, 3, 1, 2)  # a permutation of NHWC


def convolution(t: Tensors, node: XnnNode) -> None:
    _check(t, node)
    numbers = node.numbers
    transposed = node.kind == "ConvTranspose2d"
    groups = numbers["groups"]
    weight = _filter(t, node, groups)
    bias = t.plain(node.ids["bias"]) if "bias" in node.ids else None
    x = rows_of(t, node, NHWC)  # as NCHW
    padding = _padding(node)
    if padding is None:
        if transposed:
            raise UnsupportedError("a transposed convolution that crops one side more is not supported")
        x, padding = _padded(t, node, x, 0.0), (0, 0)
    arguments = (
        x,
        weight,
        bias,
        (numbers["subsampling_height"], numbers["subsampling_width"]),
        padding,
        (numbers["dilation_height"], numbers["dilation_width"]),
        transposed,
        (numbers["adjustment_height"], numbers["adjustment_width"]) if transposed else (0, 0),
        groups,
    )
    out = t.result(node, NHWC)
    if node.limits is None:
        t.give(node, t.call("aten.convolution.default", *arguments, out=out), NHWC)
    else:
        t.give(node, t.call("et_vk.conv_with_clamp.default", *arguments, *node.limits, out=out), NHWC, clamped=True)


def _filter(t: Tensors, node: XnnNode, groups: int) -> TensorValue:
    """The weight as torch has it: [O, I / groups, H, W], of a transposed convolution [I, O / groups, H, W]."""
    id, dims = t.id(node, "filter"), t.value(node, "filter").dims
    if len(dims) != 4 or not all(dims):
        raise ProgramError(f"{node}: {list(dims)} are not the dims of a filter")
    first, height, width, last = dims
    if node.kind == "DepthwiseConv2d":  # [1, H, W, O]
        return t.constant(id, (last, first, height, width), lambda a: np.transpose(a, (3, 0, 1, 2)))
    if node.kind == "Conv2d":  # [O, H, W, I / groups]
        return t.constant(id, (first, last, height, width), lambda a: np.transpose(a, CHANNELS_FIRST))
    if groups < 1 or first % groups:
        raise ProgramError(f"{node}: {first} channels are not {groups} groups")

    def arrange(a: np.ndarray) -> np.ndarray:  # [O, H, W, I / groups]
        grouped = a.reshape(groups, first // groups, height, width, last)
        return np.transpose(grouped, (0, 4, 1, 2, 3)).reshape(groups * last, first // groups, height, width)

    return t.constant(id, (groups * last, first // groups, height, width), arrange)


def max_pool(t: Tensors, node: XnnNode) -> None:
    _check(t, node)
    x, padding, numbers = t.ordered(t.id(node, "input"), NHWC), _padding(node), node.numbers
    if padding is None:
        x, padding = _padded(t, node, x, -inf), (0, 0)
    dilation = numbers["dilation_height"], numbers["dilation_width"]
    arguments = (*_windows(node), padding, dilation, False)
    t.moved(node, t.call("aten.max_pool2d.default", x, *arguments, out=t.result(node, NHWC)), NHWC)


def average_pool(t: Tensors, node: XnnNode) -> None:
    _check(t, node)
    padding = _padding(node)
    if padding is None:
        raise UnsupportedError("an average over windows with more padding on one side is not supported")
    x = t.ordered(t.id(node, "input"), NHWC)
    out = t.result(node, NHWC)
    t.give(node, t.call("aten.avg_pool2d.default", x, *_windows(node), padding, False, False, out=out), NHWC)


def global_average(t: Tensors, node: XnnNode) -> None:
    _check(t, node, output=False)
    keeps = len(t.value(node, "output").dims) == 4
    order = NHWC if keeps else None
    x = t.ordered(t.id(node, "input"), NHWC)
    t.give(node, t.call("aten.mean.dim", x, (2, 3), keeps, out=t.result(node, order)), order)


def resize(t: Tensors, node: XnnNode) -> None:
    _check(t, node)
    size = node.numbers["new_height"], node.numbers["new_width"]
    x = t.ordered(t.id(node, "input"), NHWC)
    corners = bool(node.numbers["flags"] & ALIGN_CORNERS)
    out = t.result(node, NHWC)
    t.give(node, t.call("aten.upsample_bilinear2d.vec", x, size, corners, None, out=out), NHWC)


def _check(t: Tensors, node: XnnNode, output: bool = True) -> None:
    for name in ("input", "output") if "input" in node.ids else ("output",):
        dims = t.value(node, name).dims
        if len(dims) != 4 and (output or name == "input"):
            raise ProgramError(f"{node}: {list(dims)} are not the dims of images")
    if node.numbers["flags"] & TENSORFLOW:
        raise UnsupportedError("TensorFlow's padding and legacy modes are not supported")


def _windows(node: XnnNode) -> tuple[tuple[int, int], tuple[int, int]]:
    """Their size and stride."""
    numbers = node.numbers
    size = numbers["pooling_height"], numbers["pooling_width"]
    return size, (numbers["stride_height"], numbers["stride_width"])


def _padding(node: XnnNode) -> tuple[int, int] | None:
    """(height, width), if it is the same on both sides."""
    numbers = node.numbers
    height, width = numbers["padding_top"], numbers["padding_left"]
    same = (numbers["padding_bottom"], numbers["padding_right"]) == (height, width)
    return (height, width) if same else None


def _padded(t: Tensors, node: XnnNode, x: TensorValue, value: float) -> TensorValue:
    pads = tuple(node.numbers[f"padding_{side}"] for side in ("left", "right", "top", "bottom"))
    left, right, top, bottom = pads
    out = t.tensor((*x.dims[:2], x.dims[2] + top + bottom, x.dims[3] + left + right), x.dtype)
    return t.call("aten.constant_pad_nd.default", x, pads, value, out=out)


IMAGES: dict[str, Translate] = {
    **dict.fromkeys(("Conv2d", "DepthwiseConv2d", "ConvTranspose2d"), convolution),
    "MaxPooling2d": max_pool,
    "AvgPooling2d": average_pool,
    "GlobalAvgPooling2d": global_average,
    "StaticResizeBilinear2D": resize,
}
