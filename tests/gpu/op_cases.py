"""One table of op cases: adding an op adds rows.

A dim given as a letter is live: it runs at its max, at 1 and at odd sizes, from one built session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MAX = {"S": 21, "T": 9, "B": 3, "P": 40}  # the max of each live dim; P is a position in a context of 64
CONTEXT = 64


@dataclass(frozen=True)
class In:
    """An input tensor; `low`..`high` bound its values (integers: inclusive)."""

    dims: tuple[int | str, ...]
    dtype: str = "float32"
    low: float = -3
    high: float = 3


@dataclass(frozen=True)
class Const:
    make: Callable[[np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Size:
    """A SymInt: the live dim `dim` of argument number `arg`, plus `plus`."""

    arg: int
    dim: int
    plus: int = 0


@dataclass(frozen=True)
class Pos:
    """A SymInt read from an input: the position P, plus the live dim `plus`, if any."""

    plus: str = ""


@dataclass(frozen=True)
class Case:
    name: str
    op: str
    args: tuple[Any, ...]
    out: str | tuple[str, ...] = "float32"  # the type of the output, or of each
    dims: list[tuple[int, ...]] | None = None  # max dims of the outputs, where the args do not give them
    tolerance: float = 2e-6  # of the range of the expected values
    empty: bool = True  # also runs with the first live dim at 0
    extra: dict[str, Any] = field(default_factory=dict)


def floats(*dims: int, low: float = -2, high: float = 2) -> Const:
    return Const(lambda rng: rng.uniform(low, high, dims).astype(np.float32))


def q4_weight(n: int, k: int, group: int, bias: bool = False, padded: int = 0) -> tuple[Any, ...]:
    """(weight, scales, group, bias) of a 4-bit linear."""
    return (
        Const(lambda rng: rng.integers(0, 256, (n, (k + padded) // 2), dtype=np.uint8)),
        floats(-(-k // group), n, low=0.01, high=0.1),
        group,
        floats(n) if bias else None,
    )


def q4_table(rows: int, width: int, group: int) -> tuple[Any, ...]:
    return (
        Const(lambda rng: rng.integers(0, 256, (rows, width // 2), dtype=np.uint8)),
        floats(rows, width // group, low=0.01, high=0.1),
        group,
    )


def attention(
    heads: int, kv_heads: int, depth: int, scale: float | None = None, causal: bool = True
) -> tuple[Any, ...]:
    """The arguments of sdpa_with_kv_cache at a live position."""
    cache = Const(lambda rng: np.zeros((1, CONTEXT, kv_heads, depth), np.float32))
    kv = In((1, "S", kv_heads, depth))
    return (In((1, "S", heads, depth)), kv, kv, cache, cache, Pos(), 1, None, 0.0, causal, scale)


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


def fixed(array: np.ndarray) -> Const:
    return Const(lambda rng: array)


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


x2, x3 = In(("S", 12)), In(("B", "S", 10))
positive = In(("S", 7), low=0.1, high=4)
image = In(("B", 4, "S", "T"))

CASES = [
    # views
    Case("view_merge", "aten.view_copy.default", (x3, [-1, 10])),
    Case("view_symint", "aten.view_copy.default", (In((1, "S", 12)), [1, Size(0, 1), 3, 4])),
    Case("view_two_live", "aten.view_copy.default", (x3, [Size(0, 1), Size(0, 0), 10]), empty=False),
    Case("view_minus_one", "aten.view_copy.default", (In(("S", 4, 3)), [Size(0, 0), -1]), empty=False),
    Case("squeeze", "aten.squeeze_copy.dims", (In(("S", 1, 5, 1)), [1, 3])),
    Case("squeeze_live", "aten.squeeze_copy.dims", (In(("S", 1, 5)), [0, 1])),
    Case("unsqueeze", "aten.unsqueeze_copy.default", (x2, -1)),
    Case("clone", "aten.clone.default", (x3, None)),
    # movement
    Case("permute", "aten.permute_copy.default", (In(("B", "S", 3, 5)), [0, 2, 1, 3])),
    Case("permute_last", "aten.permute_copy.default", (x3, [2, 0, 1])),
    Case("transpose", "aten.t_copy.default", (x2,)),
    Case("slice_literal", "aten.slice_copy.Tensor", (In(("S", 12)), 1, 2, -1, 3)),
    Case("slice_all", "aten.slice_copy.Tensor", (x2, 0, None, 2**63 - 1, 1)),
    Case("slice_tail", "aten.slice_copy.Tensor", (x2, 0, -3, None, 1), dims=[(3, 12)]),
    Case("slice_position", "aten.slice_copy.Tensor", (floats(CONTEXT, 6), 0, Pos(), Pos("S"), 1), dims=[(21, 6)]),
    Case("select_last", "aten.select_copy.int", (x3, 1, -1), empty=False),
    Case("select_first", "aten.select_copy.int", (x3, 0, 0), empty=False),
    Case("expand", "aten.expand_copy.default", (In((1, "S", 1)), [4, -1, 6])),
    Case("expand_live", "aten.expand_copy.default", (In((1, 5)), [Size(2, 0), 5], x2)),
    Case("repeat", "aten.repeat.default", (x2, [2, 1, 3])),
    Case("cat", "aten.cat.default", ([In(("S", 5)), In(("T", 5)), floats(2, 5)], 0)),
    Case("cat_inner", "aten.cat.default", ([In(("S", 5)), In(("S", 3))], -1)),
    Case("split", "aten.split_with_sizes_copy.default", (In(("S", 12)), [3, 4, 5], 1)),
    Case("flip", "aten.flip.default", (x3, [0, 2])),
    Case("bytes_slice", "aten.slice_copy.Tensor", (In(("S", 9), "bool"), 1, 1, 8, 2), out="bool"),
    Case("bytes_permute", "aten.permute_copy.default", (In(("S", 9), "bool"), [1, 0]), out="bool"),
    # elementwise
    Case("add", "aten.add.Tensor", (x3, In(("B", "S", 10)), 1)),
    Case("add_alpha", "aten.add.Tensor", (x2, x2, -0.5)),
    Case("add_row", "aten.add.Tensor", (x3, floats(10), 1)),
    Case("add_column", "aten.add.Tensor", (x3, In(("S", 1)), 2)),
    Case("add_ints", "aten.add.Tensor", (In(("S",), "int32", -9, 9), In((1,), "int32", -9, 9), 3), out="int32"),
    Case("sub", "aten.sub.Tensor", (x2, floats(12), 1)),
    Case("mul_scalar_tensor", "aten.mul.Tensor", (x3, floats())),
    Case("mul_outer", "aten.mul.Tensor", (In(("S", 1)), In((1, "T")))),
    Case("div", "aten.div.Tensor", (x2, floats(12, low=0.5, high=3))),
    Case("div_floor", "aten.div.Tensor_mode", (x2, floats(12, low=0.6, high=0.7), "floor")),
    Case("minimum", "aten.minimum.default", (x2, floats(12))),
    Case("sigmoid", "aten.sigmoid.default", (In(("S", 7), low=-30, high=30),)),
    Case("silu", "aten.silu.default", (x2,)),
    Case("relu", "aten.relu.default", (x3,)),
    Case("exp", "aten.exp.default", (x2,)),
    Case("rsqrt", "aten.rsqrt.default", (positive,)),
    Case("tanh", "aten.tanh.default", (In(("S", 5), low=-90, high=90),), tolerance=1e-5),
    Case("cos", "aten.cos.default", (x2,), tolerance=1e-5),
    Case("pow", "aten.pow.Tensor_Scalar", (x2, 3.0), tolerance=1e-5),
    Case("gelu", "aten.gelu.default", (In(("S", 6), low=-9, high=9), "none")),
    Case("gelu_tanh", "aten.gelu.default", (In(("S", 6), low=-9, high=9), "tanh"), tolerance=1e-5),
    Case("silu_mul", "hightide.silu_mul.default", (x3, x3)),
    Case("gelu_mul", "hightide.gelu_mul.default", (x3, x3), tolerance=1e-5),
    Case("neg", "aten.neg.default", (x2,)),
    Case("clamp", "aten.clamp.default", (x2, -1.0, None)),
    Case("gt", "aten.gt.Scalar", (x3, 0.5), out="bool"),
    Case("eq_ints", "aten.eq.Tensor", (In(("S", 3), "int32", 0, 2), In((3,), "int32", 0, 2)), out="bool"),
    Case("where", "aten.where.self", (In(("S", 5), "bool"), In(("S", 5)), floats())),
    Case("logical_and", "aten.logical_and.default", (In(("S", 5), "bool"), In((5,), "bool")), out="bool"),
    Case("to_float", "aten._to_copy.default", (In(("S", 5), "int32", -9, 9),)),
    Case("to_int", "aten._to_copy.default", (In(("S", 5)),), out="int32"),
    Case("to_bool", "aten._to_copy.default", (In(("S", 5), "int32", -1, 1),), out="bool"),
    # norm and softmax
    Case("rms_norm", "et_vk.rms_norm.default", (In((1, "S", 64)), floats(64), 1e-5)),
    Case("rms_norm_odd", "et_vk.rms_norm.default", (In(("B", "S", 67)), floats(67), 1e-6)),
    Case("rms_norm_wide", "et_vk.rms_norm.default", (In(("S", 1028)), floats(1028), 1e-6)),
    Case("softmax", "aten._softmax.default", (x3, -1, False)),
    Case("softmax_live", "aten._softmax.default", (In(("B", 2, "S", "S")), -1, False)),
    Case("softmax_middle", "aten._softmax.default", (x3, 1, False), empty=False),
    Case("log_softmax", "aten._log_softmax.default", (In(("S", 130)), -1, False)),
    # products
    Case("q4", "et_vk.linear_q4gsw.default", (In((1, "S", 64)), *q4_weight(24, 64, 32))),
    Case("q4_bias", "et_vk.linear_q4gsw.default", (In(("S", 128)), *q4_weight(33, 128, 64, bias=True))),
    Case("q4_one_group", "et_vk.linear_q4gsw.default", (In(("S", 96)), *q4_weight(7, 96, 96))),
    Case("q4_small_group", "et_vk.linear_q4gsw.default", (In(("S", 48)), *q4_weight(10, 48, 8, bias=True))),
    Case("q4_odd_row", "et_vk.linear_q4gsw.default", (In(("B", "S", 20)), *q4_weight(5, 20, 4))),
    Case("q4_padded_row", "et_vk.linear_q4gsw.default", (In(("S", 40)), *q4_weight(6, 40, 20, padded=24))),
    Case("linear", "aten.linear.default", (In((1, "S", 32)), floats(19, 32), floats(19))),
    Case("linear_odd", "aten.linear.default", (In(("B", "S", 31)), floats(6, 31), None)),
    Case("linear_odd_bias", "aten.linear.default", (In(("S", 9)), floats(6, 9), floats(6))),
    Case("mm", "aten.mm.default", (In(("S", 13)), floats(13, 18))),
    Case("mm_live_inner", "aten.mm.default", (In((5, "S")), In(("S", 6)))),
    Case("bmm", "aten.bmm.default", (In(("B", "S", 6)), In(("B", 6, "T")))),
    Case("addmm", "aten.addmm.default", (floats(9), In(("S", 13)), floats(13, 9), 0.5, 2.0)),
    Case("addmm_column", "aten.addmm.default", (In(("S", 1)), In(("S", 13)), floats(13, 9), 1, 1)),
    Case(
        "choose_qparams",
        "torchao.choose_qparams_affine.default",
        (In((1, "S", 40)), "ASYMMETRIC", [1, 1, 40], None, -128, 127, None, None, None, False),
        out=("float32", "int8"),
    ),
    Case(
        "linear_dq8ca_q4",
        "et_vk.linear_dq8ca_q4gsw.default",
        (
            In(("S", 64)),
            In(("S",), low=0.02, high=0.03),
            In(("S",), "int8", -20, 20),
            *q4_weight(24, 64, 32)[:1],
            Const(lambda rng: rng.integers(-99, 99, (2, 24)).astype(np.int32)),
            *q4_weight(24, 64, 32, bias=True)[1:],
        ),
    ),
    # convolutions; image is live in batch, height and width
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
    # pooling
    Case("avg_pool", "aten.avg_pool2d.default", (image, [3, 2], [2, 1], [1, 1], False, True, None), empty=False),
    Case("avg_pool_inside", "aten.avg_pool2d.default", (image, [3, 3], [2, 2], [1, 1], True, False, None), empty=False),
    Case("avg_pool_ceil", "aten.avg_pool2d.default", (image, [2, 3], [2, 3], [1, 1], True, True, None), empty=False),
    Case("avg_pool_divisor", "aten.avg_pool2d.default", (In(("S", 3, 5, 7)), [2, 2], [], [0, 0], False, True, 3)),
    Case("adaptive_avg_pool", "aten._adaptive_avg_pool2d.default", (image, [3, 5]), empty=False),
    Case(
        "max_pool",
        "aten.max_pool2d_with_indices.default",
        (image, [3, 3], [2, 2], [1, 1], [1, 1], True),
        out=("float32", "int64"),
        empty=False,
    ),
    Case(
        "max_pool_ties",
        "aten.max_pool2d_with_indices.default",
        (In(("S", 9, 10)), [3, 2], [], [1, 1], [2, 3], False),
        out=("float32", "int64"),
        empty=False,
    ),
    Case("max_pool_values", "aten.max_pool2d.default", (image, [2, 2], [1, 2], [1, 1], [1, 1], False), empty=False),
    # images at other sizes
    Case("nearest_factors", "aten.upsample_nearest2d.vec", (image, None, [1.6, 2.3]), empty=False),
    Case("nearest_size", "aten.upsample_nearest2d.vec", (image, [9, 5], None), empty=False),
    Case("bilinear_factors", "aten.upsample_bilinear2d.vec", (image, None, False, [1.6, 2.0]), empty=False),
    Case("bilinear_corners", "aten.upsample_bilinear2d.vec", (image, None, True, [2.5, 3.0]), empty=False),
    Case("bilinear_size", "aten.upsample_bilinear2d.vec", (image, [30, 4], False, None), empty=False),
    *(
        Case(
            f"grid_{mode}_{padding}_{corners}",
            "aten.grid_sampler_2d.default",
            (In(("B", 3, 6, "T")), In(("B", "S", "T", 2), low=-1.8, high=1.8), mode, padding, corners),
            tolerance=2e-5,
        )
        for mode in (0, 1)
        for padding in (0, 1, 2)
        for corners in (False, True)
    ),
    Case("pixel_shuffle", "aten.pixel_shuffle.default", (In(("B", 12, "S", "T")), 2)),
    Case("pixel_shuffle_plane", "aten.pixel_shuffle.default", (In((9, "S", 2)), 3)),
    Case("pixel_unshuffle", "aten.pixel_unshuffle.default", (In(("S", 2, 6, 9)), 3)),
    # tables
    Case("embedding", "aten.embedding.default", (floats(30, 12), In((1, "S"), "int32", 0, 29))),
    Case("embedding_q4", "et_vk.embedding_q4gsw.default", (*q4_table(30, 64, 32), In((1, "S"), "int32", 0, 29), False)),
    Case("embedding_q4_tied", "et_vk.embedding_q4gsw.default", (*q4_table(9, 36, 12), In(("S",), "int32", 0, 8), True)),
    Case("index_select", "aten.index_select.default", (x3, 2, In(("T",), "int32", 0, 9))),
    Case("index", "aten.index.Tensor", (floats(CONTEXT, 6), [In(("S",), "int32", -64, 63)])),
    # rotary
    Case(
        "rotary",
        "et_vk.apply_rotary_emb.default",
        (In((1, "S", 4, 10)), In((1, "S", 2, 10)), In(("S", 5)), In(("S", 5))),
    ),
    Case(
        "rotary_batch",
        "et_vk.apply_rotary_emb.default",
        (In(("B", "S", 4, 8)), In(("B", "S", 4, 8)), floats(21, 4), floats(21, 4)),
    ),
    Case(
        "rotary_halves",
        "et_vk.apply_rotary_emb_hf.default",
        (In((1, "S", 4, 12)), In((1, "S", 1, 12)), floats(CONTEXT, 12), floats(CONTEXT, 12), Pos()),
    ),
    Case(
        "rotary_part",
        "et_vk.apply_rotary_emb_hf.default",
        (In((1, "S", 4, 16)), In((1, "S", 2, 16)), floats(CONTEXT, 6), floats(CONTEXT, 6), Pos()),
    ),
    # attention
    Case("sdpa_cache_gqa", "sdpa_with_kv_cache.default", attention(6, 2, 16), empty=False),
    Case("sdpa_cache_mqa", "sdpa_with_kv_cache.default", attention(5, 1, 8, scale=0.3), empty=False),
    Case("sdpa_cache_mha_odd", "sdpa_with_kv_cache.default", attention(3, 3, 7), empty=False),
    Case("sdpa_cache_full", "sdpa_with_kv_cache.default", attention(4, 2, 8, causal=False), empty=False),
    Case(
        "attention_window",
        "hightide.attention.default",
        (*attention(6, 2, 16)[:6], 0.25, 5, 0.0),
        empty=False,
    ),
    Case("attention_softcap", "hightide.attention.default", (*attention(4, 4, 12)[:6], 0.3, 0, 2.0), empty=False),
    Case(
        "update_cache",
        "update_cache.default",
        (In((2, "S", 3, 5)), Const(lambda rng: np.zeros((2, CONTEXT, 3, 5), np.float32)), Pos()),
        empty=False,
        extra={"output": 1},
    ),
    Case(
        "sdpa", "et_vk.sdpa.default", (In(("B", 2, "S", 8)), In(("B", 2, "T", 8)), In(("B", 2, "T", 12))), empty=False
    ),
    Case(
        "sdpa_mask",
        "et_vk.sdpa.default",
        (In(("B", 2, "S", 6)), In(("B", 2, "T", 6)), In(("B", 2, "T", 6)), In(("B", 1, "S", "T")), 0.4),
        empty=False,
    ),
    # made from nothing
    Case("full", "aten.full.default", ([Size(2, 0), 3], 2.5, x2)),
    Case("zeros_like", "aten.zeros_like.default", (x3,)),
    Case("arange", "aten.arange.start_step", (0, Size(3, 0), 1, x2), out="int32"),
    # reductions
    Case("sum_last", "aten.sum.dim_IntList", (x3, [-1], False)),
    Case("sum_live", "aten.sum.dim_IntList", (x3, [1], True)),
    Case("sum_two", "aten.sum.dim_IntList", (In(("B", "S", 5, "T")), [0, 2], False)),
    Case("sum_all", "aten.sum.dim_IntList", (In(("B", "S", 37)), [], True), tolerance=1e-5),
    Case("sum_ints", "aten.sum.dim_IntList", (In(("S", 5), "int32", -9, 9), None, False), out="int32"),
    Case("sum_bools", "aten.sum.dim_IntList", (In(("S", 30), "bool"), [-1], True), out="int32"),
    Case("sum_bytes", "aten.sum.dim_IntList", (In(("S", 5), "int8", -99, 99), [0], False), out="int32"),
    Case("sum_scalar", "aten.sum.dim_IntList", (In(()), [0], False)),
    Case("mean", "aten.mean.dim", (In(("B", "S", 300)), [2], True), tolerance=1e-5),
    Case("mean_image", "aten.mean.dim", (In(("B", 4, "S", "T")), [-1, -2], True), empty=False),
    Case("amax", "aten.amax.default", (In(("S", 130)), [-1], False)),
    Case("amax_live", "aten.amax.default", (x3, [1], False), empty=False),
    Case("amax_outer", "aten.amax.default", (In(("S", 1030)), [0], True), empty=False),
    Case("amin", "aten.amin.default", (In(("B", "S", 5, "T")), [0, 2], True)),
    Case("amin_ints", "aten.amin.default", (In(("S", 30), "int32", -99, 99), [-1], True), out="int32"),
    Case("max_all", "aten.max.default", (In(("B", "S", 17)),), empty=False),
    Case("min_all", "aten.min.default", (In(("S", "T"), "int32", -99, 99),), out="int32", empty=False),
    Case("argmax", "aten.argmax.default", (In(("S", 500)), -1, False), out="int32"),
    Case("argmax_ties", "aten.argmax.default", (In(("S", 90), "int32", 0, 2), 1, True), out="int32"),
    Case("argmin_ties", "aten.argmin.default", (In(("S", 90, "T"), "int32", 0, 2), -2, False), out="int32"),
    Case("argmax_live", "aten.argmax.default", (x3, 1, False), out="int32", empty=False),
    Case("argmin_all", "aten.argmin.default", (x3, None, False), out="int32", empty=False),
    # normalisations
    Case(
        "layer_norm",
        "aten.native_layer_norm.default",
        (In(("B", "S", 64), low=95, high=105), [64], floats(64), floats(64), 1e-5),
        tolerance=1e-4,  # the mean is ten times the deviation
    ),
    Case("layer_norm_odd", "aten.native_layer_norm.default", (In(("S", 67)), [67], floats(67), None, 1e-6)),
    Case(
        "layer_norm_two", "aten.native_layer_norm.default", (In(("S", 3, 7)), [3, 7], floats(3, 7), floats(3, 7), 1e-5)
    ),
    Case("layer_norm_wide", "aten.native_layer_norm.default", (In(("S", 1028)), [1028], None, floats(1028), 1e-5)),
    Case(
        "layer_norm_live",
        "aten.native_layer_norm.default",
        (In((4, "S")), [Size(0, 1)], None, None, 1e-2),
        empty=False,
    ),
    Case(
        "group_norm",
        "aten.native_group_norm.default",
        (In(("B", 6, "S", "T")), floats(6), floats(6), Size(0, 0), 6, 189, 3, 1e-2),
        empty=False,
    ),
    Case("group_norm_plain", "aten.native_group_norm.default", (In(("S", 8, 9)), None, None, 21, 8, 9, 2, 1e-5)),
    Case(
        "batch_norm",
        "aten._native_batch_norm_legit_no_training.default",
        (In(("B", 5, "S", "T")), floats(5), floats(5), floats(5), floats(5, low=0.5), 0.1, 1e-5),
    ),
    Case(
        "batch_norm_plain",
        "aten._native_batch_norm_legit_no_training.default",
        (In(("S", 6)), None, None, floats(6), floats(6, low=0.5), 0.1, 1e-3),
    ),
    # elementwise, other types and forms
    Case("bitwise_and", "aten.bitwise_and.Tensor", (In(("S", 5), "bool"), In((5,), "bool")), out="bool"),
    Case("bitwise_or_ints", "aten.bitwise_or.Tensor", (In(("S",), "int32", -99, 99), In((1,), "int32")), out="int32"),
    Case("bitwise_xor_bytes", "aten.bitwise_xor.Tensor", (In(("S", 3), "int8", -99, 99), 77), out="int8"),
    Case("bitwise_not", "aten.bitwise_not.default", (In(("S", 3), "bool"),), out="bool"),
    Case("bitwise_not_ints", "aten.bitwise_not.default", (In(("S", 3), "int32", -99, 99),), out="int32"),
    Case("logical_xor", "aten.logical_xor.default", (In(("S", 5), "int32", -1, 1), In(("S", 1), "bool")), out="bool"),
    Case("logical_not_floats", "aten.logical_not.default", (In(("S", 5), "int32", -1, 1),), out="bool"),
    Case("ne_bools", "aten.ne.Tensor", (In(("S", 5), "bool"), In((5,), "bool")), out="bool"),
    Case("lt_bytes", "aten.lt.Tensor", (In(("S", 5), "int8", -9, 9), In((5,), "int8", -9, 9)), out="bool"),
    Case("add_bools", "aten.add.Tensor", (In(("S", 5), "bool"), In(("S", 1), "bool")), out="bool"),
    Case("add_bool_int", "aten.add.Tensor", (In(("S", 5), "bool"), In(("S", 5), "int32", -9, 9), 2), out="int32"),
    Case("mul_bytes", "aten.mul.Tensor", (In(("S", 5), "int8", -20, 20), In((5,), "int8", -20, 20)), out="int8"),
    Case("where_wide", "aten.where.self", (In(("S", 1), "bool"), In((1, "T")), floats(2, 1, 1))),
    Case("where_bools", "aten.where.self", (In(("S", 5), "bool"), In((5,), "bool"), In(("S", 1), "bool")), out="bool"),
    Case("where_ints", "aten.where.self", (In(("S", 5), "bool"), In((5,), "int32"), 7), out="int32"),
    Case("clamp_ints", "aten.clamp.default", (In(("S", 5), "int32", -9, 9), -3, None), out="int32"),
    Case("maximum_ints", "aten.maximum.default", (In(("S", 5), "int32", -9, 9), In((5,), "int32", -9, 9)), out="int32"),
    Case("floor_divide", "aten.floor_divide.default", (x2, floats(12, low=-0.2, high=-0.1))),
    Case("floor_divide_ints", "aten.floor_divide.default", (In(("S", 5), "int32", -99, 99), 7), out="int32"),
    Case("div_trunc_ints", "aten.div.Tensor_mode", (In(("S", 5), "int32", -99, 99), -7, "trunc"), out="int32"),
    Case("pow_ints", "aten.pow.Tensor_Tensor", (In(("S", 5), "int32", -3, 3), In((5,), "int32", -2, 6)), out="int32"),
    Case("pow_scalar_base", "aten.pow.Scalar", (2.5, x2), tolerance=1e-5),
    Case("hardswish", "aten.hardswish.default", (In(("S", 7), low=-5, high=5),)),
    Case("hardsigmoid", "aten.hardsigmoid.default", (In(("S", 7), low=-5, high=5),)),
    Case("hardshrink", "aten.hardshrink.default", (x2, 0.7)),
    Case("hardtanh", "aten.hardtanh.default", (x2,)),
    Case("log10", "aten.log10.default", (positive,)),
    Case("log2", "aten.log2.default", (positive,)),
    Case("tan", "aten.tan.default", (In(("S", 7), low=-1.3, high=1.3),), tolerance=1e-5),
    Case("atan", "aten.atan.default", (x2,), tolerance=1e-5),
    Case("trunc", "aten.trunc.default", (x2,)),
    Case("sign", "aten.sign.default", (x3,)),
    Case("round_ints", "aten.round.default", (In(("S", 3), "int32", -9, 9),), out="int32"),
    Case("to_bytes", "aten._to_copy.default", (In(("S", 5), low=-99, high=99),), out="int8"),
    Case("bytes_to_float", "aten._to_copy.default", (In(("S", 5), "int8", -99, 99),)),
    Case("copy", "aten.copy.default", (x2, In((1, 12)), False)),
    # picking
    Case("gather", "aten.gather.default", (In(("S", 12)), 1, In(("S", 5), "int32", 0, 11))),
    Case("gather_part", "aten.gather.default", (In((7, 9, 6)), -2, In((4, "S", 5), "int32", 0, 8))),
    Case("gather_bytes", "aten.gather.default", (In((9, 7), "bool"), 0, In(("S", 7), "int32", 0, 8)), out="bool"),
    Case(
        "index_select_bytes", "aten.index_select.default", (In(("S", 9), "bool"), 1, In(("T",), "int32", 0, 8)), "bool"
    ),
    Case("index_inner", "aten.index.Tensor", (In(("S", 6, 5)), [None, In(("T", 2), "int32", -6, 5)])),
    Case(
        "index_pair",
        "aten.index.Tensor",
        (In((5, 4, "B")), [In(("S", 1), "int32", -5, 4), In(("T",), "int32", -4, 3)]),
    ),
    Case(
        "index_apart",
        "aten.index.Tensor",
        (In((5, "B", 4)), [In(("S",), "int32", -5, 4), None, In((), "int32", -4, 3)]),
    ),
    # movement: padding, windows, bytes
    Case("pad", "aten.constant_pad_nd.default", (x3, [1, 2, 0, 3], 0.5)),
    Case("pad_cut", "aten.constant_pad_nd.default", (x3, [-2, 1, 2, -1, 1, 0], -7.0), empty=False),
    Case("pad_live", "aten.constant_pad_nd.default", (x2, [0, 0, Size(0, 0), 1])),
    Case("pad_ints", "aten.constant_pad_nd.default", (In(("S", 3), "int32"), [2, 2], -5), out="int32"),
    Case("pad_bytes", "aten.constant_pad_nd.default", (In(("S", 3), "bool"), [1, 1, 0, 2], True), out="bool"),
    Case("unfold", "aten.unfold_copy.default", (In(("S", 12, 3)), 1, 4, 3)),
    Case("unfold_live", "aten.unfold_copy.default", (In((2, "S")), -1, 1, 2), empty=False),
    Case("cat_bytes", "aten.cat.default", ([In(("S", 5), "bool"), In(("T", 5), "bool")], 0), out="bool"),
    Case("cat_bytes_inner", "aten.cat.default", ([In(("S", 3), "int8"), In(("S", 6), "int8")], -1), out="int8"),
    Case("repeat_bytes", "aten.repeat.default", (In(("S", 3), "bool"), [2, 1, 3]), out="bool"),
    Case("flip_bytes", "aten.flip.default", (In(("S", 7), "bool"), [0, 1]), out="bool"),
    Case("split_bytes", "aten.split_with_sizes_copy.default", (In(("S", 7), "bool"), [3, 4], 1), out="bool"),
    # made from nothing, and tables of positions
    Case("full_bools", "aten.full.default", ([Size(2, 0), 3], True, x2), out="bool"),
    Case("ones_like_bytes", "aten.ones_like.default", (In(("S", 3), "int8"),), out="int8"),
    Case("arange_floats", "aten.arange.start_step", (1.5, 7, 0.7)),
    Case("grid_priors", "et_vk.grid_priors.default", (In((1, "B", "S", "T")), 8, 0.5)),
    Case("rotary_complex", "et_vk.apply_rotary_emb_interleaved.default", (In(("B", "S", 6)), In((1, "S", 3, 2)))),
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
    # training
    Case(
        "adamw",
        "et_vk.adamw_step.default",
        (x3, x3, In(("B", "S", 10), low=0), x3, 1e-3, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001),
        tolerance=1e-5,
    ),
    Case(
        "adamw_in_place",
        "et_vk.adamw_step.default",
        (floats(33), floats(33), floats(33, low=0), floats(33), 1e-2, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001),
        tolerance=1e-5,
        extra={"output": 0},
    ),
    Case("cross_entropy", "et_vk.fused_ce.default", (In(("S", 75)), In(("S",), "int32", -3, 74), 4.0), tolerance=1e-5),
    Case("cross_entropy_narrow", "et_vk.fused_ce.default", (x2, In(("S",), "int32", 0, 11), 21.0), tolerance=1e-5),
    Case("q4_backward", "et_vk.linear_q4gsw_backward.default", (In(("B", "S", 11)), *q4_weight(11, 48, 16)[:3])),
    Case("q4_backward_odd", "et_vk.linear_q4gsw_backward.default", (In(("S", 6)), *q4_weight(6, 30, 6)[:3])),
    Case("weight_gradient", "et_vk.linear_dW.default", (In(("B", "S", 6)), In(("B", "S", 13)))),
    Case(
        "q4_requant", "et_vk.q4gsw_requant.default", (In(("S", 45)), floats(3, 21, low=0.1, high=0.5), 16), out="uint8"
    ),
    # the rest of the catalogue
    Case("abs", "aten.abs.default", (x3,)),
    Case("abs_ints", "aten.abs.default", (In(("S", 5), "int32", -9, 9),), out="int32"),
    Case("floor", "aten.floor.default", (x3,)),
    Case("ceil", "aten.ceil.default", (x3,)),
    Case("square", "aten.square.default", (x2,)),
    Case("log", "aten.log.default", (positive,)),
    Case("sqrt", "aten.sqrt.default", (positive,)),
    Case("reciprocal", "aten.reciprocal.default", (positive,)),
    Case("sin", "aten.sin.default", (x2,)),
    Case("rsub", "aten.rsub.Scalar", (x3, 2.5, 3)),
    Case("leaky_relu", "aten.leaky_relu.default", (x2, 0.2)),
    Case("le", "aten.le.Tensor", (In(("S", 5), "int32"), In((5,), "int32")), out="bool"),
    Case("ge", "aten.ge.Scalar", (x3, 0.5), out="bool"),
    Case("logical_or", "aten.logical_or.default", (In(("S", 5), "bool"), In((1, 5), "bool")), out="bool"),
    Case("zeros", "aten.zeros.default", ([5, 3],)),
    Case("ones", "aten.ones.default", ([7],), out="int32"),
    Case("full_like", "aten.full_like.default", (x3, -1.5)),
    Case("scalar_tensor", "aten.scalar_tensor.default", (2.5,)),
    Case("arange_end", "aten.arange.default", (7,), out="int32"),
    Case("arange_start", "aten.arange.start", (3, 9.5)),
    Case("sum_whole", "aten.sum.default", (In(("B", "S", 37)),), tolerance=1e-5),
    Case("mean_whole", "aten.mean.default", (x3,), tolerance=1e-5, empty=False),
]
