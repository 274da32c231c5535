"""The cases of the int8 ops; see `hightide.ops.case`."""

from __future__ import annotations

from typing import Any

import numpy as np

from hightide.ops.case import Case, Const, In, fixed, floats, q4_weight, x2, x3


def q8_rows(dims: tuple[int, ...], padded: int = 0, bias: bool = True) -> tuple[Any, Any, Any, Any]:
    """(weight, sums, scales, bias) of 8-bit weights [channels, ...]; parameters are padded to 4."""
    rng = np.random.default_rng(sum(dims))
    weight = rng.integers(-127, 128, dims, dtype=np.int8)
    spare = -dims[0] % 4
    sums = np.pad(weight.reshape(dims[0], -1).sum(axis=1, dtype=np.int32), (0, spare))
    padding = [(0, 0)] * (len(dims) - 1) + [(0, padded)]
    return (
        fixed(np.pad(weight, padding)),
        fixed(sums),
        floats(dims[0] + spare, low=0.002, high=0.02),
        floats(dims[0] + spare, low=-9, high=9) if bias else None,
    )


def q8_conv(
    x: tuple[int | str, ...],
    weight: tuple[int, int, int, int],
    *settings: Any,
    bias: bool = True,
    depthwise: bool = False,
) -> tuple[Any, ...]:
    """The arguments of a convolution of codes with weights [out channels, channels of a group, height, width]."""
    out, group, height, width = weight
    rows, sums, scales, biases = q8_rows((out, height * width * group), -height * width * group % 4, bias)
    if depthwise:
        rows = Const(lambda rng: rng.integers(-127, 128, (height, width, out), dtype=np.int8))
    return (In(x, "int8", -128, 127), 0.03, 4, rows, sums, scales, 0.9, -6, biases, [height, width], *settings)


