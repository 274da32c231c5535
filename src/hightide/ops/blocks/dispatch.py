"""Linears and embeddings over weights that stay in GGUF blocks: routes of `aten.linear` and `aten.embedding`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources

from hightide.errors import UnsupportedError
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.contract import Dispatch, Kernel, Tensor, ceil_div, kernel, require_dtype
from hightide.ops.linear.tiles import LANES, bias_defines, given, rows_per_thread

WITH_MINIMUM = ("Q4_1", "Q5_1", "Q4_K", "Q5_K")
BLOCK = 32  # quants that kernels take at a time


@cache
def unpacking(kind: str) -> str:
    """The WGSL that reads a block type."""
    folder = resources.files("hightide.ops.blocks")
    files = [
        "blocks.wgsl",
        *(["unpack/k_scales.wgsl"] if kind in ("Q4_K", "Q5_K") else []),
        f"unpack/{kind.lower()}.wgsl",
    ]
    return "\n".join(folder.joinpath(file).read_text() for file in files)


def planes(weight: Tensor) -> tuple[int, int, int]:
    """Where the planes after the first start, in words."""
    starts = [start // 4 for start in BLOCK_TYPES[weight.dtype].offsets(weight.dims)[1:-1]]
    first, second, third = [*starts, 0, 0, 0][:3]
    return first, second, third


def check_width(weight: Tensor) -> int:
    if weight.width % BLOCK:
        raise UnsupportedError(f"rows of {weight.width} are not whole blocks of {BLOCK}")
    return weight.width // BLOCK


def block_linear(x: Tensor, parts: tuple[Tensor, ...], bias: Tensor | None, out: Tensor) -> Iterator[Dispatch]:
    """x @ weight.T (+ bias); the weight's rows may be spread over several tensors."""
    require_dtype("f32", x, out, *given(bias))
    rows, shape = rows_per_thread(x.rows)
    row_tiles, first = ceil_div(x.rows, rows), 0
    for weight in parts:
        blocks, n = check_width(weight), weight.dims[0]
        column_tiles = ceil_div(n, 4)
        yield Dispatch(
            _linear(weight.dtype, rows, shape, bias is not None),
            groups=ceil_div(row_tiles * column_tiles, LANES),
            params=(x.rows, n, blocks, row_tiles, column_tiles, out.width, first, *planes(weight)),
            reads=(weight, weight, x, *given(bias)),
            writes=(out,),
        )
        first += n


@cache
def _linear(kind: str, rows: int, shape: str, bias: bool) -> Kernel:
    return kernel(
        "blocks/linear.wgsl",
        f"{kind.lower()}_{shape}",
        TYPE=kind,
        UNPACK=unpacking(kind),
        ROWS=rows,
        LANES=LANES,
        MINIMUM=str(kind in WITH_MINIMUM).lower(),
        **bias_defines(bias, 5, "value += bias[params.first + column + c];"),
    )


def block_rows(parts: tuple[Tensor, ...], indices: Tensor, out: Tensor) -> Iterator[Dispatch]:
    """Rows of a table by index; each part writes the rows that it has."""
    require_dtype("i32", indices)
    require_dtype("f32", out)
    first, every = 0, sum(part.dims[0] for part in parts)
    for weight in parts:
        blocks, kind = check_width(weight), weight.dtype
        yield Dispatch(
            kernel("blocks/rows.wgsl", f"{kind.lower()}_rows", UNPACK=unpacking(kind)),
            groups=ceil_div(indices.numel * blocks * 4, 64),
            params=(indices.numel, blocks, first, weight.dims[0], every, *planes(weight)),
            reads=(weight, weight, indices),
            writes=(out,),
        )
        first += weight.dims[0]
