"""Ops on 8-bit codes, one by one: sums, relu, and moves that change the scale."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.elementwise.elementwise import broadcast
from hightide.ops.int8.affine import codes_of, inverse_of
from hightide.ops.int8.elements import elements
from hightide.ops.legacy import Context, Dispatch, Op, Tensor, op
from hightide.ops.movement.movement import broadcast_strides

LOW, HIGH = -128, 127  # of every code here
TO_CODE = "to_code({} * params.inverse, params.out_zero, -128.0, 127.0)"


def values_of(codes: np.ndarray, scale: float, zero: int) -> np.ndarray:
    """What codes stand for, in float32 as in torch."""
    return (codes.astype(np.float32) - np.float32(zero)) * np.float32(scale)


@op("et_vk.q8ta_add.default")
class AddCodes(Op):
    """a + alpha * b, each with a scale and zero point; operands broadcast."""

    def outputs(self, ctx: Context, a: Tensor, b: Tensor, *_: float) -> list[Dims]:
        return [broadcast(a.dims, b.dims)]

    def plan(
        self,
        ctx: Context,
        a: Tensor,
        b: Tensor,
        a_scale: float,
        a_zero: int,
        b_scale: float,
        b_zero: int,
        out_scale: float,
        out_zero: int,
        alpha: float,
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        operands = [(x, broadcast_strides(x.dims, out.dims)) for x in (a, b)]
        scalars = {"a_scale": a_scale, "a_zero": a_zero, "b_scale": b_scale, "b_zero": b_zero, "alpha": alpha}
        scalars |= {"inverse": inverse_of(out_scale), "out_zero": out_zero}
        first = "rounded((f32(a) - params.a_zero) * params.a_scale)"
        second = "rounded(params.alpha * rounded((f32(b) - params.b_zero) * params.b_scale))"
        yield elements(TO_CODE.format(f"rounded({first} + {second})"), out, out.dims, operands, scalars)

    def reference(
        self,
        a: np.ndarray,
        b: np.ndarray,
        a_scale: float,
        a_zero: int,
        b_scale: float,
        b_zero: int,
        out_scale: float,
        out_zero: int,
        alpha: float,
    ) -> np.ndarray:
        total = values_of(a, a_scale, a_zero) + np.float32(alpha) * values_of(b, b_scale, b_zero)
        return codes_of(total, inverse_of(out_scale), out_zero, LOW, HIGH)


@op("et_vk.q8ta_relu.default")
class ReluCodes(Op):
    """max(x, 0), with another scale and zero point."""

    def outputs(self, ctx: Context, x: Tensor, *_: float) -> list[Dims]:
        return [x.dims]

    def plan(
        self, ctx: Context, x: Tensor, scale: float, zero: int, out_scale: float, out_zero: int, *, out: Tensor
    ) -> Iterable[Dispatch]:
        scalars = {"scale": scale, "zero": zero, "inverse": inverse_of(out_scale), "out_zero": out_zero}
        expr = TO_CODE.format("max((f32(a) - params.zero) * params.scale, 0.0)")
        yield elements(expr, out, out.dims, [(x, broadcast_strides(x.dims, x.dims))], scalars)

    def reference(self, x: np.ndarray, scale: float, zero: int, out_scale: float, out_zero: int) -> np.ndarray:
        return codes_of(np.maximum(values_of(x, scale, zero), 0), inverse_of(out_scale), out_zero, LOW, HIGH)


@op("et_vk.q8ta_pixel_shuffle.default")
class PixelShuffleCodes(Op):
    """Channels [C * r * r, H, W] to pixels [C, H * r, W * r], with another scale and zero point."""

    def outputs(
        self, ctx: Context, x: Tensor, scale: float, zero: int, out_inverse: float, out_zero: int, factor: int
    ) -> list[Dims]:
        if x.rank < 3 or factor < 1 or x.dims[-3] % (factor * factor):
            raise InputError(f"{list(x.dims)} has no channels of {factor} x {factor} pixels")
        *lead, channels, height, width = x.dims
        return [(*lead, channels // factor**2, height * factor, width * factor)]

    def plan(
        self,
        ctx: Context,
        x: Tensor,
        scale: float,
        zero: int,
        out_inverse: float,
        out_zero: int,
        factor: int,
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        height, width = x.dims[-2:]
        plane = height * width
        box = (math.prod(out.dims[:-2]), height, factor, width, factor)
        strides = (plane * factor**2, width, plane * factor, 1, plane)
        scalars = {"scale": scale, "zero": zero, "inverse": _inverse(out_inverse), "out_zero": out_zero}
        expr = TO_CODE.format("(f32(a) - params.zero) * params.scale")
        yield elements(expr, out, box, [(x, strides)], scalars)

    def reference(
        self, x: np.ndarray, scale: float, zero: int, out_inverse: float, out_zero: int, factor: int
    ) -> np.ndarray:
        *lead, channels, height, width = x.shape
        pixels = x.reshape(*lead, channels // factor**2, factor, factor, height, width)
        n = len(lead)
        moved = pixels.transpose(*range(n + 1), n + 3, n + 1, n + 4, n + 2)
        shuffled = moved.reshape(*lead, channels // factor**2, height * factor, width * factor)
        return codes_of(values_of(shuffled, scale, zero), _inverse(out_inverse), out_zero, LOW, HIGH)


def _inverse(inverse: float) -> float:
    """The inverse of the scale that torch makes of it: not always the same number."""
    return inverse_of(inverse_of(inverse))
