"""Normalisations over the last dim."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Op, Tensor, kernel, op, require_dtype

RMS_NORM = kernel("norm/rms_norm.wgsl", "rms_norm", T="f32", SUM="sum")
RMS_NORM_VEC4 = kernel("norm/rms_norm.wgsl", "rms_norm_vec4", T="vec4<f32>", SUM="dot(sum, vec4<f32>(1.0))")


@op("et_vk.rms_norm.default")
class RmsNorm(Op):
    """x / sqrt(mean(x^2) + eps) * weight, over the last dim; any number of rows, none too."""

    def outputs(self, ctx: Context, x: Tensor, weight: Tensor, eps: float) -> list[Dims]:
        if not x.rank or weight.dims != x.dims[-1:]:
            raise InputError(f"rows of {x.width} do not match the norm's weight of {list(weight.dims)}")
        return [x.dims]

    def plan(self, ctx: Context, x: Tensor, weight: Tensor, eps: float, *, out: Tensor) -> Iterable[Dispatch]:
        require_dtype("f32", x, weight, out)
        if not x.numel:
            return
        route, step = (RMS_NORM_VEC4, 4) if x.width % 4 == 0 else (RMS_NORM, 1)
        params = (x.rows, x.width // step, 1.0 / x.width, float(eps))
        yield Dispatch(route, groups=x.rows, params=params, reads=(x, weight), writes=(out,))

    def reference(self, x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight
