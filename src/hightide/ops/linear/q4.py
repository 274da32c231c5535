"""4-bit linears with scales in a tensor of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.choices import Choices
from hightide.ops.contract import Context, Dispatch, Tensor, ceil_div, kernel
from hightide.ops.linear.epilogue import Product
from hightide.ops.linear.routes import BLOCK, BlockWeight, block_product, norms_inside, operand, without_norm


@dataclass(slots=True)
class Q4Weight:
    """Codes: bytes [N, >= K/2], low nibble first, value - 8; scales: [K/group, >= N]."""

    codes: Tensor
    scales: Tensor
    group: int

    def product_dims(self, x: Tensor) -> Dims:
        """The dims of the product with x, if the weight and its scales fit."""
        codes, scales, group, k = self.codes, self.scales, self.group, x.width
        if codes.rank != 2 or scales.rank != 2:
            raise InputError(f"codes of {list(codes.dims)} and scales of {list(scales.dims)} are not matrices")
        n = codes.dims[0]
        if not x.rank or k > codes.dims[1] * 2:
            raise InputError(f"rows of {k} do not fit a 4-bit weight of {codes.dims[1] * 2} columns")
        check_scales(scales, n, k, group)
        if k != x.value.dims[-1]:  # rows of the weight may be padded, so that they do not tell K
            raise InputError(f"rows of {k} do not fit a weight for rows of {x.value.dims[-1]}")
        return (*x.dims[:-1], n)

    def dispatch(self, ctx: Context, product: Product) -> Iterator[Dispatch]:
        """The product by blocks, where rows and groups are whole blocks; else element by element."""
        k, group = product.k, self.group
        (n, row_bytes), scale_row = self.codes.dims, self.scales.dims[1]
        if not (product.rows and n):
            return
        inside = self._in_blocks(k) and norms_inside(ctx, product, n, floats=False)
        product = yield from without_norm(ctx, product, inside)
        if self._in_blocks(k):
            group_blocks = group // BLOCK if k > group else 1 << 31  # one group: any shift will do
            aligned = scale_row % 4 == 0 and n // product.epilogue.sides % 4 == 0
            given = {
                "weight4": self.codes,
                "group_scales": self.scales,
                "row_words": row_bytes // 16,
                "group_shift": group_blocks.bit_length() - 1,
                "scale_row": scale_row // 4 if aligned else scale_row,
            }
            yield from block_product(ctx, BlockWeight("q4", n, k // BLOCK, given, aligned, nibbles=True), product)
        else:
            yield kernel("linear/q4_any.wgsl", **product.epilogue.constants).over(
                ceil_div(product.rows * product.width, 64),
                x=product.x,
                weight=self.codes,
                scales=self.scales,
                m=product.rows,
                k=k,
                row_bytes=row_bytes,
                group=group,
                scale_row=scale_row,
                **product.stored(n),
            )

    def operand(self, choices: Choices, x: np.ndarray) -> np.ndarray:
        """What the product takes for x on the routes of `choices`."""
        return operand(choices, x, nibbles=True) if self._in_blocks(x.shape[-1]) else x

    def _in_blocks(self, k: int) -> bool:
        """Rows and groups are whole blocks, a power of two of them to a group."""
        group_blocks, rest = divmod(self.group, BLOCK)
        whole = not rest and group_blocks & (group_blocks - 1) == 0
        return k % BLOCK == 0 and self.codes.dims[1] % 16 == 0 and (k <= self.group or whole)


def q4_reference(x: np.ndarray, weight: np.ndarray, scales: np.ndarray, group: int) -> np.ndarray:
    n, k = weight.shape[0], x.shape[-1]
    values = np.stack([weight & 15, weight >> 4], axis=-1).reshape(n, -1)[:, :k].astype(np.int8) - 8
    scale = np.repeat(scales[:, :n].T, group, axis=1)[:, :k]
    product: np.ndarray = x @ (values * scale).T.astype(x.dtype)
    return product


def check_scales(scales: Tensor, n: int, k: int, group: int) -> None:
    """Scales [groups of a row, rows] may be padded."""
    if scales.rank != 2 or group < 1 or ceil_div(k, group) > scales.dims[0] or n > scales.dims[1]:
        raise InputError(f"scales of {list(scales.dims)} do not cover {n} rows of {k} in groups of {group}")
