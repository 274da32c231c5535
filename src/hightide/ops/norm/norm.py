"""Normalisations: of rows, of groups of channels, and by given statistics."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import (
    Context,
    Dispatch,
    Kernel,
    LiveInt,
    Op,
    Tensor,
    ceil_div,
    expr_of,
    kernel,
    op,
    require_dtype,
)
from hightide.ops.norm.add_norm import AddNorm
from hightide.ops.norm.rms import rms_normed
from hightide.ops.rows import row_lanes

__all__ = ["AddNorm"]  # imported for its registration


@cache
def _rms_norm(vec4: bool, lanes: int) -> Kernel:
    if vec4:
        return kernel("norm/rms_norm.wgsl", "rms_norm_vec4", T="vec4<f32>", SUM="dot(sum, vec4<f32>(1.0))", LANES=lanes)
    return kernel("norm/rms_norm.wgsl", "rms_norm", T="f32", SUM="sum", LANES=lanes)


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
        step = 4 if x.width % 4 == 0 else 1
        params = (x.rows, x.width // step, 1.0 / x.width, float(eps))
        yield Dispatch(
            _rms_norm(step == 4, row_lanes(ctx)), groups=x.rows, params=params, reads=(x, weight), writes=(out,)
        )

    def reference(self, x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
        return rms_normed(x, weight, eps)


def affine(first: int, weight: bool, bias: bool, of: str = "f32") -> dict[str, object]:
    """The defines for a weight and a bias that may be missing, bound from `first` on."""
    given = [name for name, there in (("weight", weight), ("bias", bias)) if there]
    declared = [f"@group(0) @binding({n}) var<storage, read> {a}: array<{of}>;" for n, a in enumerate(given, first)]
    return {
        "AFFINE": "\n".join(declared),
        "WEIGHT": "* weight[c]" if weight else "",
        "BIAS": "+ bias[c]" if bias else "",
        "OUT": first + len(given),
    }


@cache
def moments(vec4: bool, grouped: bool, weight: bool, bias: bool, lanes: int) -> Kernel:
    total = "dot({}, vec4<f32>(1.0))" if vec4 else "{}"
    element = "vec4<f32>" if vec4 else "f32"
    return kernel(
        "norm/moments.wgsl",
        ("group_norm" if grouped else "layer_norm") + ("_vec4" if vec4 else ""),
        T=element,
        LANES=lanes,
        COMPONENTS="4.0" if vec4 else "1.0",
        SUM_TOTAL=total.format("total"),
        SUM_SQUARES=total.format("squares"),
        CHANNEL="row % params.groups * params.channels + i / params.spatial" if grouped else "i",
        **affine(3, weight, bias, element),
    )


def present(*tensors: Tensor | None) -> tuple[Tensor, ...]:
    return tuple(t for t in tensors if t is not None)


def standardized(x: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(standardized, mean, 1 / deviation) of the rows of a matrix."""
    mean = np.sum(x, axis=1, keepdims=True) / max(x.shape[1], 1)  # torch: 0 for an empty row
    scale = 1 / np.sqrt(np.mean((x - mean) ** 2, axis=1, keepdims=True) + eps)
    return (x - mean) * scale, mean, scale


