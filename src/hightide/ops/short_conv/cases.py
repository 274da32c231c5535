"""The cases of short convolutions; see `hightide.ops.case`."""

from __future__ import annotations

from typing import Any

from hightide.ops.attention.cases import filled
from hightide.ops.case import Case, In, Pos, floats
from hightide.ops.pages.cases import PAGE, SMALL, pool, table

CONV = "hightide.short_conv.default"
PAGED = "hightide.paged_conv.default"


def conv(width: int, taps: int) -> tuple[Any, ...]:
    """The arguments of short_conv, after earlier calls."""
    return (In((1, "S", 3 * width)), floats(taps, width), filled(1, width), Pos())


def paged(width: int, taps: int, page: int = PAGE) -> tuple[Any, ...]:
    """The arguments of paged_conv; what no sequence of the batch has written is NaN."""
    tables = [table(name, page) for name in ("singles", "tiles", "pages")]
    return (In((1, "S", 3 * width)), floats(taps, width), pool(1, width, page), *tables, page, table("places", page))


CASES = [
    Case("short_conv", CONV, conv(32, 3), empty=False),
    Case("short_conv_odd", CONV, conv(7, 4), empty=False),
    Case("short_conv_longest", CONV, conv(12, 33), empty=False),
    Case("short_conv_one_tap", CONV, conv(8, 1), empty=False),
    Case("short_conv_cache", CONV, conv(20, 3), empty=False, extra={"output": 1}),
    Case("paged_conv", PAGED, paged(32, 3)),
    Case("paged_conv_small", PAGED, paged(20, 7, SMALL)),
    Case("paged_conv_odd", PAGED, paged(9, 4)),
    Case("paged_conv_one_tap", PAGED, paged(8, 1)),
]
