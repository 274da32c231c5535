"""Activations rounded to 8 bits at run time: their scales, and linears over them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.legacy import Context, Dispatch, Op, Tensor, ceil_div, kernel, op, require_dtype
from hightide.ops.linear.epilogue import Epilogue
from hightide.ops.linear.q4 import q4_dispatch, q4_product, q4_reference

CHOOSE = kernel("quantize/choose_qparams.wgsl")
ROUND = kernel("quantize/round_rows.wgsl")
EPS = float(np.finfo(np.float32).eps)


@op("torchao.choose_qparams_affine.default")
class ChooseQparams(Op):
    """(scale, zero point) per row, such that 0 and the row's range fit `low`..`high`."""

    def outputs(
        self, ctx: Context, x: Tensor, mapping: str, block: tuple[int, ...], target: Any, low: int, high: int, *_: Any
    ) -> list[Dims]:
        if mapping != "ASYMMETRIC" or any(b != 1 for b in block[:-1]) or len(block) != x.rank or block[-1] != x.width:
            raise UnsupportedError(
                f"{mapping} parameters for blocks of {list(block)}: only asymmetric rows have a form"
            )
        return [x.dims[:-1], x.dims[:-1]]

    def plan(
        self,
        ctx: Context,
        x: Tensor,
        mapping: str,
        block: tuple[int, ...],
        target: Any,
        low: int,
        high: int,
        eps: float | None = None,
        *_: Any,
        out: tuple[Tensor, Tensor],
    ) -> Iterable[Dispatch]:
        scales, zeros = out
        require_dtype("f32", x, scales)
        require_dtype("u8", zeros)
        yield Dispatch(
            CHOOSE,
            groups=ceil_div(x.rows, 4),
            params=(x.rows, x.width, float(low), float(high), EPS if eps is None else float(eps)),
            reads=(x,),
            writes=(scales, zeros),
        )

    def reference(
        self, x: np.ndarray, mapping: str, block: Any, target: Any, low: int, high: int, eps: Any = None, *_: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        least, most = np.minimum(x.min(axis=-1), 0), np.maximum(x.max(axis=-1), 0)
        scale = np.maximum((most - least) / (high - low), EPS if eps is None else eps)
        return scale, np.clip(low - np.round(least / scale), low, high).astype(np.int8)


@op("et_vk.linear_dq8ca_q4gsw.default")
class LinearDynamicQ8Q4(Op):
    """A 4-bit linear over activations rounded to 8 bits, with a scale and a zero point per row.

    The weight's sums per group are for integer kernels; the products here are of floats.
    """

    def outputs(
        self,
        ctx: Context,
        x: Tensor,
        x_scale: Tensor,
        x_zero: Tensor,
        weight: Tensor,
        sums: Tensor,
        scales: Tensor,
        group: int,
        bias: Tensor | None = None,
    ) -> list[Dims]:
        if x_scale.dims != x.dims[:-1] or x_zero.dims != x.dims[:-1]:
            raise InputError(f"rows of {list(x.dims)} do not match scales of {list(x_scale.dims)}")
        return Epilogue(bias).check(q4_product(x, weight, scales, group), padded=True)

    def plan(
        self,
        ctx: Context,
        x: Tensor,
        x_scale: Tensor,
        x_zero: Tensor,
        weight: Tensor,
        sums: Tensor,
        scales: Tensor,
        group: int,
        bias: Tensor | None = None,
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        require_dtype("f32", x, x_scale)
        require_dtype("u8", x_zero)
        rounded = ctx.scratch(x.numel * 4)
        yield Dispatch(
            ROUND,
            groups=ceil_div(x.numel, 64),
            params=(x.numel, x.width, -128.0, 127.0),
            reads=(x, x_scale, x_zero),
            writes=(rounded,),
        )
        yield from q4_dispatch(ctx, x, rounded, weight, scales, group, Epilogue(bias), out)

    def reference(
        self,
        x: np.ndarray,
        x_scale: np.ndarray,
        x_zero: np.ndarray,
        weight: np.ndarray,
        sums: np.ndarray,
        scales: np.ndarray,
        group: int,
        bias: np.ndarray | None = None,
    ) -> np.ndarray:
        scale, zero = x_scale[..., None], x_zero[..., None].astype(x.dtype)
        rounded = (np.clip(np.round(x / scale) + zero, -128, 127) - zero) * scale
        return Epilogue().apply(q4_reference(rounded, weight, scales, group), bias, None)
