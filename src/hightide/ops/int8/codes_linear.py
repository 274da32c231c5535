"""Linears over 8- and 4-bit weights with a scale per column; activations are 8-bit codes or floats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Op, Tensor, ceil_div, kernel, op
from hightide.ops.cost import product_flops
from hightide.ops.int8.requantize import CodesProduct, Ending, ToCodes, check_activation, check_columns, require_int8
from hightide.ops.linear.tiles import LANES, rows_per_thread
from hightide.ops.rows import rows_alike

WEIGHT_ONLY = {"BIAS": False, "TO_CODES": False, "RELU": False}


@op("et_vk.linear_qcs4w.default", "aten._weight_int8pack_mm.default", family="linear")
class LinearWeightOnly(Op):
    """(x @ weight.T) * scales, with weight int8 [N, K], or bytes [N, K / 2] of two 4-bit values."""

    x: Tensor
    weight: Tensor
    scales: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        columns = self.weight.width * (2 if self.weight.dtype == "uint8" else 1)
        return check_linear(self.x, self.weight, columns, self.scales)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        form = "int4" if self.weight.dtype == "uint8" else "int8"
        return product(ctx, form, self.x, self.weight, out, WEIGHT_ONLY, {"scales": self.scales})

    def flops(self, dispatch: Dispatch) -> float:
        return product_flops(self.x, (self.weight,), dispatch)

    @staticmethod
    def reference(x: np.ndarray, weight: np.ndarray, scales: np.ndarray) -> np.ndarray:
        n, k = weight.shape[0], x.shape[-1]
        if weight.dtype == np.uint8:
            weight = np.stack([weight >> 4, weight & 15], axis=-1).reshape(n, -1).astype(np.int8) - 8
        return np.asarray((x @ weight[:, :k].T.astype(x.dtype)) * scales[:n])


@op("et_vk.linear_q8ta_q8csw.default", family="linear")
class LinearCodes(CodesProduct):
    """(x - zero) @ weight.T * scale * scales + bias, in floats."""

    bias: Tensor | None = None

    def outputs(self, ctx: Context) -> list[Dims]:
        return check_linear(self.x, self.weight, self.weight.width, self.scales, self.sums, self.bias)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        require_int8(self.x, self.weight)
        ending = Ending(self.scale, self.zero, self.scales, self.bias)
        return product(ctx, "codes", self.x, self.weight, out, ending.constants, ending.given, sums=self.sums)

    def flops(self, dispatch: Dispatch) -> float:
        return product_flops(self.x, (self.weight,), dispatch)

    @staticmethod
    def reference(
        x: np.ndarray, scale: float, zero: int, weight: np.ndarray, scales: np.ndarray, bias: np.ndarray | None
    ) -> np.ndarray:
        n = weight.shape[0]
        value = exact_product(x, zero, weight) * (scale * scales[:n].astype(np.float64))
        return value if bias is None else value + bias[:n]


@op("et_vk.q8ta_linear.default", "et_vk.q8ta_linear_gemv.default", family="linear")
class LinearToCodes(ToCodes):
    """linear_q8ta_q8csw, then an activation, to codes of another scale and zero point."""

    bias: Tensor | None = None
    activation: str = "none"

    def outputs(self, ctx: Context) -> list[Dims]:
        check_activation(self.activation)
        return check_linear(self.x, self.weight, self.weight.width, self.scales, self.sums, self.bias)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        require_int8(self.x, self.weight, out)
        ending = self.ending
        return product(ctx, "codes", self.x, self.weight, out, ending.constants, ending.given, sums=self.sums)

    def flops(self, dispatch: Dispatch) -> float:
        return product_flops(self.x, (self.weight,), dispatch)

    @staticmethod
    def reference(
        x: np.ndarray,
        scale: float,
        zero: int,
        weight: np.ndarray,
        scales: np.ndarray,
        out_scale: float,
        out_zero: int,
        bias: np.ndarray | None,
        activation: str,
    ) -> np.ndarray:
        n = weight.shape[0]
        bias = None if bias is None else bias[:n]
        ending = Ending(scale, zero, scales[:n], bias, activation, out_scale, out_zero)
        return ending.codes(exact_product(x, zero, weight))


def product(
    ctx: Context,
    form: str,
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    constants: dict[str, bool],
    given: dict[str, Any],
    sums: Tensor | None = None,
) -> Iterator[Dispatch]:
    """x @ weight.T by the widest route that the shape allows; `constants` and `given` are those of its ending."""
    m, k, n, row_bytes = x.rows, x.width, *weight.dims
    if not out.numel:
        return
    values = 8 if form == "int4" else 4  # of a word of weights
    if k % values == 0 and row_bytes % 4 == 0 and k > 0 and (n % 4 == 0 or not constants["TO_CODES"]):
        rows, shape = rows_per_thread(m, rows_alike(ctx.choices))
        row_tiles, column_tiles = ceil_div(m, rows), ceil_div(n, 4)
        tile = kernel("int8/linear_tile.wgsl", f"{form}_{shape}", FORM=form, ROWS=rows, LANES=LANES, **constants)
        yield tile.over(
            ceil_div(row_tiles * column_tiles, LANES),
            x=x,
            weight=weight,
            sums=sums,
            out=out,
            **given,
            m=m,
            n=n,
            steps=k // values,
            row_words=row_bytes // 4,
            row_tiles=row_tiles,
            column_tiles=column_tiles,
        )
    else:
        yield kernel("int8/linear_any.wgsl", f"{form}_any", FORM=form, **constants).over(
            ceil_div(out.numel, 256), x=x, weight=weight, out=out, **given, m=m, n=n, k=k, row_bytes=row_bytes
        )


def check_linear(x: Tensor, weight: Tensor, columns: int, scales: Tensor, *others: Tensor | None) -> list[Dims]:
    """`columns`: values in a row of the weight, which may be padded."""
    if not x.rank or weight.rank != 2 or not x.width <= columns:
        raise InputError(f"{list(x.dims)} does not fit a weight of {list(weight.dims)}")
    if x.width != x.value.dims[-1]:  # rows of the weight may be padded, so that they do not tell K
        raise InputError(f"rows of {x.width} do not fit a weight for rows of {x.value.dims[-1]}")
    n = weight.dims[0]
    check_columns(n, scales, *others)
    return [(*x.dims[:-1], n)]


def exact_product(x: np.ndarray, zero: int, weight: np.ndarray) -> np.ndarray:
    """(x - zero) @ weight.T: whole numbers, exact in float64."""
    return np.asarray((x.astype(np.float64) - zero) @ weight[:, : x.shape[-1]].T.astype(np.float64))
