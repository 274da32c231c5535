"""The levels that a session plans when it is built, so that every route it can take exists from the start."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from hightide.errors import HightideError
from hightide.planning.levels import InputSpec, MaxElements
from hightide.planning.planner import Plan, Planner

# Live sizes at which routes change or may change; with two or three dims that vary, the few in all combinations.
LIVE = (1, 2, 3, 4, 5, 8, 16, 17, 32, 64, 128, 256, 512, 1024)
FEW = (1, 2, 3, 5)


def probe(planner: Planner, specs: Sequence[InputSpec], pinned: bool) -> list[Plan]:
    """Plans at levels that meet every route, so that all of them are made at build.

    The file does not say which dims of an input are dynamic: dims of one size vary together, and with them
    the integers that shapes are made from (`pinned`: there are such); a level that some op refuses is not one.
    """
    plans: dict[tuple[Any, ...], Plan] = {}

    def plan(live: dict[int, int], value: int) -> bool:
        dims = tuple(tuple(live.get(d, d) if s.dynamic else d for d in s.dims) for s in specs)
        key = (dims, value if pinned else 0)
        try:
            plans[key] = plans.get(key) or planner.plan(dims, MaxElements(value))
        except HightideError:
            return False
        return True

    sizes = sorted({d for spec in specs if spec.dynamic for d in spec.dims if d > 1})
    varying = [size for size in sizes if sum(plan({size: n}, n) for n in LIVE if n < size)]
    for n in LIVE:
        plan({size: min(n, size) for size in varying}, n)
    if 2 <= len(varying) <= 3:
        for few in product(FEW, repeat=len(varying)):
            plan({size: min(n, size) for size, n in zip(varying, few, strict=True)}, few[0])
    return list(plans.values())
