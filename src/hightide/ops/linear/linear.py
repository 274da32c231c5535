"""Linears: with 4-bit weights, with float weights and with weights in GGUF's blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.blocks.dispatch import BLOCK, NIBBLES, block_linear
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.choices import Choices
from hightide.ops.contract import Context, Dispatch, Op, Tensor, ceil_div, kernel, op
from hightide.ops.cost import product_flops
from hightide.ops.linear import low_rank
from hightide.ops.linear.epilogue import Epilogue, Norm, Product, finished, store_apart
from hightide.ops.linear.matmul import matmul
from hightide.ops.linear.q4 import Q4Weight, q4_reference
from hightide.ops.linear.routes import floats_in_blocks, operand, without_norm
from hightide.ops.linear.tiles import LANES, rows_per_thread
from hightide.ops.norm.norm import check_weight, rms_normed
from hightide.ops.rows import rows_alike


@op("et_vk.linear_q4gsw.default", "hightide.linear_q4.default", family="linear")
class LinearQ4(Op):
    """x @ dequantised(weight).T + bias, with an epilogue.

    weight: bytes [N, >= K/2], low nibble first, value - 8; scales: [K/group, >= N]. With an activation, if it is
    `gated`, the weight's rows are those of the gate, then as many of `up`: the output has N/2 columns.
    """

    x: Tensor
    weight: Tensor
    scales: Tensor
    group: int
    bias: Tensor | None = None
    residual: Tensor | None = None
    activation: str = ""
    norm: Tensor | None = None  # the weight of an RMS norm: x is normed first
    eps: float = 0.0
    gated: bool = True

    def outputs(self, ctx: Context) -> list[Dims]:
        if self.norm is not None:
            check_weight(self.x, self.norm)
        product = Q4Weight(self.weight, self.scales, self.group).product_dims(self.x)
        return Epilogue(self.bias, self.residual, self.activation, self.gated).check(product, padded=True)

    def flops(self, dispatch: Dispatch) -> float:
        return product_flops(self.x, (self.weight,), dispatch)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        x, epilogue = self.x, Epilogue(self.bias, self.residual, self.activation, self.gated)
        product = Product(x, x.rows, x.width, epilogue, out, out.width, _norm(self.norm, self.eps))
        return Q4Weight(self.weight, self.scales, self.group).dispatch(ctx, product)

    def evaluate_on(self, choices: Choices, arguments: Mapping[str, Any]) -> Any:
        x = _normed(arguments["x"], arguments.get("norm"), self.eps)
        x = Q4Weight(self.weight, self.scales, self.group).operand(choices, x)
        return self.evaluate({**arguments, "x": x, "norm": None})

    @staticmethod
    def reference(
        x: np.ndarray,
        weight: np.ndarray,
        scales: np.ndarray,
        group: int,
        bias: np.ndarray | None,
        residual: np.ndarray | None,
        activation: str,
        norm: np.ndarray | None = None,
        eps: float = 0.0,
        gated: bool = True,
    ) -> np.ndarray:
        product = q4_reference(_normed(x, norm, eps), weight, scales, group)
        return finished(product, bias, residual, activation, gated)


Array: TypeAlias = np.ndarray | None
Weight = Tensor | tuple[Tensor, ...]  # one tensor, or its rows in several, each within the binding limit


def parts_of(weight: Weight) -> tuple[Tensor, ...]:
    return weight if isinstance(weight, tuple) else (weight,)


@op("aten.linear.default", "hightide.linear.default", family="linear")
class AtenLinear(Op):
    """x @ weight.T + bias, with weight [N, K] in float or in GGUF blocks, with an epilogue.

    With `norm`, the weight of an RMS norm, x is normed first.
    """

    x: Tensor
    weight: Weight
    bias: Tensor | None = None
    residual: Tensor | None = None
    activation: str = ""
    norm: Tensor | None = None
    eps: float = 0.0
    gated: bool = True

    def outputs(self, ctx: Context) -> list[Dims]:
        x, parts = self.x, parts_of(self.weight)
        if not x.rank or any(part.rank != 2 or x.width != part.dims[1] for part in parts):
            raise InputError(f"{list(x.dims)} does not fit a weight of {list(parts[0].dims)}")
        if self.norm is not None:
            check_weight(x, self.norm)
        product = (*x.dims[:-1], sum(part.dims[0] for part in parts))
        return Epilogue(self.bias, self.residual, self.activation, self.gated).check(product, spread=True)

    def flops(self, dispatch: Dispatch) -> float:
        return product_flops(self.x, parts_of(self.weight), dispatch)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        if not out.numel:
            return
        x, parts = self.x, parts_of(self.weight)
        epilogue = Epilogue(self.bias, self.residual, self.activation, self.gated)
        product = Product(x, x.rows, x.width, epilogue, out, out.width, _norm(self.norm, self.eps))
        if parts[0].dtype in BLOCK_TYPES or (x.width and x.width % BLOCK == 0 and floats_in_blocks(ctx, x.rows)):
            route = block_linear
        elif x.width and x.width % 4 == 0:
            route = _linear_vec4
        else:
            route = _linear_odd
        product = yield from without_norm(ctx, product, by_blocks=route is block_linear)
        odd_epilogue = route is _linear_odd and (self.residual is not None or self.activation)
        spread = self.residual is not None and self.residual.rows != x.rows
        if not odd_epilogue and not spread and not (epilogue.sides == 2 and len(parts) > 1):
            yield from route(ctx, parts, product)
            return
        # The product first, then its epilogue: gates and ups lie in different parts, rows have an odd length, or one is
        # for many.
        n = sum(part.dims[0] for part in parts)
        plain = ctx.scratch(x.rows * n * 4)
        yield from route(ctx, parts, replace(product, epilogue=Epilogue(), out=plain, width=n))
        yield store_apart(product, plain, n, out.rows)

    def evaluate_on(self, choices: Choices, arguments: Mapping[str, Any]) -> Any:
        x, weight = _normed(arguments["x"], arguments.get("norm"), self.eps), arguments["weight"]
        arrays = weight if isinstance(weight, tuple) else (weight,)
        xs = (operand(choices, x, nibbles=part.dtype in NIBBLES) for part in parts_of(self.weight))
        product = np.concatenate([x @ array.T for x, array in zip(xs, arrays, strict=True)], axis=-1)
        ends = (arguments.get("bias"), arguments.get("residual"), arguments.get("activation", ""))
        return finished(product, *ends, arguments.get("gated", True))

    @staticmethod
    def reference(
        x: np.ndarray,
        weight: Any,
        bias: Array,
        residual: Array,
        activation: str,
        norm: Array = None,
        eps: float = 0.0,
        gated: bool = True,
    ) -> np.ndarray:
        x = _normed(x, norm, eps)
        parts = weight if isinstance(weight, tuple) else (weight,)
        product = np.concatenate([x @ part.T for part in parts], axis=-1)
        return finished(product, bias, residual, activation, gated)


def _norm(weight: Tensor | None, eps: float) -> Norm | None:
    return None if weight is None else Norm(weight, eps)


def _normed(x: np.ndarray, weight: np.ndarray | None, eps: float) -> np.ndarray:
    return x if weight is None else rms_normed(x, weight, eps)


def _linear_vec4(ctx: Context, parts: tuple[Tensor, ...], product: Product) -> Iterator[Dispatch]:
    """Rows of whole vec4s."""
    rows, shape = rows_per_thread(product.rows, rows_alike(ctx.choices))
    made = kernel("linear/linear_vec4.wgsl", f"linear_{shape}", ROWS=rows, LANES=LANES, **product.epilogue.constants)
    row_tiles, first = ceil_div(product.rows, rows), 0
    for weight in parts:
        n = weight.dims[0]
        column_tiles = ceil_div(n // product.epilogue.sides, 4)
        yield made.over(
            ceil_div(row_tiles * column_tiles, LANES),
            x=product.x,
            weight=weight,
            m=product.rows,
            k4=product.k // 4,
            row_tiles=row_tiles,
            column_tiles=column_tiles,
            **product.stored(n, first),
        )
        first += n


def _linear_odd(ctx: Context, parts: tuple[Tensor, ...], product: Product) -> Iterator[Dispatch]:
    """Rows of any length, with no epilogue but a bias."""
    if len(parts) > 1:
        raise UnsupportedError(f"a weight in parts with rows of {product.k} has no kernel")
    sizes = (1, product.rows, product.k, product.width)
    yield matmul(ctx, product.x, parts[0], product.out, sizes, transposed=True, bias=product.epilogue.bias)


__all__ = ["low_rank"]
