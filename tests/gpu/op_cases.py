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


x2, x3 = In(("S", 12)), In(("B", "S", 10))
positive = In(("S", 7), low=0.1, high=4)

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
]
