"""Softmax and its logarithm along any dim."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Kernel, Op, Tensor, add, kernel, normalize_dim, require_dtype


class Softmax(Op):
    def __init__(self, route: Kernel, logarithm: bool) -> None:
        self.route, self.logarithm = route, logarithm

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
        yield Dispatch(self.route, groups=vectors, params=params, reads=(x,), writes=(out,))

    def reference(self, x: np.ndarray, dim: int, *_: Any) -> np.ndarray:
        shifted = x - x.max(axis=dim, keepdims=True, initial=-np.inf)
        weights = np.exp(shifted)
        total = weights.sum(axis=dim, keepdims=True)
        return shifted - np.log(total) if self.logarithm else weights / total


add(Softmax(kernel("softmax/softmax.wgsl", "softmax", RESULT="exp(shifted) / sum"), False), "aten._softmax.default")
add(
    Softmax(kernel("softmax/softmax.wgsl", "log_softmax", RESULT="shifted - log(sum)"), True),
    "aten._log_softmax.default",
)
