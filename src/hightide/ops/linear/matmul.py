"""Plain matrix products."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Op, Scratch, Tensor, ceil_div, kernel, op
from hightide.ops.cost import distinct
from hightide.ops.elementwise.elementwise import broadcast
from hightide.ops.movement.movement import broadcast_strides


@op("aten.mm.default", "aten.bmm.default", family="matmul")
class MatMul(Op):
    """Matrices [M, K] @ [K, N], or batches of them."""

    x: Tensor
    y: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        x, y = self.x, self.y
        if x.rank != y.rank or x.rank not in (2, 3) or x.dims[:-2] != y.dims[:-2] or x.width != y.dims[-2]:
            raise InputError(f"{list(x.dims)} and {list(y.dims)} cannot be multiplied")
        return [(*x.dims[:-1], y.width)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        batches, m, k = (1, *self.x.dims)[-3:]
        yield matmul(self.x, self.y, out, (batches, m, k, self.y.width))

    def flops(self, dispatch: Dispatch) -> float:
        return matmul_flops(self.x, dispatch)

    @staticmethod
    def reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x @ y


@op("aten.addmm.default", family="matmul")
class AddMm(Op):
    """beta * bias + alpha * (x @ y); the bias broadcasts."""

    bias: Tensor
    x: Tensor
    y: Tensor
    beta: float = 1.0
    alpha: float = 1.0

    def outputs(self, ctx: Context) -> list[Dims]:
        bias, x, y = self.bias, self.x, self.y
        if x.rank != 2 or y.rank != 2 or x.width != y.dims[0]:
            raise InputError(f"{list(x.dims)} and {list(y.dims)} cannot be multiplied")
        dims = (x.dims[0], y.width)
        if broadcast(bias.dims, dims) != dims:
            raise InputError(f"a bias of {list(bias.dims)} does not broadcast to {list(dims)}")
        return [dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        sizes = (1, *self.x.dims, self.y.width)
        yield matmul(self.x, self.y, out, sizes, bias=self.bias, beta=self.beta, alpha=self.alpha)

    def flops(self, dispatch: Dispatch) -> float:
        return matmul_flops(self.x, dispatch)

    @staticmethod
    def reference(bias: np.ndarray, x: np.ndarray, y: np.ndarray, beta: float, alpha: float) -> np.ndarray:
        return beta * bias + alpha * (x @ y)


@op("aten.addmv.default", family="matmul")
class AddMv(Op):
    """beta * bias + alpha * (x @ vector); the bias broadcasts, and does not count where beta is 0."""

    bias: Tensor
    x: Tensor
    vector: Tensor
    beta: float = 1.0
    alpha: float = 1.0

    def outputs(self, ctx: Context) -> list[Dims]:
        bias, x, vector = self.bias, self.x, self.vector
        if x.rank != 2 or vector.rank != 1 or x.width != vector.dims[0]:
            raise InputError(f"{list(x.dims)} and {list(vector.dims)} cannot be multiplied")
        if broadcast(bias.dims, x.dims[:1]) != x.dims[:1]:
            raise InputError(f"a bias of {list(bias.dims)} does not broadcast to {list(x.dims[:1])}")
        return [x.dims[:1]]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        column = Tensor(self.bias.value, (self.bias.numel, 1)) if self.beta else None
        sizes = (1, *self.x.dims, 1)
        yield matmul(self.x, self.vector, out, sizes, bias=column, beta=self.beta, alpha=self.alpha)

    def flops(self, dispatch: Dispatch) -> float:
        return matmul_flops(self.x, dispatch)

    @staticmethod
    def reference(bias: np.ndarray, x: np.ndarray, vector: np.ndarray, beta: float, alpha: float) -> np.ndarray:
        if x.dtype.kind != "f":  # torch cuts the factors of integers
            beta, alpha = int(beta), int(alpha)
        return (beta * bias if beta else 0) + alpha * (x @ vector)


def matmul_flops(x: Tensor, dispatch: Dispatch) -> int:
    return 2 * x.width * sum(out.numel for out in distinct(dispatch.writes))


def matmul(
    x: Tensor | Scratch,
    y: Tensor,
    out: Tensor | Scratch,
    sizes: tuple[int, ...],
    *,
    transposed: bool = False,
    bias: Tensor | None = None,
    beta: float = 1.0,
    alpha: float = 1.0,
) -> Dispatch:
    """alpha * (x @ y) + beta * bias, of sizes (batches, M, K, N); y is [K, N], or [N, K] if `transposed`."""
    batches, m, k, n = sizes
    row_tiles, column_tiles = ceil_div(m, 4), ceil_div(n, 4)
    bias_m, bias_n = (0, 0) if bias is None else broadcast_strides(bias.dims, (m, n))
    return kernel("linear/matmul.wgsl", BIAS=bias is not None).over(
        ceil_div(batches * row_tiles * column_tiles, 64),
        x=x,
        y=y,
        bias=bias,
        out=out,
        batches=batches,
        m=m,
        n=n,
        k=k,
        row_tiles=row_tiles,
        column_tiles=column_tiles,
        y_batch=k * n,
        y_k=1 if transposed else n,
        y_n=k if transposed else 1,
        bias_m=bias_m,
        bias_n=bias_n,
        alpha=alpha,
        beta=beta,
    )
