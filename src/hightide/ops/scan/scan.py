"""Running sums and products along a dim."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from hightide.errors import UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.arguments import ignores
from hightide.ops.contract import GPU_TYPE, Context, Dispatch, Op, Scratch, Tensor, ceil_div, kernel, normalize_dim, op
from hightide.ops.reduce.reduce import HELD, lanes_for
from hightide.ops.vectors import vectors_along


class Running(Op):
    """The elements up to each, along `dim`, joined."""

    x: Tensor
    dim: int
    join: ClassVar[str]
    accumulate: ClassVar[Any]  # the same of NumPy

    def outputs(self, ctx: Context) -> list[Dims]:
        normalize_dim(self.dim, self.x.rank)
        return [self.x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        kind, to = HELD.get(self.x.dtype), GPU_TYPE.get(out.dtype)
        if kind not in ("f32", "i32", "u8", "i8") or to not in ("f32", "i32") or (kind == "f32" and to == "i32"):
            raise UnsupportedError(f"joining {self.x.dtype} up to each in {out.dtype} has no kernel")
        vectors = vectors_along(self.x, self.dim)
        yield running(self.join, kind, to, self.x, (vectors.rows, vectors.count, vectors.stride), out)

    @classmethod
    def reference(cls, x: np.ndarray, dim: int) -> np.ndarray:
        return cls.accumulate(x, dim).reshape(x.shape)


def running(
    join: str, kind: str, to: str, x: Tensor | Scratch, vectors: tuple[int, int, int], out: Tensor | Scratch
) -> Dispatch:
    """So many vectors, of so many elements, so far apart, joined up to each; x is held as `kind`, out as `to`."""
    rows, count, stride = vectors
    lanes = lanes_for(count, rows, contiguous=stride == 1)
    name = f"{'cumsum' if join == '+' else 'cumprod'}_{lanes}_lanes"
    return kernel("scan/running.wgsl", name, KIND=kind, OUT=to, LANES=lanes, JOIN=join).over(
        ceil_div(rows, 64 // lanes) if count else 0,
        x=x,
        out=out,
        vectors=rows,
        count=count,
        stride=stride,
        span=ceil_div(count, lanes),
    )


@op("aten.cumsum.default", family="scan")
@ignores("dtype")
class CumSum(Running):
    """The sum of the elements up to each, along `dim`."""

    join, accumulate = "+", staticmethod(np.cumsum)


@op("aten.cumprod.default", family="scan")
@ignores("dtype")
class CumProd(Running):
    """The product of the elements up to each, along `dim`."""

    join, accumulate = "*", staticmethod(np.cumprod)
