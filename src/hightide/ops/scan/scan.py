"""Running sums and products along a dim."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from hightide.errors import UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.arguments import ignores
from hightide.ops.contract import GPU_TYPE, Context, Dispatch, Op, Tensor, ceil_div, kernel, normalize_dim, op
from hightide.ops.reduce.reduce import HELD, lanes_for
from hightide.ops.vectors import vectors_along


class Running(Op):
    """The elements up to each, along `dim`, joined."""

    x: Tensor
    dim: int
    join: ClassVar[str]

    def outputs(self, ctx: Context) -> list[Dims]:
        normalize_dim(self.dim, self.x.rank)
        return [self.x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        kind, to = HELD.get(self.x.dtype), GPU_TYPE.get(out.dtype)
        if kind not in ("f32", "i32", "u8", "i8") or to not in ("f32", "i32") or (kind == "f32" and to == "i32"):
            raise UnsupportedError(f"joining {self.x.dtype} up to each in {out.dtype} has no kernel")
        vectors = vectors_along(self.x, self.dim)
        lanes = lanes_for(vectors.count, vectors.rows, contiguous=vectors.stride == 1)
        name = "cumsum" if self.join == "+" else "cumprod"
        yield kernel("scan/running.wgsl", f"{name}_{lanes}_lanes", KIND=kind, OUT=to, LANES=lanes, JOIN=self.join).over(
            ceil_div(vectors.rows, 64 // lanes) if vectors.count else 0,
            x=self.x,
            out=out,
            vectors=vectors.rows,
            count=vectors.count,
            stride=vectors.stride,
            span=ceil_div(vectors.count, lanes),
        )


@op("aten.cumsum.default", family="scan")
@ignores("dtype")
class CumSum(Running):
    """The sum of the elements up to each, along `dim`."""

    join = "+"

    @staticmethod
    def reference(x: np.ndarray, dim: int) -> np.ndarray:
        return np.cumsum(x, dim).reshape(x.shape)


@op("aten.cumprod.default", family="scan")
@ignores("dtype")
class CumProd(Running):
    """The product of the elements up to each, along `dim`."""

    join = "*"

    @staticmethod
    def reference(x: np.ndarray, dim: int) -> np.ndarray:
        return np.cumprod(x, dim).reshape(x.shape)
