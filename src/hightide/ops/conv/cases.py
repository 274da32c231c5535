"""The cases of the conv ops; see `hightide.ops.case`."""

from __future__ import annotations

from typing import Any

from hightide.ops.case import Case, In, floats


def conv(
    name: str,
    x: tuple[int | str, ...],
    weight: tuple[int, ...],
    stride: int | list[int] = 1,
    padding: int | list[int] = 0,
    dilation: int | list[int] = 1,
    groups: int = 1,
    bias: bool = True,
    output_padding: int | list[int] | None = None,
) -> Case:
    """A case of a convolution, transposed if there is an output_padding; only its batch may be 0."""
    spread: list[Any] = [
        [v] * (len(weight) - 2) if isinstance(v, int) else v for v in (stride, padding, dilation, output_padding or 0)
    ]
    transposed = output_padding is not None
    biases = floats(weight[1] * groups if transposed else weight[0]) if bias else None
    args = (In(x), floats(*weight), biases, *spread[:3], transposed, spread[3], groups)
    return Case(name, "aten.convolution.default", args, empty="S" not in x[2:])


def clamped(case: Case, low: float, high: float | None) -> Case:
    return Case(case.name, "et_vk.conv_with_clamp.default", (*case.args, low, high), empty=case.empty)


CASES = [
    conv("conv2d", ("B", 5, "S", "T"), (7, 5, 3, 3), padding=1),
    conv("conv2d_batch", ("S", 3, 6, 5), (4, 3, 3, 2), stride=2),
    conv("conv2d_odd", ("B", 3, "S", "T"), (6, 3, 2, 3), [2, 1], [1, 2], [1, 2], bias=False),
    conv("conv2d_patches", ("B", 3, 16, 8), (10, 3, 4, 4), stride=4),
    conv("conv2d_groups", ("B", 6, "S", "T"), (9, 2, 3, 3), 1, 1, groups=3),
    conv("conv2d_depthwise", ("B", 5, "S", "T"), (5, 1, 3, 3), 1, 1, groups=5),
    conv("conv2d_depthwise_twice", ("B", 3, "S", "T"), (6, 1, 5, 3), 2, 2, groups=3, bias=False),
    conv("conv2d_pointwise", ("B", 8, "S", 4), (6, 8, 1, 1)),
    conv("conv2d_pointwise_batch", ("S", 12, 6, 6), (9, 12, 1, 1), bias=False),
    conv("conv2d_pointwise_long", (1, 12, 4, "S"), (9, 12, 1, 1)),
    conv("conv2d_pointwise_odd", ("B", 5, "S", "T"), (4, 5, 1, 1)),
    conv("conv2d_pointwise_stride", ("B", 8, "S", "T"), (4, 8, 1, 1), 2),
    conv("conv1d", ("B", 4, "S"), (6, 4, 3), padding=1),
    conv("conv1d_dilated", ("B", 4, "S"), (6, 2, 3), 2, 3, 3, groups=2),
    conv("conv1d_depthwise", ("B", 4, "S"), (4, 1, 4), 1, 2, groups=4),
    conv("conv1d_pointwise", ("B", 4, "S"), (6, 4, 1)),
    conv("conv2d_transposed", ("B", 5, "S", "T"), (5, 6, 3, 2), 2, [1, 0], output_padding=1),
    conv("conv2d_transposed_groups", ("B", 6, "S", "T"), (6, 2, 3, 4), [3, 1], 1, [2, 1], 3, False, output_padding=0),
    conv("conv2d_transposed_depthwise", ("S", 4, 3, 5), (4, 1, 4, 4), 2, 1, groups=4, output_padding=0),
    conv("conv1d_transposed", ("B", 3, "S"), (3, 5, 4), 2, 1, output_padding=0),
    clamped(conv("conv_with_clamp", ("B", 5, "S", "T"), (7, 5, 3, 3), padding=1), 0, 6),
    clamped(conv("conv_with_clamp_relu", ("S", 5, 3, 4), (5, 1, 2, 2), groups=5), 0.0, 1.7976931348623157e308),
    clamped(conv("conv_with_clamp_pointwise", ("S", 8, 3, 4), (6, 8, 1, 1)), -1.5, None),
]
