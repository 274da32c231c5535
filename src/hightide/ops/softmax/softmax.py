"""Softmax and its logarithm along any dim."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import ClassVar

import numpy as np

from hightide.graph.values import Dims
from hightide.ops.contract import FUNCTION, Context, Dispatch, Kernel, Op, Tensor, kernel, normalize_dim, op
from hightide.ops.rows import row_lanes


@op("aten._softmax.default", family="softmax", tolerance=FUNCTION)
class Softmax(Op):
    """exp(x) / sum(exp(x)) along a dim."""

    x: Tensor
    dim: int
    half_to_float: bool = False
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
        vectors = x.numel // size
        yield _softmax(self.log, row_lanes(ctx)).over(
            vectors, vectors=vectors, size=size, stride=math.prod(x.dims[dim + 1 :]), x=x, out=out
        )

    @staticmethod
    def reference(x: np.ndarray, dim: int) -> np.ndarray:
        if not x.size:
            return x
        weights = np.exp(_shifted(x, dim))
        return np.asarray(weights / weights.sum(axis=dim, keepdims=True))


@op("aten._log_softmax.default", family="softmax", tolerance=FUNCTION)
class LogSoftmax(Softmax):
    """The logarithm of the softmax along a dim."""

    log = True

    @staticmethod
    def reference(x: np.ndarray, dim: int) -> np.ndarray:
        if not x.size:
            return x
        shifted = _shifted(x, dim)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=dim, keepdims=True)))


def _shifted(x: np.ndarray, dim: int) -> np.ndarray:
    return np.asarray(x - x.max(axis=dim, keepdims=True, initial=-np.inf))


@cache
def _softmax(log: bool, lanes: int) -> Kernel:
    return kernel("softmax/softmax.wgsl", "log_softmax" if log else "softmax", LOG=log, LANES=lanes)
