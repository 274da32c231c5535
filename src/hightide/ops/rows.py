"""What routes ask about rows: how many lanes work on one, and whether all are to be computed alike."""

from __future__ import annotations

from hightide.ops.choices import Choice, Choices
from hightide.ops.contract import Context

# llvmpipe runs 8 lanes in one SIMD register and pays for each further 8 at every barrier: 8 lanes norm 128 rows
# of 576 in a fifth of the time of 64.
LANES = Choice("rows.lanes", ("8", "64"), default=lambda traits: "8" if traits.software else "64")

# "alike": a row is computed by the same kernel, and summed up in the same order, in any batch: its bits are the same.
ROWS = Choice("rows", ("any", "alike"), default=lambda traits: "any", by_caller=True)


def rows_alike(choices: Choices) -> bool:
    return choices(ROWS) == "alike"


def row_lanes(ctx: Context, loads: int = 0) -> int:
    """Of kernels that take a workgroup to a row (norms, softmax); those that may have 256 give the `loads` of a row."""
    lanes = int(ctx.choose(LANES))
    return 256 if lanes == 64 and loads > 128 else lanes
