"""The routes of a product with weights in blocks of 32: which kernel for how many rows, on which adapter.

All of them read a weight by the same few functions (blocks/blocks.wgsl) and end in the same epilogue, so a type of
weights, a route and an epilogue are each written once.

Software adapters take register tiles without barriers: "broadcast", "quads" where subgroups have four lanes,
"registers" where there are none. Real GPUs split K over lanes for few rows ("subgroups", or "split" by shared memory)
and share tiles of memory for many.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hightide.ops.choices import Choice, Choices
from hightide.ops.contract import Context, Dispatch, ceil_div, kernel
from hightide.ops.linear.epilogue import Experts, Product
from hightide.ops.norm.norm import rms_norm
from hightide.ops.rows import row_lanes, rows_alike
from hightide.traits import Traits
from hightide.wgsl.preprocessor import Constant

BLOCK = 32  # quants that kernels take at a time
LANES = 8  # of a workgroup of register tiles: what a 256-bit CPU runs as one
QUAD = 4  # lanes that swap with each other: what a 128-bit CPU runs as one
FEW = 4  # rows that a GEMV still takes
ALIKE = 0  # stands for any number of rows, where all of them take one tile
SPLIT_LANES = 64  # of a workgroup that splits K
ENOUGH_TILES = 64  # of the large kind, to fill a GPU
NORMED_AGAIN = 1 << 21  # weights of a product, up to which a norm inside it costs llvmpipe less than a dispatch
FLOAT = "float"  # the type of weights that are plain floats


@dataclass(slots=True)
class BlockWeight:
    """A matrix [n, 32 * blocks] in blocks, and how kernels read it."""

    type: str  # a file of blocks/unpack/
    n: int
    blocks: int
    given: dict[str, Any]  # what its type declares
    aligned: bool = False  # the scales of four rows lie together
    nibbles: bool = False  # a quant is a nibble, and all else is in the scales


def _possible(traits: Traits, option: str) -> bool:
    lanes = traits.subgroup_size
    if option == "quads":
        return QUAD <= lanes < LANES
    return lanes >= LANES or option not in ("broadcast", "subgroups")


def _first(traits: Traits, *options: str) -> str:
    return next(option for option in options if _possible(traits, option))


def _default(traits: Traits, *of_gpus: str) -> str:
    return _first(traits, "broadcast", "quads", "registers") if traits.software else _first(traits, *of_gpus)


GEMV = Choice(
    "linear.gemv",
    ("broadcast", "quads", "registers", "split", "subgroups"),
    lambda traits: _default(traits, "subgroups", "split"),
    _possible,
)
GEMM = Choice(
    "linear.gemm", ("broadcast", "quads", "registers", "shared"), lambda traits: _default(traits, "shared"), _possible
)


# Opt-in: many rows of x are rounded to 8 bits, which changes results by about 1 % of their range, and gated ones by up
# to 7 %. Few rows are not: their products wait for weights, whatever x is.
ACTIVATIONS = Choice("linear.activations", ("f32", "int8"), lambda traits: "f32", exact=False)


def block_product(ctx: Context, weight: BlockWeight, product: Product, first: int = 0) -> Iterator[Dispatch]:
    """Rows of x times the weight, and the epilogue; `first` is the product's column that the weight starts at."""
    m, blocks, experts = product.rows, weight.blocks, product.experts
    rows = m if experts is None or experts.route == "gathered" else ceil_div(m, experts.count)  # that share a matrix
    many = _many(ctx.choices, rows) if experts is None or experts.route == "heads" else experts.route == "grouped"
    route = ctx.choose(GEMM if many else GEMV)
    int8 = many and weight.nibbles and _in_codes(ctx.choices) and experts is None
    x: dict[str, Any] = {"x": product.x}
    if int8:
        x = {"codes": ctx.scratch(m * blocks * 32), "factors": ctx.scratch(m * blocks * 8)}
        yield kernel("linear/activations_int8.wgsl").over(ceil_div(m * blocks, 64), x=product.x, blocks=m * blocks, **x)
        route = route if route == "shared" else "registers"
    sides = product.epilogue.sides
    if rows_alike(ctx.choices):
        rows = ALIKE
    if experts is not None and experts.route == "gathered":
        rows = 1
    tile = _tile(route, rows, weight, product, ctx.choices.traits.subgroup_size, int8)
    row_tiles = ceil_div(m, tile.rows)
    if experts is not None:
        row_tiles = yield from _expert_tiles(ctx, experts, m, tile.rows)
        x |= _expert_rows(experts, tile.rows)
    if product.norm is not None:
        x |= {"norm": product.norm.weight, "eps": product.norm.eps, "mean": 1 / (BLOCK * blocks * sides)}
    made = kernel(
        f"linear/{tile.file}.wgsl",
        f"{weight.type}_{product.epilogue.experts}{'_' * (experts is not None)}{tile.name}",
        TYPE=weight.type,
        ALIGNED=weight.aligned,
        **tile.constants,
        **product.epilogue.constants,
    )
    column_tiles = ceil_div(weight.n // sides, tile.columns)
    yield made.over(
        row_tiles * column_tiles,
        m=m,
        blocks=blocks,
        row_tiles=row_tiles,
        column_tiles=column_tiles,
        **x,
        **weight.given,
        **product.stored(weight.n, first),
    )


def floats_in_blocks(ctx: Context, rows: int) -> bool:
    """Whether plain floats take a route of blocks.

    Software adapters have a simpler tile for one row, where nothing is to be handed on, and without broadcasts.
    """
    route, alike = ctx.choose(GEMM if _many(ctx.choices, rows) else GEMV), rows_alike(ctx.choices)
    return route not in ("registers", "quads") and (route != "broadcast" or rows > 1 or alike)


def _expert_tiles(ctx: Context, experts: Experts, rows: int, tile_rows: int) -> Generator[Dispatch, None, int]:
    """The most tiles of `tile_rows` that rows of different experts make; lists them unless that was done before."""
    if experts.route == "heads":
        return experts.count * ceil_div(rows // experts.count, tile_rows)
    if experts.route == "gathered":
        return rows
    most = min(rows, rows // tile_rows + experts.count)
    if tile_rows not in experts.lists:
        work = experts.lists[tile_rows] = ctx.scratch((1 + 3 * most + rows) * 4)
        group = kernel("experts/group.wgsl", "group_experts", COUNT=experts.count, LANES=row_lanes(ctx))
        yield group.over(1, chosen=experts.chosen, work=work, rows=rows, tile_rows=tile_rows, most_tiles=most)
    return most


def _expert_rows(experts: Experts, tile_rows: int) -> dict[str, Any]:
    """What row_experts.wgsl takes."""
    given: dict[str, Any] = {"each": experts.each, "all_experts": experts.count}
    given |= {"first_expert": experts.first, "part_experts": experts.held}
    if experts.route == "grouped":
        given["work"] = experts.lists[tile_rows]
    elif experts.route == "gathered":
        given["chosen"] = experts.chosen
    return given


def norms_inside(ctx: Context, product: Product, n: int, floats: bool) -> bool:
    """Whether the kernel of a product with n columns by blocks, of floats or of quants, norms x as it reads it."""
    if _many(ctx.choices, product.rows):
        return False
    if ctx.choose(GEMV) == "broadcast":
        return not floats and n * product.k <= NORMED_AGAIN  # every tile of columns norms x again
    return ctx.choose(GEMV) in ("split", "subgroups")


def without_norm(ctx: Context, product: Product, inside: bool) -> Generator[Dispatch, None, Product]:
    """The norm of x as a dispatch of its own, unless it is done inside the product's kernel; what is left to do."""
    norm, rows = product.norm, product.rows
    if norm is None or inside:
        return product
    normed = ctx.scratch(rows * product.k * 4)
    yield rms_norm(ctx, product.x, rows, product.k, norm.weight, norm.eps, normed)
    return replace(product, x=normed, norm=None)


def operand(choices: Choices, x: np.ndarray, nibbles: bool) -> np.ndarray:
    """What a product by blocks takes for x, with weights that are nibbles or not: x, or x in 8-bit codes."""
    many = _many(choices, math.prod(x.shape[:-1]))
    return rounded_to_codes(x) if many and nibbles and _in_codes(choices) else x


def rounded_to_codes(x: np.ndarray) -> np.ndarray:
    """What `activations_int8.wgsl` leaves of x, step by step in float32 as there."""
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], -1, BLOCK)
    most = np.abs(blocks).max(axis=-1, keepdims=True, initial=0)
    with np.errstate(all="ignore"):
        per_step = np.where(most > 0, np.float32(127) / most, np.float32(0))
    codes = np.rint(blocks * per_step).astype(x.dtype)
    return (codes * (most / np.float32(127)).astype(x.dtype)).reshape(x.shape)


def _many(choices: Choices, rows: int) -> bool:
    """Whether a GEMM takes them."""
    return rows > FEW or rows_alike(choices)


def _in_codes(choices: Choices) -> bool:
    return choices(ACTIVATIONS) == "int8"


@dataclass(slots=True)
class Tile:
    """The rows and columns that a workgroup computes, and its kernel: linear/<file>.wgsl with these constants."""

    file: str
    name: str
    rows: int
    columns: int
    constants: dict[str, Constant]


def _tile(route: str, m: int, weight: BlockWeight, product: Product, subgroup_size: int, int8: bool) -> Tile:
    """The tile of a route for `m` rows."""
    if route == "shared" and int8:
        rows = 4 if m == ALIKE else next((rows for rows in (1, 2) if m <= 16 * rows), 4)
        return Tile("int8_tile", f"int8_{rows}", 16 * rows, 64 // product.epilogue.sides, {"ROWS": rows})
    if route == "shared" and m > 32 and ceil_div(m, 64) * ceil_div(weight.n, 64) >= ENOUGH_TILES:
        return Tile("large_tile", "large", 64, 64 // product.epilogue.sides, {})
    if route == "shared":
        rows = 4 if m == ALIKE else 1 if m <= 8 else 2 if m <= 16 else 4
        return Tile("shared", "shared", 8 * rows, 32, {"ROWS": rows})
    if route == "broadcast" and weight.type == FLOAT:
        # On llvmpipe 32 rows take 1.8 times what 16 take, whether all are used or not.
        sixteens = ceil_div(m, 16)
        many = 32 if sixteens % 2 == 0 or sixteens > 8 else 16
        rows = next((rows for rows in (4, 8) if m <= rows), many)
        return Tile("tall_tile", "small" if rows == 4 else "gemm", rows, 4 * LANES, {"ROWS": rows})
    if route == "broadcast" and m > FEW:
        # On llvmpipe 16 rows take 1.5 to 1.8 times what eight take (Q4_1, Q8_0, Q4, Q6_K), whether all are used or not.
        eights = ceil_div(m, 8)
        rows = 8 if eights % 2 and eights < 11 else 16
        return Tile("tall_tile", "gemm", rows, 4 * LANES, {"ROWS": rows})
    if route == "quads":
        rows = next((rows for rows in (1, 2, 4, 8) if 0 < m <= rows), 16)
        return Tile("quad_tile", f"quads_{rows}", rows, 4 * QUAD, {"ROWS": rows})
    rows = m if m in (1, 2) else 4  # of a thread
    if route == "broadcast":
        name = {1: "gemv", 2: "small"}.get(rows, "gemm")
        return Tile("tile", name, rows, 4 * LANES, {"ROWS": rows, "NORM": product.norm is not None})
    lanes, add, most = {
        "registers": (LANES, "", 1),
        "split": (SPLIT_LANES, "shared", SPLIT_LANES),
        "subgroups": (SPLIT_LANES, "shuffles", min(SPLIT_LANES, subgroup_size)),
    }[route]
    steps = max(1, min(weight.blocks, most)).bit_length() - 1  # 2^steps lanes share a column, if it has so many blocks
    constants: dict[str, Constant] = {"ROWS": rows, "LANES": lanes, "STEPS": steps, "ADD": add, "INT8": int8}
    constants["NORM"] = product.norm is not None
    return Tile("split", f"{route}_{rows}{'_int8' * int8}", rows, 4 * lanes >> steps, constants)
