"""Linears: with 4-bit weights, with float weights and with weights in GGUF's blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.blocks.dispatch import BLOCK, NIBBLES, block_linear
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.choices import Choices
from hightide.ops.contract import Context, Dispatch, Op, Scratch, Tensor, ceil_div, kernel, op
from hightide.ops.cost import product_flops, same
from hightide.ops.linear.epilogue import Epilogue, Norm, Product, finished, store_apart
from hightide.ops.linear.low_rank import LowRank, add_low_rank, changed
from hightide.ops.linear.matmul import matmul
from hightide.ops.linear.q4 import Q4Weight, q4_reference
from hightide.ops.linear.routes import floats_in_blocks, norms_inside, operand, without_norm
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
        return self.planned(ctx, out)

    def planned(self, ctx: Context, out: Tensor, changes: Sequence[LowRank] = ()) -> Iterator[Dispatch]:
        """The dispatches, with what adapters change in the product."""
        if not out.numel:
            return
        x, parts = self.x, parts_of(self.weight)
        n = sum(part.dims[0] for part in parts)
        epilogue = Epilogue(self.bias, self.residual, self.activation, self.gated)
        product = Product(x, x.rows, x.width, epilogue, out, out.width, _norm(self.norm, self.eps))
        if parts[0].dtype in BLOCK_TYPES or (x.width and x.width % BLOCK == 0 and floats_in_blocks(ctx, x.rows)):
            route = block_linear
        elif x.width and x.width % 4 == 0:
            route = _linear_vec4
        else:
            route = _linear_odd
        floats = parts[0].dtype not in BLOCK_TYPES
        inside = route is block_linear and not changes and norms_inside(ctx, product, n, floats)
        product = yield from without_norm(ctx, product, inside)
        odd_epilogue = route is _linear_odd and (self.residual is not None or self.activation)
        spread = self.residual is not None and self.residual.rows != x.rows
        adapted = bool(changes and self.activation)
        apart = odd_epilogue or spread or adapted or (epilogue.sides == 2 and len(parts) > 1)
        # Apart: the product first, then its epilogue. Rows have an odd length, one is for many, adapters change what
        # an activation is of, or gates and ups lie in different parts.
        plain = ctx.scratch(x.rows * n * 4) if apart else out
        whole = replace(product, epilogue=Epilogue(), out=plain, width=n) if apart else product
        yield from route(ctx, parts, whole)
        for change in changes:
            yield from add_low_rank(ctx, product.x, plain, (x.rows, x.width, n), change)
        if isinstance(plain, Scratch):
            yield store_apart(product, plain, n, out.rows)

    def evaluate_on(self, choices: Choices, arguments: Mapping[str, Any]) -> Any:
        product = self.product_on(
            choices, _normed(arguments["x"], arguments.get("norm"), self.eps), arguments["weight"]
        )
        return _with_ends(product, arguments)

    def product_on(self, choices: Choices, x: np.ndarray, weight: Any) -> np.ndarray:
        """The product alone, as the routes that `choices` take compute it."""
        arrays = weight if isinstance(weight, tuple) else (weight,)
        xs = (operand(choices, x, nibbles=part.dtype in NIBBLES) for part in parts_of(self.weight))
        return np.concatenate([x @ array.T for x, array in zip(xs, arrays, strict=True)], axis=-1)

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
        return finished(_product(_normed(x, norm, eps), weight), bias, residual, activation, gated)


@op("hightide.adapted_linear.default", family="linear")
class AdaptedLinear(AtenLinear):
    """A linear whose product LoRA adapters change in the rows `adapted`, none twice; see `LowRank`.

    Each change has a tensor in `downs`, `ups` and `owners`, and its first column in `firsts`. A norm, activation and
    residual are as in other linears, whose dispatches it has where no row is adapted.
    """

    adapted: Tensor
    strengths: Tensor
    downs: tuple[Tensor, ...]
    ups: tuple[Tensor, ...]
    owners: tuple[Tensor, ...]
    firsts: tuple[int, ...]

    def _changes(self) -> list[LowRank]:
        if not len(self.downs) == len(self.ups) == len(self.owners) == len(self.firsts):
            raise InputError("every change needs a down, an up, owners and a first column")
        changes = zip(self.downs, self.ups, self.owners, self.firsts, strict=True)
        return [LowRank(self.adapted, self.strengths, *change) for change in changes]

    @classmethod
    def fitting(cls, given: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        """Rows that are not listed twice."""
        rows, (count,) = math.prod(given["x"][:-1]), given["adapted"]
        if count > rows:
            raise InputError(f"{count} of {rows} rows cannot be adapted")
        return {"adapted": np.arange(rows - count, rows, dtype=np.int32)}

    def outputs(self, ctx: Context) -> list[Dims]:
        dims = super().outputs(ctx)
        for change in self._changes():
            change.check(ctx, self.x.rows, self.x.width, sum(part.dims[0] for part in parts_of(self.weight)))
        return dims

    def flops(self, dispatch: Dispatch) -> float:
        """Of a change, two for each weight, over two dispatches."""
        matrix = next((m for m in (*self.downs, *self.ups) if same(m, *dispatch.reads)), None)
        return super().flops(dispatch) if matrix is None else 2 * self.adapted.numel * matrix.numel

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return self.planned(ctx, out, self._changes() if self.adapted.numel else ())

    def evaluate_on(self, choices: Choices, arguments: Mapping[str, Any]) -> Any:
        x = _normed(arguments["x"], arguments.get("norm"), self.eps)
        product = self.product_on(choices, x, arguments["weight"])
        rows = arguments["adapted"], arguments["strengths"]
        changes = zip(*(arguments[name] for name in ("downs", "ups", "owners", "firsts")), strict=True)
        return _with_ends(changed(product, x, rows, changes), arguments)

    @staticmethod
    def reference(  # type: ignore[override]
        x: np.ndarray,
        weight: Any,
        bias: Array,
        residual: Array,
        activation: str,
        norm: Array,
        eps: float,
        gated: bool,
        adapted: np.ndarray,
        strengths: np.ndarray,
        downs: tuple[np.ndarray, ...],
        ups: tuple[np.ndarray, ...],
        owners: tuple[np.ndarray, ...],
        firsts: tuple[int, ...],
    ) -> np.ndarray:
        x = _normed(x, norm, eps)
        changes = zip(downs, ups, owners, firsts, strict=True)
        product = changed(_product(x, weight), x, (adapted, strengths), changes)
        return finished(product, bias, residual, activation, gated)


def _product(x: np.ndarray, weight: Any) -> np.ndarray:
    parts = weight if isinstance(weight, tuple) else (weight,)
    return np.concatenate([x @ part.T for part in parts], axis=-1)


def _with_ends(product: np.ndarray, arguments: Mapping[str, Any]) -> np.ndarray:
    ends = (arguments.get("bias"), arguments.get("residual"), arguments.get("activation", ""))
    return finished(product, *ends, arguments.get("gated", True))


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
