"""Products of matrices: 4-bit linears, float linears, and plain matrix products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.blocks.dispatch import block_linear
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.elementwise.elementwise import broadcast
from hightide.ops.legacy import Binding, Context, Dispatch, Op, Tensor, ceil_div, kernel, op, require_dtype
from hightide.ops.linear.epilogue import Epilogue, apart
from hightide.ops.linear.q4 import q4_dispatch, q4_product, q4_reference
from hightide.ops.linear.tiles import LANES, bias_defines, given, rows_per_thread
from hightide.ops.movement.movement import broadcast_strides


@op("et_vk.linear_q4gsw.default", "hightide.linear_q4.default")
class LinearQ4(Op):
    """x @ dequantised(weight).T + bias, with an epilogue.

    weight: bytes [N, >= K/2], low nibble first, value - 8; scales: [K/group, >= N]. With an activation the
    weight's rows are those of the gate, then as many of `up`: the output has N/2 columns.
    """

    def outputs(
        self,
        ctx: Context,
        x: Tensor,
        weight: Tensor,
        scales: Tensor,
        group: int,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        activation: str = "",
    ) -> list[Dims]:
        return Epilogue(bias, residual, activation).check(q4_product(x, weight, scales, group), padded=True)

    def plan(
        self,
        ctx: Context,
        x: Tensor,
        weight: Tensor,
        scales: Tensor,
        group: int,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        activation: str = "",
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        require_dtype("f32", x)
        return q4_dispatch(ctx, x, x, weight, scales, group, Epilogue(bias, residual, activation), out)

    def reference(
        self,
        x: np.ndarray,
        weight: np.ndarray,
        scales: np.ndarray,
        group: int,
        bias: np.ndarray | None = None,
        residual: np.ndarray | None = None,
        activation: str = "",
    ) -> np.ndarray:
        product = q4_reference(x, weight, scales, group)
        return Epilogue(activation=activation).apply(product, bias, residual)


Weight = Tensor | tuple[Tensor, ...]  # one tensor, or its rows in several, each within the binding limit


def parts_of(weight: Weight) -> tuple[Tensor, ...]:
    return weight if isinstance(weight, tuple) else (weight,)


@op("aten.linear.default", "hightide.linear.default")
class Linear(Op):
    """x @ weight.T + bias, with weight [N, K] in float or in GGUF blocks, with an epilogue."""

    def outputs(
        self,
        ctx: Context,
        x: Tensor,
        weight: Weight,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        activation: str = "",
    ) -> list[Dims]:
        parts = parts_of(weight)
        if not x.rank or any(part.rank != 2 or x.width != part.dims[1] for part in parts):
            raise InputError(f"{list(x.dims)} does not fit a weight of {list(parts[0].dims)}")
        product = (*x.dims[:-1], sum(part.dims[0] for part in parts))
        return Epilogue(bias, residual, activation).check(product)

    def plan(
        self,
        ctx: Context,
        x: Tensor,
        weight: Weight,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        activation: str = "",
        *,
        out: Tensor,
    ) -> Iterable[Dispatch]:
        if not out.numel:
            return
        epilogue, parts = Epilogue(bias, residual, activation), parts_of(weight)
        epilogue.require(out)
        if parts[0].dtype in BLOCK_TYPES:
            route = block_linear
        elif x.width and x.width % 4 == 0:
            route = _linear_vec4
        else:
            route = _linear_odd
        if not (activation and len(parts) > 1) and not (route is _linear_odd and (residual is not None or activation)):
            yield from route(ctx, x, parts, epilogue, out, out.width)
            return
        # The product first, then its epilogue: gates and ups lie in different parts, or rows have an odd length.
        n = sum(part.dims[0] for part in parts)
        product = ctx.scratch(x.rows * n * 4)
        yield from route(ctx, x, parts, Epilogue(), product, n)
        yield apart(product, n, epilogue, x.rows, out)

    def reference(
        self,
        x: np.ndarray,
        weight: np.ndarray | tuple[np.ndarray, ...],
        bias: np.ndarray | None = None,
        residual: np.ndarray | None = None,
        activation: str = "",
    ) -> np.ndarray:
        parts = weight if isinstance(weight, tuple) else (weight,)
        product = np.concatenate([x @ part.T for part in parts], axis=-1)
        return Epilogue(activation=activation).apply(product, bias, residual)


def _linear_vec4(
    ctx: Context, x: Tensor, parts: tuple[Tensor, ...], epilogue: Epilogue, out: Binding, width: int
) -> Iterator[Dispatch]:
    """Rows of whole vec4s."""
    require_dtype("f32", x, *parts)
    rows, shape = rows_per_thread(x.rows)
    row_tiles, first = ceil_div(x.rows, rows), 0
    for weight in parts:
        n = weight.dims[0]
        column_tiles = ceil_div(n // epilogue.halves, 4)
        yield Dispatch(
            kernel("linear/linear_vec4.wgsl", f"linear_{shape}", ROWS=rows, LANES=LANES, **epilogue.defines(4)),
            groups=ceil_div(row_tiles * column_tiles, LANES),
            params=(x.rows, n, x.width // 4, row_tiles, column_tiles, width, first),
            reads=(x, weight, *epilogue.tensors),
            writes=(out,),
        )
        first += n


def _linear_odd(
    ctx: Context, x: Tensor, parts: tuple[Tensor, ...], epilogue: Epilogue, out: Binding, width: int
) -> Iterator[Dispatch]:
    """Rows of any length, with no epilogue but a bias."""
    if len(parts) > 1:
        raise UnsupportedError(f"a weight in parts with rows of {x.width} has no kernel")
    strides, k = (0, 1, x.width), x.width
    yield _matmul(x, parts[0], epilogue.bias, out, 1, x.rows, k, width, strides, (width,))


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
            require_dtype("f32", out)
            yield _matmul(x, y, None, out, batches, m, k, y.width, strides)

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
            require_dtype("f32", out)
            yield _matmul(x, y, bias, out, 1, m, k, y.width, strides, bias.dims, float(alpha), float(beta))

    def reference(
        self, bias: np.ndarray, x: np.ndarray, y: np.ndarray, beta: float = 1, alpha: float = 1
    ) -> np.ndarray:
        return beta * bias + alpha * (x @ y)


def _matmul(
    x: Tensor,
    y: Tensor,
    bias: Tensor | None,
    out: Binding,
    batches: int,
    m: int,
    k: int,
    n: int,
    y_strides: tuple[int, int, int],  # of batch, k and n
    bias_dims: Dims = (),
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Dispatch:
    require_dtype("f32", x, y, *given(bias))
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
