"""Linears over 8- and 4-bit weights with a scale per column; activations are 8-bit codes or floats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.int8.affine import inverse_of
from hightide.ops.int8.requantize import check_activation, check_columns, requantized, require_int8, tail
from hightide.ops.legacy import Context, Dispatch, Op, Tensor, ceil_div, kernel, op, require_dtype
from hightide.ops.linear.tiles import LANES, given, rows_per_thread


@dataclass(frozen=True)
class Form:
    """What x and the weights are. `product` is the WGSL of a step over one word of weights, `single` of one value."""

    sum: str  # the type of the sum
    x: str  # the type of x in memory
    x_single: str
    values: int  # of a word of weights
    product: str
    single: str
    value: str  # of a sum, where the output is floats


BYTE = "extractBits(bitcast<i32>({0}[{1} / 4u]), {1} % 4u * 8u, 8u)"
CODES = Form(
    "i32",
    "u32",
    "u32",
    4,
    "fn unpack(word: u32) -> u32 { return word; }\n"
    "fn product(at: u32, w: u32) -> i32 { return dot4I8Packed(x[at], w); }",
    f"fn x_at(i: u32) -> i32 {{ return {BYTE.format('x', 'i')} - params.x_zero; }}\n"
    f"fn weight_at(start: u32, k: u32) -> i32 {{ let i = start + k; return {BYTE.format('weight', 'i')}; }}",
    "value_of({total}, {column}, {column})",
)
BYTES = Form(
    "f32",
    "vec4<f32>",
    "f32",
    4,
    "fn unpack(word: u32) -> vec4<f32> { return vec4<f32>(unpack4xI8(word)); }\n"
    "fn product(at: u32, w: vec4<f32>) -> f32 { return dot(x[at], w); }",
    "fn x_at(i: u32) -> f32 { return x[i]; }\n"
    f"fn weight_at(start: u32, k: u32) -> f32 {{ let i = start + k; return f32({BYTE.format('weight', 'i')}); }}",
    "{total} * scales[{column}]",
)
# Two values a byte, the first in the high half, value + 8.
NIBBLES = Form(
    "f32",
    "vec4<f32>",
    "f32",
    8,
    "fn unpack(word: u32) -> mat2x4<f32> {\n"
    "    let even = vec4<f32>(unpack4xU8((word >> 4u) & 0x0f0f0f0fu)) - 8.0;\n"
    "    let odd = vec4<f32>(unpack4xU8(word & 0x0f0f0f0fu)) - 8.0;\n"
    "    return mat2x4<f32>(vec4<f32>(even.x, odd.x, even.y, odd.y), vec4<f32>(even.z, odd.z, even.w, odd.w));\n"
    "}\n"
    "fn product(at: u32, w: mat2x4<f32>) -> f32 { return dot(x[at * 2u], w[0]) + dot(x[at * 2u + 1u], w[1]); }",
    "fn x_at(i: u32) -> f32 { return x[i]; }\n"
    "fn weight_at(start: u32, k: u32) -> f32 {\n"
    "    let i = start + k / 2u;\n"
    "    return f32(extractBits(weight[i / 4u], i % 4u * 8u + (1u - k % 2u) * 4u, 4u)) - 8.0;\n"
    "}",
    "{total} * scales[{column}]",
)


def linear(
    form: Form,
    x: Tensor,
    weight: Tensor,
    scales: Tensor,
    out: Tensor,
    sums: Tensor | None = None,
    bias: Tensor | None = None,
    activation: str | None = None,
    tail_params: tuple[Any, ...] = (0, 0.0, 0.0, 0.0),  # x's zero point and scale; the output's 1 / scale and zero
) -> Iterator[Dispatch]:
    """The product by the widest route that the shape allows; the output is codes if there is an `activation`."""
    require_dtype("f32", scales, *given(bias))
    if form is CODES:
        require_int8(x, weight)
    else:
        require_dtype("f32", x)
        require_dtype("u8", weight)
    if activation is None:
        require_dtype("f32", out)
    else:
        require_int8(out)
    m, k, n = x.rows, x.width, weight.dims[0]
    if not out.numel:
        return
    row_bytes = weight.dims[1]
    tiled = k % form.values == 0 and row_bytes % 4 == 0 and k > 0 and (activation is None or n % 4 == 0)
    buffers = {"x": form.x if tiled else form.x_single, "weight": "u32", "scales": "f32"}
    if sums is not None and tiled:
        require_dtype("i32", sums)
        buffers["sums"] = "i32"
    if bias is not None:
        buffers["bias"] = "f32"
    reads = given(x, weight, scales, sums if tiled else None, bias)
    text = tail(bias, activation) if form is CODES else ""
    name = "codes" if form is CODES else "int8" if form is BYTES else "int4"
    if tiled:
        rows, shape = rows_per_thread(m)
        row_tiles, column_tiles = ceil_div(m, rows), ceil_div(n, 4)
        total = "total[r][c] - params.x_zero * sums[column + c]" if form is CODES else "total[r][c]"
        if activation is None:
            value = form.value.format(total=total, column="column + c")
            store = f"for (var c = 0u; c < min(4u, params.n - column); c++) {{ out[first + c] = {value}; }}"
        else:
            code = f"code_of({total}, column + c, column + c)"
            store = "var codes = vec4<i32>();\n"
            store += f"for (var c = 0u; c < 4u; c++) {{ codes[c] = {code}; }}\nout[first / 4u] = pack4xI8(codes);"
        yield Dispatch(
            kernel(
                "int8/linear_tile.wgsl",
                f"{name}_{shape}",
                ROWS=rows,
                LANES=LANES,
                T=form.sum,
                BINDINGS=bindings(buffers, "f32" if activation is None else "u32"),
                PRODUCT=form.product,
                TAIL=text,
                STORE=store,
            ),
            groups=ceil_div(row_tiles * column_tiles, LANES),
            params=(m, n, k // form.values, row_bytes // 4, row_tiles, column_tiles, 0, *tail_params),
            reads=reads,
            writes=(out,),
        )
        return
    result = form.value.format(total="total", column="column")
    yield Dispatch(
        kernel(
            "int8/linear_any.wgsl",
            f"{name}_any",
            T=form.sum,
            BINDINGS=bindings(buffers, "vec4<f32>" if activation is None else "u32"),
            PRODUCT=form.single,
            TAIL=text,
            OUT="f32" if activation is None else "i32",
            RESULT=result if activation is None else "code_of(total, column, column)",
            STORE="result" if activation is None else "pack4xI8(result)",
        ),
        groups=ceil_div(out.numel, 256),
        params=(m, n, k, row_bytes, 0, *tail_params),
        reads=reads,
        writes=(out,),
    )


def bindings(buffers: dict[str, str], out: str) -> str:
    """Declarations of the buffers that are read, in order, and of the output."""
    lines = [f"var<storage, read> {name}: array<{kind}>;" for name, kind in buffers.items()]
    lines.append(f"var<storage, read_write> out: array<{out}>;")
    return "\n".join(f"@group(0) @binding({2 + n}) {line}" for n, line in enumerate(lines))


def check_linear(x: Tensor, weight: Tensor, scales: Tensor, columns: int, *others: Tensor | None) -> list[Dims]:
    """`columns`: values in a row of the weight, which may be padded."""
    if not x.rank or weight.rank != 2 or not x.width <= columns:
        raise InputError(f"{list(x.dims)} does not fit a weight of {list(weight.dims)}")
    if x.width != x.value.dims[-1]:  # rows of the weight may be padded, so that they do not tell K
        raise InputError(f"rows of {x.width} do not fit a weight for rows of {x.value.dims[-1]}")
    n = weight.dims[0]
    check_columns(n, scales, *others)
    return [(*x.dims[:-1], n)]


@op("et_vk.linear_qcs4w.default", "aten._weight_int8pack_mm.default")
class LinearWeightOnly(Op):
    """(x @ weight.T) * scales, with weight int8 [N, K], or bytes [N, K / 2] of two 4-bit values."""

    def outputs(self, ctx: Context, x: Tensor, weight: Tensor, scales: Tensor) -> list[Dims]:
        columns = weight.width * (2 if weight.dtype == "uint8" else 1)
        return check_linear(x, weight, scales, columns)

    def plan(self, ctx: Context, x: Tensor, weight: Tensor, scales: Tensor, *, out: Tensor) -> Iterable[Dispatch]:
        return linear(NIBBLES if weight.dtype == "uint8" else BYTES, x, weight, scales, out)

    def reference(self, x: np.ndarray, weight: np.ndarray, scales: np.ndarray) -> np.ndarray:
        n, k = weight.shape[0], x.shape[-1]
        if weight.dtype == np.uint8:
            weight = np.stack([weight >> 4, weight & 15], axis=-1).reshape(n, -1).astype(np.int8) - 8
        return (x @ weight[:, :k].T.astype(x.dtype)) * scales[:n]


@op("et_vk.linear_q8ta_q8csw.default")
class LinearCodes(Op):
    """Codes x and weights: (x - zero) @ weight.T * scale * scales + bias, in floats; sums: of each weight row."""

    def outputs(
        self,
        ctx: Context,
        x: Tensor,
        scale: float,
        zero: int,
        weight: Tensor,
        sums: Tensor,
        scales: Tensor,
        bias: Tensor | None = None,
    ) -> list[Dims]:
        return check_linear(x, weight, scales, weight.width, sums, bias)

    def plan(
        self,
        ctx: Context,
        x: Tensor,
        scale: float,
        zero: int,
        weight: Tensor,
        sums: Tensor,
        scales: Tensor,
        bias: Tensor | None = None,
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        return linear(CODES, x, weight, scales, out, sums, bias, None, (zero, float(scale), 0.0, 0.0))

    def reference(
        self,
        x: np.ndarray,
        scale: float,
        zero: int,
        weight: np.ndarray,
        sums: np.ndarray,
        scales: np.ndarray,
        bias: np.ndarray | None = None,
    ) -> np.ndarray:
        n = weight.shape[0]
        value = exact_product(x, zero, weight) * (scale * scales[:n].astype(np.float64))
        return value if bias is None else value + bias[:n]


@op("et_vk.q8ta_linear.default", "et_vk.q8ta_linear_gemv.default")
class LinearToCodes(Op):
    """linear_q8ta_q8csw, then an activation, to codes of another scale and zero point."""

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
        bias: Tensor | None = None,
        activation: str = "none",
    ) -> list[Dims]:
        check_activation(activation)
        return check_linear(x, weight, scales, weight.width, sums, bias)

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
        bias: Tensor | None = None,
        activation: str = "none",
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        numbers = (zero, float(scale), inverse_of(out_scale), float(out_zero))
        return linear(CODES, x, weight, scales, out, sums, bias, activation, numbers)

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
        bias: np.ndarray | None = None,
        activation: str = "none",
    ) -> np.ndarray:
        n = weight.shape[0]
        total = exact_product(x, zero, weight)
        part = None if bias is None else bias[:n]
        return requantized(total, scale, scales[:n], part, out_scale, out_zero, activation)


def exact_product(x: np.ndarray, zero: int, weight: np.ndarray) -> np.ndarray:
    """(x - zero) @ weight.T: whole numbers, exact in float64."""
    return (x.astype(np.float64) - zero) @ weight[:, : x.shape[-1]].T.astype(np.float64)
