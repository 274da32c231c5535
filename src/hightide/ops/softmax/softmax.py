"""Softmax and its logarithm along any dim."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from hightide.graph.values import Dims
from hightide.ops.legacy import Context, Dispatch, Kernel, Op, Tensor, add, kernel, normalize_dim, require_dtype
from hightide.ops.rows import row_lanes


class Softmax(Op):
    def __init__(self, logarithm: bool) -> None:
        self.logarithm = logarithm

    def outputs(self, ctx: Context, x: Tensor, dim: int, *_: Any) -> list[Dims]:
        normalize_dim(dim, x.rank)
        return [x.dims]

    def plan(self, ctx: Context, x: Tensor, dim: int, *_: Any, out: Tensor) -> Iterable[Dispatch]:
        require_dtype("f32", x, out)
        if not x.numel:
            return
        dim = normalize_dim(dim, x.rank)
        size = x.dims[dim] if x.rank else 1
        vectors = x.numel // size
        params = (vectors, size, math.prod(x.dims[dim + 1 :]))
        route = _softmax(self.logarithm, row_lanes(ctx))
        yield Dispatch(route, groups=vectors, params=params, reads=(x,), writes=(out,))

    def reference(self, x: np.ndarray, dim: int, *_: Any) -> np.ndarray:
        if not x.size:
            return x
        shifted = x - x.max(axis=dim, keepdims=True, initial=-np.inf)
        weights = np.exp(shifted)
        total = weights.sum(axis=dim, keepdims=True)
        return shifted - np.log(total) if self.logarithm else weights / total


@cache
def _softmax(logarithm: bool, lanes: int) -> Kernel:
    name, result = ("log_softmax", "shifted - log(sum)") if logarithm else ("softmax", "exp(shifted) / sum")
    return kernel("softmax/softmax.wgsl", name, RESULT=result, LANES=lanes)


add(Softmax(False), "aten._softmax.default")
add(Softmax(True), "aten._log_softmax.default")
