"""The cases of the rotary ops; see `hightide.ops.case`."""

from __future__ import annotations

from hightide.ops.case import CONTEXT, Case, In, Pos, floats

CASES = [
    # rotary
    Case(
        "rotary",
        "et_vk.apply_rotary_emb.default",
        (In((1, "S", 4, 10)), In((1, "S", 2, 10)), In(("S", 5)), In(("S", 5))),
    ),
    Case(
        "rotary_batch",
        "et_vk.apply_rotary_emb.default",
        (In(("B", "S", 4, 8)), In(("B", "S", 4, 8)), floats(21, 4), floats(21, 4)),
    ),
    Case(
        "rotary_halves",
        "et_vk.apply_rotary_emb_hf.default",
        (In((1, "S", 4, 12)), In((1, "S", 1, 12)), floats(CONTEXT, 12), floats(CONTEXT, 12), Pos()),
    ),
    Case(
        "rotary_part",
        "et_vk.apply_rotary_emb_hf.default",
        (In((1, "S", 4, 16)), In((1, "S", 2, 16)), floats(CONTEXT, 6), floats(CONTEXT, 6), Pos()),
    ),
    Case(
        "rotary_alone",
        "hightide.rotary.default",
        (In(("B", "S", 3, 16)), floats(CONTEXT, 6), floats(CONTEXT, 6), Pos(), True),
    ),
    Case(
        "rotary_alone_neighbours",
        "hightide.rotary.default",
        (In((1, "S", 3, 10)), floats(CONTEXT, 5), floats(CONTEXT, 5), Pos(), False),
    ),
    # made from nothing, and tables of positions
    Case("rotary_complex", "et_vk.apply_rotary_emb_interleaved.default", (In(("B", "S", 6)), In((1, "S", 3, 2)))),
]
