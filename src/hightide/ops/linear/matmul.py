"""Plain matrix products."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Op, Scratch, Tensor, ceil_div, kernel, op
from hightide.ops.cost import distinct
from hightide.ops.elementwise.elementwise import broadcast
from hightide.ops.linear.routes import GEMM, LANES
from hightide.ops.movement.movement import broadcast_strides
from hightide.ops.rows import rows_alike


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
        yield matmul(ctx, self.x, self.y, out, (batches, m, k, self.y.width))

    def flops(self, dispatch: Dispatch) -> float:
        return matmul_flops(self.x, dispatch)

    @staticmethod
    def reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x @ y


@op("aten.addmm.default", "aten.addmv.default", family="matmul")
class AddProduct(Op):
    """beta * bias + alpha * (x @ y), y a matrix or a vector; the bias broadcasts, and does not count if beta is 0."""

    bias: Tensor
    x: Tensor
    y: Tensor
    beta: float = 1.0
    alpha: float = 1.0

    def outputs(self, ctx: Context) -> list[Dims]:
        bias, x, y = self.bias, self.x, self.y
        if x.rank != 2 or y.rank not in (1, 2) or x.width != y.dims[0]:
            raise InputError(f"{list(x.dims)} and {list(y.dims)} cannot be multiplied")
        dims = (x.dims[0], *y.dims[1:])
        if broadcast(bias.dims, dims) != dims:
            raise InputError(f"a bias of {list(bias.dims)} does not broadcast to {list(dims)}")
        return [dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        bias = self.bias if out.rank == 2 else Tensor(self.bias.value, (self.bias.numel, 1))
        sizes = (1, *self.x.dims, *self.y.dims[1:], 1)[:4]
        ends: dict[str, Any] = {"bias": bias if self.beta else None, "beta": self.beta, "alpha": self.alpha}
        yield matmul(ctx, self.x, self.y, out, sizes, **ends)

    def flops(self, dispatch: Dispatch) -> float:
        return matmul_flops(self.x, dispatch)

    @staticmethod
    def reference(bias: np.ndarray, x: np.ndarray, y: np.ndarray, beta: float, alpha: float) -> np.ndarray:
        if x.dtype.kind != "f":  # torch cuts the factors of integers
            beta, alpha = int(beta), int(alpha)
        return (beta * bias if beta else 0) + alpha * (x @ y)


def matmul_flops(x: Tensor, dispatch: Dispatch) -> int:
    return 2 * x.width * sum(out.numel for out in distinct(dispatch.writes))


def matmul(
    ctx: Context,
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
    given: dict[str, Any] = {
        "x": x,
        "y": y,
        "bias": bias,
        "out": out,
        "alpha": alpha,
        "beta": beta,
        "batches": batches,
        "m": m,
    }
    given["bias_m"], given["bias_n"] = (0, 0) if bias is None else broadcast_strides(bias.dims, (m, n))
    if not transposed and k and k % 4 == n % 4 == 0 and ctx.choose(GEMM) == "broadcast":
        rows = next((rows for rows in (4, 8) if m <= rows or rows_alike(ctx.choices)), 16)
        tiles = {"row_tiles": ceil_div(m, rows), "column_tiles": ceil_div(n // 4, LANES)}
        made = kernel("linear/tall_matmul.wgsl", "matmul_tall", BIAS=bias is not None, ROWS=rows)
        return made.over(batches * math.prod(tiles.values()), n4=n // 4, k4=k // 4, **tiles, **given)
    tiles = {"row_tiles": ceil_div(m, 4), "column_tiles": ceil_div(n, 4)}
    strides = {"y_batch": k * n, "y_k": 1 if transposed else n, "y_n": k if transposed else 1}
    return kernel("linear/matmul.wgsl", BIAS=bias is not None).over(
        ceil_div(batches * math.prod(tiles.values()), 64), n=n, k=k, **tiles, **strides, **given
    )
