"""Normalisations: of rows, of groups of channels, and by given statistics."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Int, Kernel, Op, Scratch, Tensor, ceil_div, kernel, op
from hightide.ops.reduce.reduce import mean_of, variance_of
from hightide.ops.rows import row_lanes


def rms_normed(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight)


def rms_norm(
    ctx: Context, x: Tensor | Scratch, rows: int, width: int, weight: Tensor, eps: float, out: Tensor | Scratch
) -> Dispatch:
    step = 4 if width % 4 == 0 else 1
    made = _rms_norm(step == 4, row_lanes(ctx, width // step))
    return made.over(rows, x=x, weight=weight, out=out, rows=rows, width=width // step, mean=1 / width, eps=eps)


@cache
def _rms_norm(vec4: bool, lanes: int) -> Kernel:
    return kernel("norm/rms_norm.wgsl", "rms_norm_vec4" if vec4 else "rms_norm", VEC4=vec4, LANES=lanes)


@op("et_vk.rms_norm.default", family="norm")
class RmsNorm(Op):
    """x / sqrt(mean(x^2) + eps) * weight, over the last dim; any number of rows, none too."""

    x: Tensor
    weight: Tensor
    eps: float

    def outputs(self, ctx: Context) -> list[Dims]:
        check_weight(self.x, self.weight)
        return [self.x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        if self.x.numel:
            yield rms_norm(ctx, self.x, self.x.rows, self.x.width, self.weight, self.eps, out)

    reference = staticmethod(rms_normed)


@op("hightide.add_norm.default", family="norm")
class AddNorm(Op):
    """(x + h, rms_norm(x + h) * weight); with `inner_weight`, h is first normed by it. Passes put it into graphs."""

    x: Tensor
    h: Tensor
    weight: Tensor
    eps: float
    inner_weight: Tensor | None = None
    inner_eps: float = 0.0

    def outputs(self, ctx: Context) -> list[Dims]:
        x, h = self.x, self.h
        if not x.rank or x.dims != h.dims:
            raise InputError(f"a residual of {list(h.dims)} does not go with {list(x.dims)}")
        for weight in present(self.weight, self.inner_weight):
            check_weight(x, weight)
        return [x.dims, x.dims]

    def plan(self, ctx: Context, out: tuple[Tensor, Tensor]) -> Iterable[Dispatch]:
        x = self.x
        if not x.numel:
            return
        step = 4 if x.width % 4 == 0 else 1
        yield _add_norm(step == 4, self.inner_weight is not None, row_lanes(ctx, x.width // step)).over(
            x.rows,
            x=x,
            h=self.h,
            weight=self.weight,
            inner=self.inner_weight,
            total=out[0],
            normed=out[1],
            rows=x.rows,
            width=x.width // step,
            mean=1 / x.width,
            inner_eps=self.inner_eps,
            eps=self.eps,
        )

    @staticmethod
    def reference(
        x: np.ndarray, h: np.ndarray, weight: np.ndarray, eps: float, inner_weight: np.ndarray | None, inner_eps: float
    ) -> tuple[np.ndarray, np.ndarray]:
        total = x + (h if inner_weight is None else rms_normed(h, inner_weight, inner_eps))
        return total, rms_normed(total, weight, eps)


@cache
def _add_norm(vec4: bool, inner: bool, lanes: int) -> Kernel:
    name = ("add_norm_of_norm" if inner else "add_norm") + ("_vec4" if vec4 else "")
    return kernel("norm/add_norm.wgsl", name, VEC4=vec4, INNER=inner, LANES=lanes)


@cache
def _moments(vec4: bool, grouped: bool, weight: bool, bias: bool, lanes: int) -> Kernel:
    name = ("group_norm" if grouped else "layer_norm") + ("_vec4" if vec4 else "")
    return kernel("norm/moments.wgsl", name, VEC4=vec4, GROUPED=grouped, WEIGHT=weight, BIAS=bias, LANES=lanes)


@op("aten.native_layer_norm.default", family="norm")
class LayerNorm(Op):
    """Standardized over the last dims, which `shape` repeats; also the means and 1 / deviations."""

    x: Tensor
    shape: tuple[Int, ...]
    weight: Tensor | None
    bias: Tensor | None
    eps: float

    def outputs(self, ctx: Context) -> list[Dims]:
        x = self.x
        sizes = tuple(ctx.pin(s) for s in self.shape)
        split = x.rank - len(sizes)
        if not sizes or split < 0 or x.dims[split:] != sizes:
            raise InputError(f"{list(x.dims)} does not end in the dims {list(sizes)} to normalize over")
        for t in present(self.weight, self.bias):
            if t.dims != sizes:
                raise InputError(f"a weight or bias of {list(t.dims)} for rows of {list(sizes)}")
        moment = (*x.dims[:split], *(1 for _ in sizes))
        return [x.dims, moment, moment]

    def plan(self, ctx: Context, out: tuple[Tensor, ...]) -> Iterable[Dispatch]:
        x = self.x
        width = math.prod(x.dims[x.rank - len(self.shape) :])
        step = 4 if width % 4 == 0 else 1
        yield _moments(step == 4, False, self.weight is not None, self.bias is not None, row_lanes(ctx)).over(
            out[1].numel,
            **_bound(x, self.weight, self.bias, out),
            rows=out[1].numel,
            width=width // step,
            eps=self.eps,
            groups=1,
            channels=1,
            spatial=1,
        )

    @staticmethod
    def reference(
        x: np.ndarray, shape: tuple[int, ...], weight: np.ndarray | None, bias: np.ndarray | None, eps: float
    ) -> tuple[np.ndarray, ...]:
        split = x.ndim - len(shape)
        rows, mean, scale = standardized(x.reshape(math.prod(x.shape[:split]), math.prod(shape)), eps)
        moment = x.shape[:split] + (1,) * len(shape)
        result = rows.reshape(x.shape) * (1 if weight is None else weight) + (0 if bias is None else bias)
        return result, mean.reshape(moment), scale.reshape(moment)


@op("aten.native_group_norm.default", family="norm")
class GroupNorm(Op):
    """Standardized over each group of channels of x [N, C, ...]; also the means and 1 / deviations [N, groups].

    The call repeats N, C and the elements of a channel; x itself says what they are in this run.
    """

    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    batch: Int
    channels: Int
    spatial: Int
    groups: int
    eps: float

    def outputs(self, ctx: Context) -> list[Dims]:
        x, groups = self.x, self.groups
        if x.rank < 2 or groups < 1 or x.dims[1] % groups:
            raise InputError(f"{list(x.dims)} has no {groups} groups of channels")
        for t in present(self.weight, self.bias):
            if t.dims != x.dims[1:2]:
                raise InputError(f"a weight or bias of {list(t.dims)} for {x.dims[1]} channels")
        return [x.dims, (x.dims[0], groups), (x.dims[0], groups)]

    def plan(self, ctx: Context, out: tuple[Tensor, ...]) -> Iterable[Dispatch]:
        x, rows = self.x, out[1].numel
        area, channels = math.prod(x.dims[2:]), x.dims[1] // self.groups
        yield _moments(False, True, self.weight is not None, self.bias is not None, row_lanes(ctx)).over(
            rows,
            **_bound(x, self.weight, self.bias, out),
            rows=rows,
            width=channels * area,
            eps=self.eps,
            groups=self.groups,
            channels=channels,
            spatial=area,
        )

    @staticmethod
    def reference(
        x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, groups: int, eps: float
    ) -> tuple[np.ndarray, ...]:
        moment = (x.shape[0], groups)
        rows, mean, scale = standardized(x.reshape(x.shape[0] * groups, math.prod(x.shape[1:]) // groups), eps)
        return _affine(rows.reshape(x.shape), weight, bias), mean.reshape(moment), scale.reshape(moment)


class ByStatistics(Op):
    """Standardized by given means and variances of the channels of x [N, C, ...]; the other outputs are empty."""

    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    mean: Tensor
    variance: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        x = self.x
        for t in present(self.weight, self.bias, self.mean, self.variance):
            if x.rank < 2 or t.dims != x.dims[1:2]:
                raise InputError(f"statistics or weights of {list(t.dims)} for {list(x.dims)}")
        return [x.dims, (0,), (0,)]

    def plan(self, ctx: Context, out: tuple[Tensor, ...]) -> Iterable[Dispatch]:
        eps: float = self.arguments()["eps"]
        yield by_channel(self.x, self.mean, self.variance, self.weight, self.bias, out[0], eps)

    @staticmethod
    def reference(
        x: np.ndarray,
        weight: np.ndarray | None,
        bias: np.ndarray | None,
        mean: np.ndarray,
        variance: np.ndarray,
        eps: float,
    ) -> tuple[np.ndarray, ...]:
        along = (-1,) + (1,) * (x.ndim - 2)
        result = (x - mean.reshape(along)) / np.sqrt(variance.reshape(along) + eps)
        return _affine(result, weight, bias), np.zeros(0), np.zeros(0)


@op("aten._native_batch_norm_legit_no_training.default", family="norm")
class BatchNorm(ByStatistics):
    """Standardized by given means and variances of the channels of x [N, C, ...]; the other outputs are empty."""

    momentum: float
    eps: float


@op("aten._native_batch_norm_legit.default", family="norm")
class BatchNormNotTraining(ByStatistics):
    """The same, of a model that could be trained; refused where it is."""

    training: bool
    momentum: float
    eps: float

    def outputs(self, ctx: Context) -> list[Dims]:
        if self.training:
            raise UnsupportedError("a batch norm that updates its statistics; export the model with .eval()")
        return super().outputs(ctx)


@op("aten._native_batch_norm_legit.no_stats", family="norm")
class BatchNormOfBatch(Op):
    """Standardized by the means and variances of the channels of x [N, C, ...]; also the means and 1 / deviations."""

    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    training: bool  # the batch has the only statistics either way
    momentum: float
    eps: float

    def outputs(self, ctx: Context) -> list[Dims]:
        x = self.x
        if x.rank < 2:
            raise InputError(f"{list(x.dims)} has no channels")
        for t in present(self.weight, self.bias):
            if t.dims != x.dims[1:2]:
                raise InputError(f"a weight or bias of {list(t.dims)} for {x.dims[1]} channels")
        return [x.dims, x.dims[1:2], x.dims[1:2]]

    def plan(self, ctx: Context, out: tuple[Tensor, ...]) -> Iterable[Dispatch]:
        x, dims = self.x, [d for d in range(self.x.rank) if d != 1]
        yield mean_of(x, dims, out[1])
        yield variance_of(x, dims, 0, out[2], eps=self.eps)
        yield by_channel(x, out[1], out[2], self.weight, self.bias, out[0], eps=None)

    @staticmethod
    def reference(
        x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
    ) -> tuple[np.ndarray, ...]:
        dims, along = tuple(d for d in range(x.ndim) if d != 1), (-1,) + (1,) * (x.ndim - 2)
        if not x.size:
            return x, np.full(x.shape[1], np.nan), np.full(x.shape[1], np.nan)
        mean, scale = np.mean(x, dims), 1 / np.sqrt(np.var(x, dims) + eps)
        return _affine((x - mean.reshape(along)) * scale.reshape(along), weight, bias), mean, scale


def by_channel(
    x: Tensor,
    mean: Tensor,
    spread: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    out: Tensor,
    eps: float | None,
) -> Dispatch:
    """x standardized by means of its channels and what they spread: variances, or without `eps` 1 / deviations."""
    route = kernel("norm/batch_norm.wgsl", WEIGHT=weight is not None, BIAS=bias is not None, SCALES=eps is None)
    tensors = {"x": x, "means": mean, "spreads": spread, "weight": weight, "bias": bias, "out": out}
    numbers = {"numel": x.numel, "channels": x.dims[1], "spatial": math.prod(x.dims[2:]), "eps": eps}
    return route.over(ceil_div(x.numel, 64), **tensors, **numbers)


def check_weight(x: Tensor, weight: Tensor) -> None:
    if not x.rank or weight.dims != x.dims[-1:]:
        raise InputError(f"rows of {x.width} do not match the norm's weight of {list(weight.dims)}")


def present(*tensors: Tensor | None) -> tuple[Tensor, ...]:
    return tuple(t for t in tensors if t is not None)


def _bound(x: Tensor, weight: Tensor | None, bias: Tensor | None, out: tuple[Tensor, ...]) -> dict[str, Any]:
    """What moments.wgsl reads and writes."""
    return {"x": x, "weight": weight, "bias": bias, "out": out[0], "means": out[1], "scales": out[2]}


def standardized(x: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(standardized, mean, 1 / deviation) of the rows of a matrix."""
    mean = np.sum(x, axis=1, keepdims=True) / max(x.shape[1], 1)  # torch: 0 for an empty row
    scale = 1 / np.sqrt(np.mean((x - mean) ** 2, axis=1, keepdims=True) + eps)
    return (x - mean) * scale, mean, scale


def _affine(x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None) -> np.ndarray:
    """x * weight + bias, by channels."""
    along = (-1,) + (1,) * (x.ndim - 2)
    return x * (1 if weight is None else weight.reshape(along)) + (0 if bias is None else bias.reshape(along))
