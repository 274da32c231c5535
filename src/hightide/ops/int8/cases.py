"""The cases of the int8 ops; see `hightide.ops.case`."""

from __future__ import annotations

from typing import Any

import numpy as np

from hightide.ops.case import Case, Const, In, fixed, floats, q4_weight, x2, x3

DECOMPOSED = "quantized_decomposed."
BYTES = (-128, 127, None)  # the range and type of 8-bit codes


def codes(*dims: int | str) -> In:
    return In(dims, "int8", -128, 127)


def scales(*dims: int | str) -> In:
    return In(dims, low=0.02, high=0.05)


def zeros(*dims: int | str, dtype: str = "int32") -> In:
    return In(dims, dtype, -9, 9)


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


def to_codes(x: In, zero: int, dims: tuple[int, int], activation: str, bias: bool = True) -> tuple[Any, ...]:
    """The arguments of a linear of codes, to codes."""
    *rows, biases = q8_rows(dims, bias=bias)
    return (x, 0.02, zero, *rows, 0.05, 9, biases, activation)


def conv_codes(name: str, x: In, weight: tuple[int, int, int, int], *settings: Any, bias: bool = True) -> Case:
    """A convolution of codes with weights [out channels, channels of a group, height, width]; `name` says its form."""
    out, group, height, width = weight
    rows, sums, scale, biases = q8_rows((out, height * width * group), -height * width * group % 4, bias)
    if "depthwise" in name:
        rows = Const(lambda rng: rng.integers(-127, 128, (height, width, out), dtype=np.int8))
    forms = {"pointwise": "_pw", "depthwise": "_dw", "transposed": "_transposed"}
    form = next((op for word, op in forms.items() if word in name), "")
    args = (x, 0.03, 4, rows, sums, scale, 0.9, -6, biases, [height, width], *settings)
    return Case(name, f"et_vk.q8ta_conv2d{form}.default", args, out="int8", empty="S" not in x.dims[2:])


