"""Linears and embeddings over weights that stay in GGUF blocks: routes of `aten.linear` and `aten.embedding`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hightide.errors import UnsupportedError
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.contract import Context, Dispatch, Tensor, ceil_div, kernel
from hightide.ops.linear.epilogue import Product
from hightide.ops.linear.routes import BLOCK as BLOCK
from hightide.ops.linear.routes import FLOAT, BlockWeight, block_product

NIBBLES = ("Q4_0", "Q4_1", "Q4_K")


def block_linear(ctx: Context, parts: tuple[Tensor, ...], product: Product) -> Iterator[Dispatch]:
    """x @ weight.T and its epilogue; the weight's rows may be spread over several tensors."""
    first = 0
    for weight in parts:
        yield from block_product(ctx, _block_weight(weight, product.epilogue.sides), product, first)
        first += weight.dims[0]


def _block_weight(weight: Tensor, sides: int) -> BlockWeight:
    kind, n, blocks = weight.dtype, weight.dims[-2], _row_blocks(weight)
    if kind not in BLOCK_TYPES:
        return BlockWeight(FLOAT, n, blocks, {"weight": weight})
    aligned = BLOCK_TYPES[kind].together is not None and n // sides % 4 == 0
    return BlockWeight(kind.lower(), n, blocks, _planes(weight), aligned, kind in NIBBLES)


def expert_linear(ctx: Context, parts: tuple[Tensor, ...], product: Product, first: int = 0) -> Iterator[Dispatch]:
    """Rows of x times the matrix of their expert, from column `first` on; a part [experts, n, k] has some of them."""
    assert product.experts is not None
    start = 0
    for weight in parts:
        product.experts.first, product.experts.held = start, weight.dims[0]
        yield from block_product(ctx, _block_weight(weight, product.epilogue.sides), product, first)
        start += weight.dims[0]


def block_rows(parts: tuple[Tensor, ...], indices: Tensor, out: Tensor) -> Iterator[Dispatch]:
    """Rows of a table by index; each part writes the rows that it has."""
    first, every = 0, sum(part.dims[0] for part in parts)
    for weight in parts:
        blocks, kind = _row_blocks(weight), weight.dtype.lower()
        yield kernel("blocks/rows.wgsl", f"{kind}_rows", TYPE=kind, ALIGNED=False).over(
            ceil_div(indices.numel * blocks * 4, 64),
            indices=indices,
            out=out,
            count=indices.numel,
            blocks=blocks,
            first=first,
            rows=weight.dims[0],
            all_rows=every,
            **_planes(weight),
        )
        first += weight.dims[0]


def _row_blocks(weight: Tensor) -> int:
    if weight.width % BLOCK:
        raise UnsupportedError(f"rows of {weight.width} are not whole blocks of {BLOCK}")
    return weight.width // BLOCK


def _planes(weight: Tensor) -> dict[str, Any]:
    """The weight as kernels bind it, and where its planes after the first start, in words."""
    starts = BLOCK_TYPES[weight.dtype].offsets(weight.dims)[1:-1]
    return {"weight4": weight, "weight": weight, **{f"plane{n}": at // 4 for n, at in enumerate(starts, 1)}}
