"""The routes of a product with weights in blocks of 32: which kernel for how many rows, on which adapter.

All of them read a weight by the same few functions (`open_block`, `four_scales`, `four`, `quant_unit`; see
blocks/blocks.wgsl) and end in the same epilogue, so a type of weights, a route and an epilogue are each written once.

Software adapters take register tiles without barriers ("broadcast", or "registers" where subgroups are small); real
GPUs split K over lanes for few rows ("subgroups", or "split" by shared memory) and share tiles of memory for many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from hightide.ops.choices import Choice
from hightide.ops.legacy import Binding, Context, Dispatch, Kernel, Tensor, ceil_div, kernel
from hightide.ops.linear.epilogue import Epilogue
from hightide.traits import Traits

BLOCK = 32  # quants that kernels take at a time
LANES = 8  # of a workgroup of register tiles: what a 256-bit CPU runs as one
FEW = 4  # rows that a GEMV still takes
SPLIT_LANES = 64  # of a workgroup that splits K


@dataclass(frozen=True)
class BlockWeight:
    """A matrix [n, 32 * blocks] in blocks, and how kernels read it."""

    name: str  # of its type, for the names of routes
    n: int
    blocks: int
    tensors: tuple[Tensor, Tensor]  # bindings 2 and 3
    unpack: str  # WGSL
    fields: tuple[str, ...]  # of the kernels' parameters that `unpack` needs
    params: tuple[int, ...]
    runs: int = 1  # scales per block
    nibbles: bool = False  # a quant is a nibble, and all else is in the scales


def _possible(traits: Traits, option: str) -> bool:
    return option not in ("broadcast", "subgroups") or traits.subgroup_size >= LANES


def _default(traits: Traits, with_subgroups: str, without: str) -> str:
    if traits.software:
        return "broadcast" if _possible(traits, "broadcast") else "registers"
    return with_subgroups if _possible(traits, with_subgroups) else without


GEMV = Choice(
    "linear.gemv",
    ("broadcast", "registers", "split", "subgroups"),
    lambda traits: _default(traits, "subgroups", "split"),
    _possible,
)
GEMM = Choice(
    "linear.gemm", ("broadcast", "registers", "shared"), lambda traits: _default(traits, "shared", "shared"), _possible
)


# Opt-in: x is rounded to 8 bits, which changes results by about 1 % of their range.
ACTIVATIONS = Choice("linear.activations", ("f32", "int8"), lambda traits: "f32", exact=False)


def block_product(
    ctx: Context, weight: BlockWeight, x: Binding, m: int, epilogue: Epilogue, out: Binding, width: int, first: int
) -> Iterator[Dispatch]:
    """Rows of x times the weight, and the epilogue, into columns from `first` on of rows of `width`."""
    route = ctx.choose(GEMV if m <= FEW else GEMM)
    rows = m if m <= 2 else 4  # of a thread
    reads: tuple[Binding, ...] = (*weight.tensors, x)
    if weight.nibbles and ctx.choose(ACTIVATIONS) == "int8":
        codes, factors = ctx.scratch(m * weight.blocks * 32), ctx.scratch(m * weight.blocks * 8)
        yield Dispatch(
            kernel("linear/activations_int8.wgsl"),
            groups=ceil_div(m * weight.blocks, 64),
            params=(m * weight.blocks,),
            reads=(x,),
            writes=(codes, factors),
        )
        reads = (*weight.tensors, codes, factors)
        route = route if route in ("split", "subgroups") else "registers"
        made, tile_rows, tile_columns = _split_kernel("split_int8", route, weight, rows, epilogue, ctx.choices.traits)
    elif route == "broadcast":
        shape = {1: "gemv", 2: "small", 4: "gemm"}[rows]
        made, tile_rows, tile_columns = _kernel("tile", shape, weight, rows, epilogue), rows, 4 * LANES
    elif route == "shared":
        rows = 1 if m <= 8 else 2 if m <= 16 else 4
        tile_rows, tile_columns = rows * 8, 32
        made = _kernel("shared", "shared", weight, rows, epilogue, TILE_ROWS=tile_rows)
    else:
        made, tile_rows, tile_columns = _split_kernel("split", route, weight, rows, epilogue, ctx.choices.traits)
    row_tiles, column_tiles = ceil_div(m, tile_rows), ceil_div(weight.n // epilogue.halves, tile_columns)
    yield Dispatch(
        made,
        groups=row_tiles * column_tiles,
        params=(m, weight.n, weight.blocks, row_tiles, column_tiles, width, first, *weight.params),
        reads=(*reads, *epilogue.tensors),
        writes=(out,),
    )


def _split_kernel(
    file: str, route: str, weight: BlockWeight, rows: int, epilogue: Epilogue, traits: Traits
) -> tuple[Kernel, int, int]:
    """A kernel that splits K, and the rows and columns that a workgroup of it computes."""
    lanes = LANES if route == "registers" else SPLIT_LANES
    split = _split(route, weight.blocks, traits)
    name = f"{route}_{rows}" if file == "split" else f"{route}_{rows}_int8"
    binding = 5 if file == "split" else 6
    defines = _split_defines(route, lanes, split, rows, epilogue)
    return _kernel(file, name, weight, rows, epilogue, binding, **defines), rows, 4 * lanes // split


def _split(route: str, blocks: int, traits: Traits) -> int:
    """How many lanes share a column: a power of two that blocks suffice for."""
    most = {"registers": 1, "split": SPLIT_LANES, "subgroups": min(SPLIT_LANES, traits.subgroup_size)}[route]
    return 1 << min(blocks, most).bit_length() - 1


def _kernel(
    file: str, route: str, weight: BlockWeight, rows: int, epilogue: Epilogue, binding: int = 5, **defines: object
) -> Kernel:
    """`binding`: the first that the epilogue may take."""
    return kernel(
        f"linear/{file}.wgsl",
        f"{weight.name}_{route}",
        TYPE=weight.name.upper(),
        UNPACK=common() + weight.unpack,
        PARAMS=", ".join(f"{field}: u32" for field in weight.fields),
        ROWS=rows,
        RUNS=weight.runs,
        CHUNKS=8 // weight.runs,
        **epilogue.defines(binding),
        **defines,
    )


def _split_defines(route: str, lanes: int, split: int, rows: int, epilogue: Epilogue) -> dict[str, object]:
    """Defines of split.wgsl: where a thread's lane comes from, and how the sums of a column's lanes are added up."""
    plain = "@builtin(local_invocation_index) lane: u32"
    by_subgroup = """@builtin(subgroup_id) subgroup: u32, @builtin(subgroup_size) size: u32,
        @builtin(subgroup_invocation_id) place: u32"""
    names = ["total", "gate"][: epilogue.halves]
    add_up = {
        "registers": "",
        "split": _in_shared_memory(names, split, rows),
        "subgroups": _by_shuffles(names, split, rows),
    }
    size = lanes * rows * epilogue.halves
    return {
        "LANES": lanes,
        "SPLIT": split,
        "QUADS": lanes // split,
        "WHERE": {"registers": "(there is one)", "split": "in shared memory", "subgroups": "by shuffles"}[route],
        "LANE": by_subgroup if route == "subgroups" else plain,
        "FIND_LANE": "let lane = subgroup * size + place;" if route == "subgroups" else "",
        "SHARED": f"var<workgroup> sums: array<vec4<f32>, {size}>;" if route == "split" else "",
        "ADD_UP": add_up[route],
    }


def _in_shared_memory(names: list[str], split: int, rows: int) -> str:
    """All sums at once: every barrier costs a software adapter much to compile."""
    places = [
        (f"{name}{r}", f"sums[{n * rows + r} * {SPLIT_LANES} + lane]")
        for n, name in enumerate(names)
        for r in range(rows)
    ]
    return "\n".join(
        [
            *(f"    {place} = {name};" for name, place in places),
            f"    for (var step = {split // 2}u; step > 0u; step /= 2u) {{",
            "        workgroupBarrier();",
            f"        for (var i = lane; part < step && i < {len(places) * SPLIT_LANES}u; i += {SPLIT_LANES}u) {{",
            "            sums[i] += sums[i + step];",
            "        }",
            "    }",
            *(f"    {name} = {place};" for name, place in places),
        ]
    )


def _by_shuffles(names: list[str], split: int, rows: int) -> str:
    steps = [1 << n for n in range(split.bit_length() - 1)]
    sums = [f"{name}{r}" for name in names for r in range(rows)]
    return "\n".join(f"    {sum} += subgroupShuffleXor({sum}, {step}u);" for sum in sums for step in steps)


@cache
def common() -> str:
    return resources.files("hightide.ops.blocks").joinpath("blocks.wgsl").read_text()