CASES = [
    # codes: floats to 8 bits and back
    Case("quantize", f"{DECOMPOSED}quantize_per_tensor.default", (x3, 0.05, 3, *BYTES), out="int8"),
    Case("quantize_unsigned", f"{DECOMPOSED}quantize_per_tensor.default", (x3, 0.02, 9, 0, 255, None), out="uint8"),
    Case("quantize_32", f"{DECOMPOSED}quantize_per_tensor.default", (x3, 0.001, 7, -999, 999, None), out="int32"),
    Case(
        "quantize_by_tensor",
        f"{DECOMPOSED}quantize_per_tensor.tensor",
        (x3, floats(1, low=0.05, high=0.1), fixed(np.array([5])), *BYTES),
        out="int8",
    ),
    Case(
        "dequantize",
        f"{DECOMPOSED}dequantize_per_tensor.default",
        (codes("B", "S", 7), 0.05, -3, *BYTES, None),
    ),
    Case(
        "dequantize_by_tensor",
        f"{DECOMPOSED}dequantize_per_tensor.tensor",
        (In(("S",), "int32", -999, 999), floats(low=0.05, high=0.1), fixed(np.array(5, np.int32)), 0, 0, None, None),
    ),
    Case(
        "quantize_channels",
        f"{DECOMPOSED}quantize_per_channel.default",
        (x3, scales("S"), zeros("S"), 1, -127, 127, None),
        out="int8",
    ),
    Case(
        "dequantize_channels",
        f"{DECOMPOSED}dequantize_per_channel.default",
        (codes("S", 6, "T"), floats(6), None, -2, *BYTES, None),
    ),
    Case(
        "quantize_rows",
        f"{DECOMPOSED}quantize_per_token.default",
        (x3, scales("B", "S", 1), zeros("B", "S", 1), *BYTES),
        out="int8",
    ),
    Case(
        "dequantize_rows",
        f"{DECOMPOSED}dequantize_per_token.default",
        (codes("S", 5), In(("S", 1)), zeros("S", 1), *BYTES, None),
    ),
    Case(
        "quantize_blocks",
        "torchao.quantize_affine.default",
        (x2, [1, 4], scales("S", 3), zeros("S", 3, dtype="int8"), None, -128, 127),
        out="int8",
    ),
    Case(
        "quantize_row_blocks",
        "torchao.quantize_affine.default",
        (x3, [1, 1, 10], scales("B", "S"), zeros("B", "S", dtype="int8"), None, -128, 127),
        out="int8",
    ),
    Case(
        "dequantize_one_block",
        "torchao.dequantize_affine.default",
        (codes("S", 9), [21, 9], floats(1), fixed(np.array([-7], np.int8)), None, *BYTES),
    ),
    Case(
        "choose_qparams_tensor",
        f"{DECOMPOSED}choose_qparams.tensor",
        (x3, -128, 127, 1e-7, None),
        out=("float32", "int32"),
        empty=False,
    ),
    Case(
        "choose_qparams_rows",
        f"{DECOMPOSED}choose_qparams_per_token_asymmetric.default",
        (In(("B", "S", 70)), None),
        out=("float32", "int32"),
    ),
    # codes one by one
    Case(
        "add_codes",
        "et_vk.q8ta_add.default",
        (codes("B", "S", 7), codes("S", 1), 0.05, 5, 0.1, -4, 0.1, 7, 2.0),
        out="int8",
    ),
    Case("relu_codes", "et_vk.q8ta_relu.default", (codes("S", 7), 0.05, -3, 0.1, 5), out="int8"),
    Case(
        "pixel_shuffle_codes",
        "et_vk.q8ta_pixel_shuffle.default",
        (codes("B", 12, "S", "T"), 0.05, -3, 12.5, 5, 2),
        out="int8",
    ),
    # products of codes
    Case("linear_codes", "et_vk.linear_q8ta_q8csw.default", (codes("B", "S", 32), 0.02, -14, *q8_rows((18, 32)))),
    Case(
        "linear_codes_odd",
        "et_vk.linear_q8ta_q8csw.default",
        (codes("S", 7), 0.02, 6, *q8_rows((5, 7), 1, bias=False)),
    ),
    Case(
        "linear_to_codes", "et_vk.q8ta_linear.default", to_codes(codes("B", "S", 16), -14, (12, 16), "none"), out="int8"
    ),
    Case("linear_to_codes_odd", "et_vk.q8ta_linear.default", to_codes(codes("S", 9), -14, (7, 9), "relu"), out="int8"),
    Case(
        "linear_to_codes_gemv",
        "et_vk.q8ta_linear_gemv.default",
        to_codes(codes(1, 20), 1, (8, 20), "relu", bias=False),
        out="int8",
    ),
    Case("linear_int8", "aten._weight_int8pack_mm.default", (x3, *q8_rows((9, 10))[::2])),
    Case("linear_int8_wide", "aten._weight_int8pack_mm.default", (In(("S", 40)), *q8_rows((9, 40))[::2])),
    Case("linear_int4", "et_vk.linear_qcs4w.default", (In(("B", "S", 24)), *q4_weight(10, 24, 24)[:1], floats(10))),
    Case("linear_int4_odd", "et_vk.linear_qcs4w.default", (In(("S", 13)), *q4_weight(6, 14, 14)[:1], floats(6))),
    # kernel: stride, padding, (output padding,) dilation, groups, activation
    conv_codes("conv_codes", codes("B", 5, "S", "T"), (6, 5, 3, 3), [1, 1], [1, 1], [1, 1], 1, "none"),
    conv_codes("conv_codes_groups", codes("S", 6, "T", 9), (8, 3, 2, 3), [2, 1], [1, 2], [1, 2], 2, "relu", bias=False),
    conv_codes("conv_codes_pointwise", codes("B", 8, "S", "T"), (6, 8, 1, 1), [1, 1], [0, 0], [1, 1], 1, "none"),
    conv_codes("conv_codes_pointwise_words", codes("S", 12, 4, 3), (10, 12, 1, 1), [1, 1], [0, 0], [1, 1], 1, "relu"),
    conv_codes("conv_codes_depthwise", codes("B", 8, "S", "T"), (8, 1, 3, 3), [1, 2], [1, 1], [1, 1], 8, "none"),
    conv_codes(
        "conv_codes_transposed", codes("B", 5, "S", "T"), (6, 5, 3, 2), [2, 1], [1, 0], [1, 0], [1, 1], 1, "none"
    ),
    conv_codes(
        "conv_codes_transposed_groups", codes("S", 6, 3, "T"), (8, 3, 3, 3), [1, 2], [1, 1], [0, 1], [1, 1], 2, "relu"
    ),
]
