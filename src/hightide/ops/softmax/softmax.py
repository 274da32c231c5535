"""Softmax and its logarithm along any dim."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import ClassVar

import numpy as np

from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Kernel, Op, Tensor, kernel, normalize_dim, op
from hightide.ops.rows import row_lanes


def _softmax(x: np.ndarray, dim: int, log: bool = False) -> np.ndarray:
    if not x.size:
        return x
    shifted = x - x.max(axis=dim, keepdims=True, initial=-np.inf)
    weights = np.exp(shifted)
    total = weights.sum(axis=dim, keepdims=True)
    return np.asarray(shifted - np.log(total) if log else weights / total)


@op("aten._softmax.default", family="softmax")
class Softmax(Op):
    """exp(x) / sum(exp(x)) along a dim."""

    x: Tensor
    dim: int
    half_to_float: bool = False  # the output says it
    log: ClassVar[bool] = False

    def outputs(self, ctx: Context) -> list[Dims]:
        normalize_dim(self.dim, self.x.rank)
        return [self.x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        x = self.x
        if not x.numel:
            return
        dim = normalize_dim(self.dim, x.rank)
        size = x.dims[dim] if x.rank else 1
        vectors, stride = x.numel // size, math.prod(x.dims[dim + 1 :])
        route = _route(self.log, row_lanes(ctx))
        yield route.over(vectors, vectors=vectors, size=size, stride=stride, x=x, out=out)

    reference = staticmethod(lambda x, dim: _softmax(x, dim))


@op("aten._log_softmax.default", family="softmax")
class LogSoftmax(Softmax):
    """The logarithm of the softmax."""

    log = True
    reference = staticmethod(lambda x, dim: _softmax(x, dim, log=True))


@cache
def _route(log: bool, lanes: int) -> Kernel:
    return kernel("softmax/softmax.wgsl", "log_softmax" if log else "softmax", LOG=log, LANES=lanes)
