"""How many lanes work on one row, for kernels that take a workgroup to a row (norms, softmax)."""

from __future__ import annotations

from hightide.ops.choices import Choice
from hightide.ops.contract import Context

# llvmpipe runs 8 lanes in one SIMD register and pays for each further 8 at every barrier: 8 lanes norm 128 rows
# of 576 in a fifth of the time of 64.
LANES = Choice("rows.lanes", ("8", "64"), default=lambda traits: "8" if traits.software else "64")


def row_lanes(ctx: Context) -> int:
    return int(ctx.choose(LANES))
