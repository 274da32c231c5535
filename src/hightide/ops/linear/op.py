"""Products of matrices: 4-bit linears, float linears, and plain matrix products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.blocks.dispatch import block_linear
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.contract import Binding, Context, Dispatch, Kernel, Op, Tensor, ceil_div, kernel, op, require_dtype
from hightide.ops.elementwise.op import broadcast
from hightide.ops.linear.tiles import LANES, bias_defines, given, rows_per_thread
from hightide.ops.movement.op import broadcast_strides


@op("et_vk.linear_q4gsw.default")
class LinearQ4(Op):
    """x @ dequantised(weight).T + bias.

    weight: bytes [N, >= K/2], low nibble first, value - 8; scales: [K/group, >= N].
    """

    def outputs(
        self, ctx: Context, x: Tensor, weight: Tensor, scales: Tensor, group: int, bias: Tensor | None = None
    ) -> list[Dims]:
        check_bias(bias, weight.dims[0], padded=True)
        return q4_output(x, weight, scales, group)

    def plan(
        self,
        ctx: Context,
        x: Tensor,
        weight: Tensor,
        scales: Tensor,
        group: int,
        bias: Tensor | None = None,
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        require_dtype("f32", x)
        return q4_dispatch(x, x, weight, scales, group, bias, out)

    def reference(
        self, x: np.ndarray, weight: np.ndarray, scales: np.ndarray, group: int, bias: np.ndarray | None = None
    ) -> np.ndarray:
        return q4_reference(x, weight, scales, group, bias)


def q4_output(x: Tensor, weight: Tensor, scales: Tensor, group: int) -> list[Dims]:
    k, n = x.width, weight.dims[0]
    if not x.rank or k > weight.dims[1] * 2:
        raise InputError(f"rows of {k} do not fit a 4-bit weight of {weight.dims[1] * 2} columns")
    if group < 1 or ceil_div(k, group) > scales.dims[0] or n > scales.dims[1]:
        raise InputError(f"scales of {list(scales.dims)} do not cover {n} columns of {k} in groups of {group}")
    if k != x.value.dims[-1]:  # rows of the weight may be padded, so that they do not tell K
        raise InputError(f"rows of {k} do not fit a weight for rows of {x.value.dims[-1]}")
    return [(*x.dims[:-1], n)]


def q4_dispatch(
    x: Tensor, source: Binding, weight: Tensor, scales: Tensor, group: int, bias: Tensor | None, out: Tensor
) -> Iterator[Dispatch]:
    """The product for activations in `source`, which have the dims of `x`."""
    require_dtype("f32", scales, out, *given(bias))
    require_dtype("u8", weight)
    m, k, n = x.rows, x.width, out.width
    row_bytes, scale_row = weight.dims[1], scales.dims[1]
    reads = (source, *given(weight, scales, bias))
    if not out.numel:
        return
    if k % 32 == 0 and group % 32 == 0 and k % group == 0 and row_bytes % 16 == 0:
        rows, shape = rows_per_thread(m)
        row_tiles, column_tiles = ceil_div(m, rows), ceil_div(n, 4)
        yield Dispatch(
            _q4_tile(rows, shape, bias is not None),
            groups=ceil_div(row_tiles * column_tiles, LANES),
            params=(m, n, k, row_bytes // 16, group, scale_row, row_tiles, column_tiles),
            reads=reads,
            writes=(out,),
        )
    else:
        yield Dispatch(
            kernel("linear/q4_any.wgsl", **bias_defines(bias, 5, "total += bias[column];")),
            groups=ceil_div(m * n, 64),
            params=(m, n, k, row_bytes, group, scale_row),
            reads=reads,
            writes=(out,),
        )


@cache
def _q4_tile(rows: int, shape: str, bias: bool) -> Kernel:
    defines = bias_defines(bias, 5, "value += bias[column + c];")
    return kernel("linear/q4_tile.wgsl", f"q4_{shape}", ROWS=rows, LANES=LANES, **defines)


def q4_reference(
    x: np.ndarray, weight: np.ndarray, scales: np.ndarray, group: int, bias: np.ndarray | None
) -> np.ndarray:
    n, k = weight.shape[0], x.shape[-1]
    values = np.stack([weight & 15, weight >> 4], axis=-1).reshape(n, -1)[:, :k].astype(np.int8) - 8
    scale = np.repeat(scales[:, :n].T, group, axis=1)[:, :k]
    product = x @ (values * scale).T.astype(x.dtype)
    return product if bias is None else product + bias[:n]


Weight = Tensor | tuple[Tensor, ...]  # one tensor, or its rows in several, each within the binding limit


def check_bias(bias: Tensor | None, n: int, padded: bool = False) -> None:
    """One element per column; exporters pad the bias of a quantised linear."""
    if bias is not None and (bias.rank != 1 or bias.width < n or (bias.width > n and not padded)):
        raise InputError(f"a bias of {list(bias.dims)} does not fit {n} columns")


def parts_of(weight: Weight) -> tuple[Tensor, ...]:
    return weight if isinstance(weight, tuple) else (weight,)


@op("aten.linear.default")
class Linear(Op):
    """x @ weight.T + bias, with weight [N, K] in float or in GGUF blocks."""

    def outputs(self, ctx: Context, x: Tensor, weight: Weight, bias: Tensor | None = None) -> list[Dims]:
        parts = parts_of(weight)
        if not x.rank or any(part.rank != 2 or x.width != part.dims[1] for part in parts):
            raise InputError(f"{list(x.dims)} does not fit a weight of {list(parts[0].dims)}")
        n = sum(part.dims[0] for part in parts)
        check_bias(bias, n)
        return [(*x.dims[:-1], n)]

    def plan(
        self, ctx: Context, x: Tensor, weight: Weight, bias: Tensor | None = None, *, out: Tensor
    ) -> Iterable[Dispatch]:
        if not out.numel:
            return
        if isinstance(weight, tuple) or weight.dtype in BLOCK_TYPES:
            yield from block_linear(x, parts_of(weight), bias, out)
            return
        m, k, n = x.rows, x.width, out.width
        if k % 4 or not k:
            yield _matmul(x, weight, bias, out, batches=1, m=m, k=k, y_strides=(0, 1, k), bias_dims=(n,))
            return
        require_dtype("f32", x, weight, out, *given(bias))
        rows, shape = rows_per_thread(m)
        row_tiles, column_tiles = ceil_div(m, rows), ceil_div(n, 4)
        yield Dispatch(
            kernel(
                "linear/linear_vec4.wgsl",
                f"linear_{shape}",
                ROWS=rows,
                LANES=LANES,
                **bias_defines(bias, 4, "value += bias[column + c];"),
            ),
            groups=ceil_div(row_tiles * column_tiles, LANES),
            params=(m, n, k // 4, row_tiles, column_tiles),
            reads=given(x, weight, bias),
            writes=(out,),
        )

    def reference(
        self, x: np.ndarray, weight: np.ndarray | tuple[np.ndarray, ...], bias: np.ndarray | None = None
    ) -> np.ndarray:
        parts = weight if isinstance(weight, tuple) else (weight,)
        product = np.concatenate([x @ part.T for part in parts], axis=-1)
        return product if bias is None else product + bias


@op("aten.mm.default", "aten.bmm.default")
class MatMul(Op):
    """Matrices [M, K] @ [K, N], or batches of them."""

    def outputs(self, ctx: Context, x: Tensor, y: Tensor) -> list[Dims]:
        if x.rank != y.rank or x.rank not in (2, 3) or x.dims[:-2] != y.dims[:-2] or x.width != y.dims[-2]:
            raise InputError(f"{list(x.dims)} and {list(y.dims)} cannot be multiplied")
        return [(*x.dims[:-1], y.width)]

    def plan(self, ctx: Context, x: Tensor, y: Tensor, *, out: Tensor) -> Iterable[Dispatch]:
        batches, m, k = (1, *x.dims)[-3:]
        if out.numel:
            strides = (k * y.width, y.width, 1)
            yield _matmul(x, y, None, out, batches=batches, m=m, k=k, y_strides=strides)

    def reference(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x @ y


@op("aten.addmm.default")
class AddMm(Op):
    """beta * bias + alpha * (x @ y); the bias broadcasts."""

    def outputs(
        self, ctx: Context, bias: Tensor, x: Tensor, y: Tensor, beta: float = 1, alpha: float = 1
    ) -> list[Dims]:
        if x.rank != 2 or y.rank != 2 or x.width != y.dims[0]:
            raise InputError(f"{list(x.dims)} and {list(y.dims)} cannot be multiplied")
        dims = (x.dims[0], y.width)
        if broadcast(bias.dims, dims) != dims:
            raise InputError(f"a bias of {list(bias.dims)} does not broadcast to {list(dims)}")
        return [dims]

    def plan(
        self, ctx: Context, bias: Tensor, x: Tensor, y: Tensor, beta: float = 1, alpha: float = 1, *, out: Tensor
    ) -> Iterable[Dispatch]:
        if out.numel:
            m, k = x.dims
            strides = (0, y.width, 1)
            yield _matmul(x, y, bias, out, 1, m, k, strides, bias.dims, float(alpha), float(beta))

    def reference(
        self, bias: np.ndarray, x: np.ndarray, y: np.ndarray, beta: float = 1, alpha: float = 1
    ) -> np.ndarray:
        return beta * bias + alpha * (x @ y)


def _matmul(
    x: Tensor,
    y: Tensor,
    bias: Tensor | None,
    out: Tensor,
    batches: int,
    m: int,
    k: int,
    y_strides: tuple[int, int, int],  # of batch, k and n
    bias_dims: Dims = (),
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Dispatch:
    require_dtype("f32", x, y, out, *given(bias))
    n = out.width
    row_tiles, column_tiles = ceil_div(m, 4), ceil_div(n, 4)
    bias_strides = broadcast_strides(bias_dims, (m, n))
    add_bias = "value += params.beta * bias[(row + r) * params.bias_m + (column + c) * params.bias_n];"
    return Dispatch(
        kernel("linear/matmul.wgsl", **bias_defines(bias, 4, add_bias)),
        groups=ceil_div(batches * row_tiles * column_tiles, 64),
        params=(batches, m, n, k, *y_strides, *bias_strides, alpha, beta, row_tiles, column_tiles),
        reads=given(x, y, bias),
        writes=(out,),
    )
