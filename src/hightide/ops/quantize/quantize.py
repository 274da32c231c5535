"""Activations rounded to 8 bits at run time: their scales, and linears over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.choices import Choices
from hightide.ops.contract import Context, Dispatch, Op, Tensor, ceil_div, kernel, op
from hightide.ops.cost import product_flops
from hightide.ops.int8.affine import codes_of
from hightide.ops.linear.epilogue import Epilogue, Product, finished
from hightide.ops.linear.q4 import Q4Weight, q4_reference


@op("torchao.choose_qparams_affine.default", family="quantize")
class ChooseQparams(Op):
    """(scale, zero point) per row, such that 0 and the row's range fit `low`..`high`."""

    x: Tensor
    mapping: str
    block: tuple[int, ...]
    target_dtype: int | None
    low: int
    high: int
    eps: float = float(np.finfo(np.float32).tiny)  # as torchao
    scale_dtype: int | None = None
    zero_dtype: int | None = None
    keepdim: bool = False

    def outputs(self, ctx: Context) -> list[Dims]:
        x, block = self.x, self.block
        if self.mapping != "ASYMMETRIC" or block != (*(1 for _ in block[1:]), x.width) or len(block) != x.rank:
            raise UnsupportedError(
                f"{self.mapping} parameters for blocks of {list(block)} have no kernel; those of rows, asymmetric, have"
            )
        if self.keepdim:
            raise UnsupportedError("parameters that keep the dim of the row have no kernel")
        return [x.dims[:-1], x.dims[:-1]]

    def plan(self, ctx: Context, out: tuple[Tensor, Tensor]) -> Iterable[Dispatch]:
        x = self.x
        yield kernel("quantize/choose_qparams.wgsl").over(
            ceil_div(x.rows, 4),
            x=x,
            scales=out[0],
            zeros=out[1],
            rows=x.rows,
            width=x.width,
            q_min=self.low,
            q_max=self.high,
            eps=self.eps,
        )

    @staticmethod
    def reference(x: np.ndarray, low: int, high: int, eps: float) -> tuple[np.ndarray, np.ndarray]:
        x = x.astype(np.float32)  # as torch: at ties the type decides the zero point
        least, most = np.minimum(x.min(axis=-1), np.float32(0)), np.maximum(x.max(axis=-1), np.float32(0))
        scale = np.maximum((most - least) / np.float32(high - low), np.float32(eps))
        return scale, np.clip(low - np.round(least / scale), low, high).astype(np.int8)


@op("et_vk.linear_dq8ca_q4gsw.default", family="linear")
class LinearDynamicQ8Q4(Op):
    """A 4-bit linear over activations rounded to 8 bits, with a scale and a zero point per row.

    The weight's sums per group are for integer kernels; the products here are of floats.
    """

    x: Tensor
    x_scale: Tensor
    x_zero: Tensor
    weight: Tensor
    sums: Tensor
    scales: Tensor
    group: int
    bias: Tensor | None = None

    def outputs(self, ctx: Context) -> list[Dims]:
        x = self.x
        if self.x_scale.dims != x.dims[:-1] or self.x_zero.dims != x.dims[:-1]:
            raise InputError(f"rows of {list(x.dims)} do not match scales of {list(self.x_scale.dims)}")
        product = Q4Weight(self.weight, self.scales, self.group).product_dims(x)
        return Epilogue(self.bias).check(product, padded=True)

    def flops(self, dispatch: Dispatch) -> float:
        return product_flops(self.x, (self.weight,), dispatch)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        x, rounded = self.x, ctx.scratch(self.x.numel * 4)
        yield kernel("quantize/round_rows.wgsl").over(
            ceil_div(x.numel, 64),
            x=x,
            scales=self.x_scale,
            zeros=self.x_zero,
            out=rounded,
            numel=x.numel,
            width=x.width,
            q_min=-128,
            q_max=127,
        )
        product = Product(rounded, x.rows, x.width, Epilogue(self.bias), out, out.width)
        yield from Q4Weight(self.weight, self.scales, self.group).dispatch(ctx, product)

    def evaluate_on(self, choices: Choices, arguments: Mapping[str, Any]) -> Any:
        rounded = _round_rows(arguments["x"], arguments["x_scale"], arguments["x_zero"])
        x = Q4Weight(self.weight, self.scales, self.group).operand(choices, rounded)
        weight, scales, group = (arguments[name] for name in ("weight", "scales", "group"))
        return finished(q4_reference(x, weight, scales, group), arguments.get("bias"))

    @staticmethod
    def reference(
        x: np.ndarray,
        x_scale: np.ndarray,
        x_zero: np.ndarray,
        weight: np.ndarray,
        scales: np.ndarray,
        group: int,
        bias: np.ndarray | None,
    ) -> np.ndarray:
        return finished(q4_reference(_round_rows(x, x_scale, x_zero), weight, scales, group), bias)


def _round_rows(x: np.ndarray, scales: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """What 8-bit codes with a scale and a zero point per row leave of x."""
    scale, zero = scales[..., None], zeros[..., None].astype(x.dtype)
    codes = codes_of(x, np.float32(1) / scale.astype(np.float32), zero, -128, 127)
    rounded: np.ndarray = (codes - zero) * scale
    return rounded
