"""Linears and embeddings over weights that stay in GGUF blocks: routes of `aten.linear` and `aten.embedding`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources

from hightide.errors import UnsupportedError
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.legacy import Binding, Context, Dispatch, Tensor, ceil_div, kernel, require_dtype
from hightide.ops.linear.epilogue import Epilogue
from hightide.ops.linear.routes import BLOCK as BLOCK
from hightide.ops.linear.routes import BlockWeight, block_product, common

WITHOUT_MINIMUM = ("Q8_0", "Q6_K", "F32", "F16", "BF16")  # a weight is quant * scale, with nothing added
NIBBLES = ("Q4_0", "Q4_1", "Q4_K")
FIELDS = ("plane1", "plane2", "plane3")


@cache
def unpacking(kind: str, aligned: bool = False) -> str:
    """The WGSL that reads a block type; `aligned` if four columns always start at a multiple of four."""
    folder = resources.files("hightide.ops.blocks")
    together = BLOCK_TYPES[kind].together
    files = [
        "planes.wgsl",
        *(["unpack/k_scales.wgsl"] if kind in ("Q4_K", "Q5_K") else []),
        *(["pairs.wgsl"] if together is not None else []),
        f"unpack/{kind.lower()}.wgsl",
        "four_pairs.wgsl" if aligned and together is not None else "four_scales.wgsl",
    ]
    text = "\n".join(folder.joinpath(file).read_text() for file in files).replace("$PLANE", f"plane{together}")
    return f"const MINIMUM = {str(kind not in WITHOUT_MINIMUM).lower()};\n{text}"


def planes(weight: Tensor) -> tuple[int, int, int]:
    """Where the planes after the first start, in words."""
    starts = [start // 4 for start in BLOCK_TYPES[weight.dtype].offsets(weight.dims)[1:-1]]
    first, second, third = [*starts, 0, 0, 0][:3]
    return first, second, third


def check_width(weight: Tensor) -> int:
    if weight.width % BLOCK:
        raise UnsupportedError(f"rows of {weight.width} are not whole blocks of {BLOCK}")
    return weight.width // BLOCK


def block_linear(
    ctx: Context, x: Tensor, parts: tuple[Tensor, ...], epilogue: Epilogue, out: Binding, width: int
) -> Iterator[Dispatch]:
    """x @ weight.T and its epilogue, into rows of `width`; the weight's rows may be spread over several tensors."""
    require_dtype("f32", x)
    first = 0
    for weight in parts:
        kind, n = weight.dtype, weight.dims[0]
        unpack, runs = unpacking(kind, n // epilogue.halves % 4 == 0), 2 if kind == "Q6_K" else 1
        blocks = BlockWeight(
            kind.lower(),
            n,
            check_width(weight),
            (weight, weight),
            unpack,
            FIELDS,
            planes(weight),
            runs,
            kind in NIBBLES,
        )
        yield from block_product(ctx, blocks, x, x.rows, epilogue, out, width, first)
        first += n


def block_rows(parts: tuple[Tensor, ...], indices: Tensor, out: Tensor) -> Iterator[Dispatch]:
    """Rows of a table by index; each part writes the rows that it has."""
    require_dtype("i32", indices)
    require_dtype("f32", out)
    first, every = 0, sum(part.dims[0] for part in parts)
    for weight in parts:
        blocks, kind = check_width(weight), weight.dtype
        yield Dispatch(
            kernel("blocks/rows.wgsl", f"{kind.lower()}_rows", UNPACK=common() + unpacking(kind)),
            groups=ceil_div(indices.numel * blocks * 4, 64),
            params=(indices.numel, blocks, first, weight.dims[0], every, *planes(weight)),
            reads=(weight, weight, indices),
            writes=(out,),
        )
        first += weight.dims[0]
