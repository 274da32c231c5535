"""Products with weights in GGUF's blocks, and rows of tables in them: cases for the self-test.

The tests have more of them, in tests/gpu/test_blocks.py.
"""

from __future__ import annotations

from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.case import Blocks, Case, In, floats

K = 512

CASES = [
    case
    for kind in BLOCK_TYPES
    for case in (
        Case(f"linear_{kind.lower()}", "aten.linear.default", (In((1, "S", K)), Blocks(kind, (27, K)), floats(27))),
        Case(
            f"embedding_{kind.lower()}", "aten.embedding.default", (Blocks(kind, (19, K)), In(("S",), "int32", 0, 18))
        ),
    )
]
