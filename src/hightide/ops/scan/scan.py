"""Running sums along a dim."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from hightide.errors import UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.arguments import ignores
from hightide.ops.contract import GPU_TYPE, Context, Dispatch, Op, Tensor, ceil_div, kernel, normalize_dim, op
from hightide.ops.reduce.reduce import HELD, lanes_for


@op("aten.cumsum.default", family="scan")
@ignores("dtype")
class CumSum(Op):
    """The sum of the elements up to each, along `dim`."""

    x: Tensor
    dim: int

    def outputs(self, ctx: Context) -> list[Dims]:
        normalize_dim(self.dim, self.x.rank)
        return [self.x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        kind, to = HELD.get(self.x.dtype), GPU_TYPE.get(out.dtype)
        if kind not in ("f32", "i32", "u8", "i8") or to not in ("f32", "i32") or (kind == "f32" and to == "i32"):
            raise UnsupportedError(f"running sums of {self.x.dtype} in {out.dtype} have no kernel")
        vectors, count, stride = vectors_along(self.x, self.dim)
        lanes = lanes_for(count, vectors, contiguous=stride == 1)
        yield kernel("scan/cumsum.wgsl", f"cumsum_{lanes}_lanes", KIND=kind, OUT=to, LANES=lanes).over(
            ceil_div(vectors, 64 // lanes) if count else 0,
            x=self.x,
            out=out,
            vectors=vectors,
            count=count,
            stride=stride,
            span=ceil_div(count, lanes),
        )

    @staticmethod
    def reference(x: np.ndarray, dim: int) -> np.ndarray:
        return np.cumsum(x, dim).reshape(x.shape)


def vectors_along(x: Tensor, dim: int) -> tuple[int, int, int]:
    """A tensor as vectors along a dim: how many, of how many elements, and how far apart these lie."""
    dims, dim = x.dims or (1,), normalize_dim(dim, x.rank)
    return math.prod(dims[:dim]) * math.prod(dims[dim + 1 :]), dims[dim], math.prod(dims[dim + 1 :])
