"""4-bit linears: bytes [N, >= K/2], low nibble first, value - 8; scales [K/group, >= N]."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.legacy import Binding, Context, Dispatch, Tensor, ceil_div, kernel, require_dtype
from hightide.ops.linear.epilogue import Epilogue
from hightide.ops.linear.routes import BLOCK, BlockWeight, block_product


def q4_product(x: Tensor, weight: Tensor, scales: Tensor, group: int) -> Dims:
    """The dims of the product, if the weight and its scales fit."""
    k, n = x.width, weight.dims[0]
    if not x.rank or k > weight.dims[1] * 2:
        raise InputError(f"rows of {k} do not fit a 4-bit weight of {weight.dims[1] * 2} columns")
    if group < 1 or ceil_div(k, group) > scales.dims[0] or n > scales.dims[1]:
        raise InputError(f"scales of {list(scales.dims)} do not cover {n} columns of {k} in groups of {group}")
    if k != x.value.dims[-1]:  # rows of the weight may be padded, so that they do not tell K
        raise InputError(f"rows of {k} do not fit a weight for rows of {x.value.dims[-1]}")
    return (*x.dims[:-1], n)


def q4_dispatch(
    ctx: Context,
    x: Tensor,
    source: Binding,
    weight: Tensor,
    scales: Tensor,
    group: int,
    epilogue: Epilogue,
    out: Tensor,
) -> Iterator[Dispatch]:
    """The product for activations in `source`, which have the dims of `x`."""
    require_dtype("f32", scales)
    require_dtype("u8", weight)
    epilogue.require(out)
    m, k, n = x.rows, x.width, weight.dims[0]
    row_bytes, scale_row = weight.dims[1], scales.dims[1]
    if not out.numel:
        return
    group_blocks = group // BLOCK if k > group else 1 << 31  # one group: any shift will do
    if k % BLOCK == 0 and row_bytes % 16 == 0 and (k <= group or (group % BLOCK == 0 and _is_power(group_blocks))):
        together = scale_row % 4 == 0 and n // epilogue.halves % 4 == 0  # four columns' scales are one vec4
        params = (row_bytes // 16, group_blocks.bit_length() - 1, scale_row // 4 if together else scale_row)
        fields = ("row_words", "group_shift", "scale_row")
        blocks = BlockWeight("q4", n, k // BLOCK, (weight, scales), _unpack(together), fields, params, nibbles=True)
        yield from block_product(ctx, blocks, source, m, epilogue, out, out.width, 0)
    else:
        yield Dispatch(
            kernel("linear/q4_any.wgsl", **epilogue.defines(5)),
            groups=ceil_div(out.numel, 64),
            params=(m, n, k, row_bytes, group, scale_row, out.width, 0),
            reads=(source, weight, scales, *epilogue.tensors),
            writes=(out,),
        )


@cache
def _unpack(together: bool) -> str:
    text = resources.files("hightide.ops.linear").joinpath("q4_block.wgsl").read_text()
    if together:
        form = ("vec4<f32>", "group_scales[at + row / 4u][row % 4u]", "group_scales[at + rows.x / 4u]")
    else:
        single = ", ".join(f"group_scales[at + rows.{c}]" for c in "xyzw")
        form = ("f32", "group_scales[at + row]", f"vec4<f32>({single})")
    for name, value in zip(("$SCALE", "$ONE", "$FOUR"), form, strict=True):
        text = text.replace(name, value)
    return text


def _is_power(value: int) -> bool:
    return value & (value - 1) == 0


def q4_reference(x: np.ndarray, weight: np.ndarray, scales: np.ndarray, group: int) -> np.ndarray:
    n, k = weight.shape[0], x.shape[-1]
    values = np.stack([weight & 15, weight >> 4], axis=-1).reshape(n, -1)[:, :k].astype(np.int8) - 8
    scale = np.repeat(scales[:, :n].T, group, axis=1)[:, :k]
    product: np.ndarray = x @ (values * scale).T.astype(x.dtype)
    return product