@op("aten.native_layer_norm.default")
class LayerNorm(Op):
    """Standardized over the last dims, which `shape` repeats; also the means and 1 / deviations."""

    def outputs(
        self,
        ctx: Context,
        x: Tensor,
        shape: tuple[int | LiveInt, ...],
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
    ) -> list[Dims]:
        sizes = tuple(ctx.pin(expr_of(s)) for s in shape)
        split = x.rank - len(sizes)
        if not sizes or split < 0 or x.dims[split:] != sizes:
            raise InputError(f"{list(x.dims)} does not end in the dims {list(sizes)} to normalize over")
        for t in present(weight, bias):
            if t.dims != sizes:
                raise InputError(f"a weight or bias of {list(t.dims)} for rows of {list(sizes)}")
        moment = (*x.dims[:split], *(1 for _ in sizes))
        return [x.dims, moment, moment]

    def plan(
        self,
        ctx: Context,
        x: Tensor,
        shape: tuple[int | LiveInt, ...],
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        *,
        out: tuple[Tensor, ...],
    ) -> Iterable[Dispatch]:
        require_dtype("f32", x, *present(weight, bias), *out)
        width = math.prod(x.dims[x.rank - len(shape) :])
        vec4 = width % 4 == 0
        yield Dispatch(
            moments(vec4, False, weight is not None, bias is not None, row_lanes(ctx)),
            groups=out[1].numel,
            params=(out[1].numel, width // 4 if vec4 else width, float(eps), 1, 1, 1),
            reads=(x, *present(weight, bias)),
            writes=tuple(out),
        )

    def reference(
        self, x: np.ndarray, shape: tuple[int, ...], weight: np.ndarray | None, bias: np.ndarray | None, eps: float
    ) -> tuple[np.ndarray, ...]:
        split = x.ndim - len(shape)
        rows, mean, scale = standardized(x.reshape(math.prod(x.shape[:split]), math.prod(shape)), eps)
        moment = x.shape[:split] + (1,) * len(shape)
        result = rows.reshape(x.shape) * (1 if weight is None else weight) + (0 if bias is None else bias)
        return result, mean.reshape(moment), scale.reshape(moment)


@op("aten.native_group_norm.default")
class GroupNorm(Op):
    """Standardized over each group of channels of x [N, C, ...]; also the means and 1 / deviations [N, groups].

    The call repeats N, C and the elements of a channel; x itself says what they are in this run.
    """

    def outputs(
        self,
        ctx: Context,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        batch: Any,
        channels: Any,
        spatial: Any,
        groups: int,
        eps: float,
    ) -> list[Dims]:
        if x.rank < 2 or groups < 1 or x.dims[1] % groups:
            raise InputError(f"{list(x.dims)} has no {groups} groups of channels")
        for t in present(weight, bias):
            if t.dims != x.dims[1:2]:
                raise InputError(f"a weight or bias of {list(t.dims)} for {x.dims[1]} channels")
        return [x.dims, (x.dims[0], groups), (x.dims[0], groups)]

    def plan(
        self,
        ctx: Context,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        batch: Any,
        channels: Any,
        spatial: Any,
        groups: int,
        eps: float,
        *,
        out: tuple[Tensor, ...],
    ) -> Iterable[Dispatch]:
        require_dtype("f32", x, *present(weight, bias), *out)
        area = math.prod(x.dims[2:])
        per_group = x.dims[1] // groups
        yield Dispatch(
            moments(False, True, weight is not None, bias is not None, row_lanes(ctx)),
            groups=out[1].numel,
            params=(out[1].numel, per_group * area, float(eps), groups, per_group, area),
            reads=(x, *present(weight, bias)),
            writes=tuple(out),
        )

    def reference(
        self,
        x: np.ndarray,
        weight: np.ndarray | None,
        bias: np.ndarray | None,
        batch: int,
        channels: int,
        spatial: int,
        groups: int,
        eps: float,
    ) -> tuple[np.ndarray, ...]:
        moment = (x.shape[0], groups)
        rows, mean, scale = standardized(x.reshape(x.shape[0] * groups, math.prod(x.shape[1:]) // groups), eps)
        along = (-1,) + (1,) * (x.ndim - 2)
        result = rows.reshape(x.shape) * (1 if weight is None else weight.reshape(along))
        result = result + (0 if bias is None else bias.reshape(along))
        return result, mean.reshape(moment), scale.reshape(moment)


@op("aten._native_batch_norm_legit_no_training.default")
class BatchNorm(Op):
    """Standardized by given means and variances of the channels of x [N, C, ...]; the other outputs are empty."""

    def outputs(
        self,
        ctx: Context,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        *_: Any,
    ) -> list[Dims]:
        for t in present(weight, bias, mean, variance):
            if x.rank < 2 or t.dims != x.dims[1:2]:
                raise InputError(f"statistics or weights of {list(t.dims)} for {list(x.dims)}")
        return [x.dims, (0,), (0,)]

    def plan(
        self,
        ctx: Context,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        momentum: float,
        eps: float,
        *,
        out: tuple[Tensor, ...],
    ) -> Iterable[Dispatch]:
        require_dtype("f32", x, mean, variance, *present(weight, bias), *out)
        yield Dispatch(
            kernel("norm/batch_norm.wgsl", **affine(5, weight is not None, bias is not None)),
            groups=ceil_div(x.numel, 64),
            params=(x.numel, x.dims[1], math.prod(x.dims[2:]), float(eps)),
            reads=(x, mean, variance, *present(weight, bias)),
            writes=out[:1],
        )

    def reference(
        self,
        x: np.ndarray,
        weight: np.ndarray | None,
        bias: np.ndarray | None,
        mean: np.ndarray,
        variance: np.ndarray,
        momentum: float,
        eps: float,
    ) -> tuple[np.ndarray, ...]:
        along = (-1,) + (1,) * (x.ndim - 2)
        result = (x - mean.reshape(along)) / np.sqrt(variance.reshape(along) + eps)
        result = result * (1 if weight is None else weight.reshape(along))
        return result + (0 if bias is None else bias.reshape(along)), np.zeros(0), np.zeros(0)
