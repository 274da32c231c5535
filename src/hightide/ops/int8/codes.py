"""Ops on 8-bit codes, one by one: sums, relu, and moves that change the scale."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Op, Tensor, op, strides_of
from hightide.ops.elementwise.template import broadcast
from hightide.ops.int8.affine import codes_of, inverse_of
from hightide.ops.int8.elements import Box, elements
from hightide.ops.movement.strided import broadcast_strides
from hightide.ops.resample.resample import shuffled, shuffled_box, shuffled_dims

LOW, HIGH = -128, 127  # of every code here


def values_of(codes: np.ndarray, scale: float, zero: int) -> np.ndarray:
    """What codes stand for, in float32 as in torch."""
    return (codes.astype(np.float32) - np.float32(zero)) * np.float32(scale)


@op("et_vk.q8ta_add.default", family="quantize")
class AddCodes(Op):
    """a + alpha * b, each with a scale and zero point; operands broadcast."""

    a: Tensor
    b: Tensor
    a_scale: float
    a_zero: int
    b_scale: float
    b_zero: int
    out_scale: float
    out_zero: int
    alpha: float

    def outputs(self, ctx: Context) -> list[Dims]:
        return [broadcast(self.a.dims, self.b.dims)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        strides = (broadcast_strides(x.dims, out.dims) for x in (self.a, self.b))
        yield elements(
            "add",
            self.a,
            out,
            Box(out.dims, *strides),
            y=self.b,
            scale=self.a_scale,
            zero=self.a_zero,
            y_scale=self.b_scale,
            y_zero=self.b_zero,
            alpha=self.alpha,
            inverse=inverse_of(self.out_scale),
            out_zero=self.out_zero,
        )

    @staticmethod
    def reference(
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


@op("et_vk.q8ta_relu.default", family="quantize")
class ReluCodes(Op):
    """max(x, 0), with another scale and zero point."""

    x: Tensor
    scale: float
    zero: int
    out_scale: float
    out_zero: int

    def outputs(self, ctx: Context) -> list[Dims]:
        return [self.x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        box = Box(out.dims, strides_of(out.dims), (0,) * out.rank)
        inverse = inverse_of(self.out_scale)
        yield elements(
            "relu", self.x, out, box, scale=self.scale, zero=self.zero, inverse=inverse, out_zero=self.out_zero
        )

    @staticmethod
    def reference(x: np.ndarray, scale: float, zero: int, out_scale: float, out_zero: int) -> np.ndarray:
        return codes_of(np.maximum(values_of(x, scale, zero), 0), inverse_of(out_scale), out_zero, LOW, HIGH)


@op("et_vk.q8ta_pixel_shuffle.default", family="quantize")
class PixelShuffleCodes(Op):
    """Channels [C * r * r, H, W] to pixels [C, H * r, W * r], with another scale and zero point."""

    x: Tensor
    scale: float
    zero: int
    out_inverse: float
    out_zero: int
    factor: int

    def outputs(self, ctx: Context) -> list[Dims]:
        return [shuffled_dims(self.x.dims, self.factor)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        dims, strides = shuffled_box(self.x.dims, self.factor)
        box = Box(dims, strides, (0,) * len(dims))
        inverse = _inverse(self.out_inverse)
        yield elements(
            "rescale", self.x, out, box, scale=self.scale, zero=self.zero, inverse=inverse, out_zero=self.out_zero
        )

    @staticmethod
    def reference(x: np.ndarray, scale: float, zero: int, out_inverse: float, out_zero: int, factor: int) -> np.ndarray:
        return codes_of(values_of(shuffled(x, factor), scale, zero), _inverse(out_inverse), out_zero, LOW, HIGH)


def _inverse(inverse: float) -> float:
    """The inverse of the scale that torch makes of it: not always the same number."""
    return inverse_of(inverse_of(inverse))