CASES = [
    # codes: floats to 8 bits and back
    Case("quantize", "quantized_decomposed.quantize_per_tensor.default", (x3, 0.05, 3, -128, 127, None), out="int8"),
    Case("quantize_unsigned", "quantized_decomposed.quantize_per_tensor.default", (x3, 0.02, 9, 0, 255, None), "uint8"),
    Case("quantize_32", "quantized_decomposed.quantize_per_tensor.default", (x3, 0.001, 7, -999, 999, None), "int32"),
    Case(
        "quantize_by_tensor",
        "quantized_decomposed.quantize_per_tensor.tensor",
        (x3, floats(1, low=0.05, high=0.1), fixed(np.array([5])), -128, 127, None),
        out="int8",
    ),
    Case(
        "dequantize",
        "quantized_decomposed.dequantize_per_tensor.default",
        (In(("B", "S", 7), "int8", -128, 127), 0.05, -3, -128, 127, None, None),
    ),
    Case(
        "dequantize_by_tensor",
        "quantized_decomposed.dequantize_per_tensor.tensor",
        (In(("S",), "int32", -999, 999), floats(low=0.05, high=0.1), fixed(np.array(5, np.int32)), 0, 0, None, None),
    ),
    Case(
        "quantize_channels",
        "quantized_decomposed.quantize_per_channel.default",
        (x3, In(("S",), low=0.02, high=0.05), In(("S",), "int32", -9, 9), 1, -127, 127, None),
        out="int8",
    ),
    Case(
        "dequantize_channels",
        "quantized_decomposed.dequantize_per_channel.default",
        (In(("S", 6, "T"), "int8", -128, 127), floats(6), None, -2, -128, 127, None, None),
    ),
    Case(
        "quantize_rows",
        "quantized_decomposed.quantize_per_token.default",
        (x3, In(("B", "S", 1), low=0.02, high=0.05), In(("B", "S", 1), "int32", -9, 9), -128, 127, None),
        out="int8",
    ),
    Case(
        "dequantize_rows",
        "quantized_decomposed.dequantize_per_token.default",
        (In(("S", 5), "int8", -128, 127), In(("S", 1)), In(("S", 1), "int32", -9, 9), -128, 127, None, None),
    ),
    Case(
        "quantize_blocks",
        "torchao.quantize_affine.default",
        (x2, [1, 4], In(("S", 3), low=0.02, high=0.05), In(("S", 3), "int8", -9, 9), None, -128, 127),
        out="int8",
    ),
    Case(
        "quantize_row_blocks",
        "torchao.quantize_affine.default",
        (x3, [1, 1, 10], In(("B", "S"), low=0.02, high=0.05), In(("B", "S"), "int8", -9, 9), None, -128, 127),
        out="int8",
    ),
    Case(
        "dequantize_one_block",
        "torchao.dequantize_affine.default",
        (In(("S", 9), "int8", -128, 127), [21, 9], floats(1), fixed(np.array([-7], np.int8)), None, -128, 127, None),
    ),
    Case(
        "choose_qparams_tensor",
        "quantized_decomposed.choose_qparams.tensor",
        (x3, -128, 127, 1e-7, None),
        out=("float32", "int32"),
        empty=False,
    ),
    Case(
        "choose_qparams_rows",
        "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
        (In(("B", "S", 70)), None),
        out=("float32", "int32"),
    ),
    # codes one by one
    Case(
        "add_codes",
        "et_vk.q8ta_add.default",
        (In(("B", "S", 7), "int8", -128, 127), In(("S", 1), "int8", -128, 127), 0.05, 5, 0.1, -4, 0.1, 7, 2.0),
        out="int8",
    ),
    Case("relu_codes", "et_vk.q8ta_relu.default", (In(("S", 7), "int8", -128, 127), 0.05, -3, 0.1, 5), out="int8"),
    Case(
        "pixel_shuffle_codes",
        "et_vk.q8ta_pixel_shuffle.default",
        (In(("B", 12, "S", "T"), "int8", -128, 127), 0.05, -3, 12.5, 5, 2),
        out="int8",
    ),
    # products of codes
    Case(
        "linear_codes",
        "et_vk.linear_q8ta_q8csw.default",
        (In(("B", "S", 32), "int8", -128, 127), 0.02, -14, *q8_rows((18, 32))),
    ),
    Case(
        "linear_codes_odd",
        "et_vk.linear_q8ta_q8csw.default",
        (In(("S", 7), "int8", -128, 127), 0.02, 6, *q8_rows((5, 7), 1, bias=False)),
    ),
    Case(
        "linear_to_codes",
        "et_vk.q8ta_linear.default",
        (
            In(("B", "S", 16), "int8", -128, 127),
            0.02,
            -14,
            *q8_rows((12, 16))[:3],
            0.05,
            9,
            q8_rows((12, 16))[3],
            "none",
        ),
        out="int8",
    ),
    Case(
        "linear_to_codes_odd",
        "et_vk.q8ta_linear.default",
        (In(("S", 9), "int8", -128, 127), 0.02, -14, *q8_rows((7, 9))[:3], 0.05, 9, q8_rows((7, 9))[3], "relu"),
        out="int8",
    ),
    Case(
        "linear_to_codes_gemv",
        "et_vk.q8ta_linear_gemv.default",
        (In((1, 20), "int8", -128, 127), 0.02, 1, *q8_rows((8, 20))[:3], 0.05, 9, None, "relu"),
        out="int8",
    ),
    Case("linear_int8", "aten._weight_int8pack_mm.default", (x3, *q8_rows((9, 10))[::2])),
    Case("linear_int8_wide", "aten._weight_int8pack_mm.default", (In(("S", 40)), *q8_rows((9, 40))[::2])),
    Case("linear_int4", "et_vk.linear_qcs4w.default", (In(("B", "S", 24)), *q4_weight(10, 24, 24)[:1], floats(10))),
    Case("linear_int4_odd", "et_vk.linear_qcs4w.default", (In(("S", 13)), *q4_weight(6, 14, 14)[:1], floats(6))),
    Case(
        "conv_codes",
        "et_vk.q8ta_conv2d.default",
        q8_conv(("B", 5, "S", "T"), (6, 5, 3, 3), [1, 1], [1, 1], [1, 1], 1, "none"),
        out="int8",
        empty=False,
    ),
    Case(
        "conv_codes_groups",
        "et_vk.q8ta_conv2d.default",
        q8_conv(("S", 6, "T", 9), (8, 3, 2, 3), [2, 1], [1, 2], [1, 2], 2, "relu", bias=False),
        out="int8",
    ),
    Case(
        "conv_codes_pointwise",
        "et_vk.q8ta_conv2d_pw.default",
        q8_conv(("B", 8, "S", "T"), (6, 8, 1, 1), [1, 1], [0, 0], [1, 1], 1, "none"),
        out="int8",
        empty=False,
    ),
    Case(
        "conv_codes_pointwise_words",
        "et_vk.q8ta_conv2d_pw.default",
        q8_conv(("S", 12, 4, 3), (10, 12, 1, 1), [1, 1], [0, 0], [1, 1], 1, "relu"),
        out="int8",
    ),
    Case(
        "conv_codes_depthwise",
        "et_vk.q8ta_conv2d_dw.default",
        q8_conv(("B", 8, "S", "T"), (8, 1, 3, 3), [1, 2], [1, 1], [1, 1], 8, "none", depthwise=True),
        out="int8",
        empty=False,
    ),
    Case(
        "conv_codes_transposed",
        "et_vk.q8ta_conv2d_transposed.default",
        q8_conv(("B", 5, "S", "T"), (6, 5, 3, 2), [2, 1], [1, 0], [1, 0], [1, 1], 1, "none"),
        out="int8",
        empty=False,
    ),
    Case(
        "conv_codes_transposed_groups",
        "et_vk.q8ta_conv2d_transposed.default",
        q8_conv(("S", 6, 3, "T"), (8, 3, 3, 3), [1, 2], [1, 1], [0, 1], [1, 1], 2, "relu"),
        out="int8",
    ),
]
