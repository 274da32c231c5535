"""The cases of the conv ops; see `hightide.ops.case`."""

from __future__ import annotations

from typing import Any

from hightide.ops.case import Case, In, floats


def conv(
    x: tuple[int | str, ...],
    weight: tuple[int, ...],
    stride: int | list[int] = 1,
    padding: int | list[int] = 0,
    dilation: int | list[int] = 1,
    groups: int = 1,
    bias: bool = True,
    transposed: bool = False,
    output_padding: int | list[int] = 0,
) -> tuple[Any, ...]:
    """The arguments of a convolution."""
    spread = [[v] * (len(weight) - 2) if isinstance(v, int) else v for v in (stride, padding, dilation, output_padding)]
    channels = weight[1] * groups if transposed else weight[0]
    return (In(x), floats(*weight), floats(channels) if bias else None, *spread[:3], transposed, spread[3], groups)


CASES = [
    Case("conv2d", "aten.convolution.default", conv(("B", 5, "S", "T"), (7, 5, 3, 3), padding=1), empty=False),
    Case("conv2d_batch", "aten.convolution.default", conv(("S", 3, 6, 5), (4, 3, 3, 2), stride=2)),
    Case(
        "conv2d_odd",
        "aten.convolution.default",
        conv(("B", 3, "S", "T"), (6, 3, 2, 3), [2, 1], [1, 2], [1, 2], bias=False),
        empty=False,
    ),
    Case("conv2d_patches", "aten.convolution.default", conv(("B", 3, 16, 8), (10, 3, 4, 4), stride=4)),
    Case(
        "conv2d_groups", "aten.convolution.default", conv(("B", 6, "S", "T"), (9, 2, 3, 3), 1, 1, groups=3), empty=False
    ),
    Case(
        "conv2d_depthwise",
        "aten.convolution.default",
        conv(("B", 5, "S", "T"), (5, 1, 3, 3), 1, 1, groups=5),
        empty=False,
    ),
    Case(
        "conv2d_depthwise_twice",
        "aten.convolution.default",
        conv(("B", 3, "S", "T"), (6, 1, 5, 3), 2, 2, groups=3, bias=False),
        empty=False,
    ),
    Case("conv2d_pointwise", "aten.convolution.default", conv(("B", 8, "S", 4), (6, 8, 1, 1)), empty=False),
    Case("conv2d_pointwise_batch", "aten.convolution.default", conv(("S", 12, 6, 6), (9, 12, 1, 1), bias=False)),
    Case("conv2d_pointwise_long", "aten.convolution.default", conv((1, 12, 4, "S"), (9, 12, 1, 1)), empty=False),
    Case("conv2d_pointwise_odd", "aten.convolution.default", conv(("B", 5, "S", "T"), (4, 5, 1, 1)), empty=False),
    Case("conv2d_pointwise_stride", "aten.convolution.default", conv(("B", 8, "S", "T"), (4, 8, 1, 1), 2), empty=False),
    Case("conv1d", "aten.convolution.default", conv(("B", 4, "S"), (6, 4, 3), padding=1), empty=False),
    Case("conv1d_dilated", "aten.convolution.default", conv(("B", 4, "S"), (6, 2, 3), 2, 3, 3, groups=2), empty=False),
    Case("conv1d_depthwise", "aten.convolution.default", conv(("B", 4, "S"), (4, 1, 4), 1, 2, groups=4), empty=False),
    Case("conv1d_pointwise", "aten.convolution.default", conv(("B", 4, "S"), (6, 4, 1)), empty=False),
    Case(
        "conv2d_transposed",
        "aten.convolution.default",
        conv(("B", 5, "S", "T"), (5, 6, 3, 2), 2, [1, 0], output_padding=1, transposed=True),
        empty=False,
    ),
    Case(
        "conv2d_transposed_groups",
        "aten.convolution.default",
        conv(("B", 6, "S", "T"), (6, 2, 3, 4), [3, 1], 1, [2, 1], groups=3, transposed=True, bias=False),
        empty=False,
    ),
    Case(
        "conv2d_transposed_depthwise",
        "aten.convolution.default",
        conv(("S", 4, 3, 5), (4, 1, 4, 4), 2, 1, groups=4, transposed=True),
    ),
    Case(
        "conv1d_transposed",
        "aten.convolution.default",
        conv(("B", 3, "S"), (3, 5, 4), 2, 1, transposed=True),
        empty=False,
    ),
    Case(
        "conv_with_clamp",
        "et_vk.conv_with_clamp.default",
        (*conv(("B", 5, "S", "T"), (7, 5, 3, 3), padding=1), 0, 6),
        empty=False,
    ),
    Case(
        "conv_with_clamp_relu",
        "et_vk.conv_with_clamp.default",
        (*conv(("S", 5, 3, 4), (5, 1, 2, 2), groups=5), 0.0, 1.7976931348623157e308),
    ),
    Case(
        "conv_with_clamp_pointwise",
        "et_vk.conv_with_clamp.default",
        (*conv(("S", 8, 3, 4), (6, 8, 1, 1)), -1.5, None),
    ),
]
