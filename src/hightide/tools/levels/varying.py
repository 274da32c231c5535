"""What varies in a program: the live dims of its inputs, and the integers that it reads from them.

A file says which inputs may shrink, not which of their dims, nor which dims are one and the same. So
it is found out by trying: a dim that can be smaller by itself is a symbol of its own (S, T, U, ...); dims
that can only be smaller together are one symbol; a dim that cannot is fixed. Integers read from an input are
symbols too (`pos` for a position).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Protocol, TypeAlias

import numpy as np

from hightide.graph.values import Dims
from hightide.planning.levels import InputSpec
from hightide.tools.levels.formulas import Formula, Live, formula_of

DIM_NAMES = "STUVWXYZABCDEFGHIJKLMNOPQR"
INT32_MAX = int(np.iinfo(np.int32).max)
MAX_TIED = 8  # dims of one size that are tried in all combinations

ElementAt: TypeAlias = tuple[int, int]  # (input, flat index)
DimAt: TypeAlias = tuple[int, int]  # (input, axis)


@dataclass(frozen=True)
class Place:
    """A dim of an input that a symbol decides: `scale * symbol + offset`."""

    input: int
    axis: int
    scale: int = 1
    offset: int = 0


@dataclass(frozen=True)
class Symbol:
    """Something that varies: the dims at `places`, or the integer at `element`."""

    name: str
    most: int
    default: int  # what it is where nobody says: the max of a dim, 0 for a position
    places: tuple[Place, ...] = ()
    element: ElementAt | None = None


class Space(Protocol):
    """A program, or a graph, that can be tried at a level."""

    specs: Sequence[InputSpec]

    def runs(self, dims: Sequence[Dims], values: Mapping[ElementAt, int]) -> bool:
        """Whether inputs of these dims, with these integers in them, are accepted."""

    def elements(self) -> Mapping[ElementAt, bool]:
        """The integers that are read from inputs; True: a shape is made from it."""


def dims_at(specs: Sequence[InputSpec], symbols: Sequence[Symbol], level: Mapping[str, int]) -> list[Dims]:
    """The live dims of the inputs at a level."""
    dims = [list(spec.dims) for spec in specs]
    for symbol in symbols:
        for place in symbol.places:
            dims[place.input][place.axis] = place.scale * level[symbol.name] + place.offset
    return [tuple(d) for d in dims]


def live_dims(specs: Sequence[InputSpec], symbols: Sequence[Symbol]) -> list[tuple[Formula, ...]]:
    """The dims of the inputs as formulas."""
    live = {symbol.name: Live(symbol.most, Formula.of(symbol.name)) for symbol in symbols}
    return [tuple(formula_of(d) for d in dims) for dims in dims_at(specs, symbols, live)]


def values_at(symbols: Sequence[Symbol], level: Mapping[str, int]) -> dict[ElementAt, int]:
    """The integers in the inputs at a level."""
    return {s.element: level[s.name] for s in symbols if s.element is not None}


def find_symbols(space: Space) -> tuple[Symbol, ...]:
    """What varies in a program: dims first, in the order of the inputs, then integers."""
    elements = space.elements()
    start = _start(space, elements)
    dims = _dim_symbols(space, start)
    level = {symbol.name: symbol.most for symbol in dims}
    taken = set(level)
    integers = []
    for (position, flat), value in start.items():
        name = element_name(space.specs[position], flat)
        name = f"{name}_" if name in taken else name
        taken.add(name)
        integers.append(Symbol(name, value, value, element=(position, flat)))
    small = _smallest(space, dims, start)
    found = []
    for symbol in integers:
        assert symbol.element is not None
        most = max(_largest(space, dims_at(space.specs, dims, at), start, symbol.element) for at in (level, small))
        found.append(replace(symbol, most=most))
    return (*dims, *found)


def element_name(spec: InputSpec, flat: int) -> str:
    """`pos` for a position; other integers are called as their input."""
    name = "pos" if spec.name in ("input_pos", "start_pos", "position", "cache_position") else spec.name
    count = int(np.prod(spec.dims)) if spec.dims else 1
    return name.replace(" ", "_") + (f"[{flat}]" if count > 1 else "")


def smaller_sizes(most: int) -> list[int]:
    """Sizes below `most` to try; not 1 unless it must be, because a dim of 1 may fit by broadcasting."""
    wanted = [most - 1, most // 2, 3, 2, most - 2, most // 4, most - 4, most - 8, most - 16, most - 32, most // 3]
    return list(dict.fromkeys(n for n in wanted if 1 < n < most)) or [1]


# ---- dims


def _dim_symbols(space: Space, values: Mapping[ElementAt, int]) -> list[Symbol]:
    most = {
        (i, axis): size
        for i, spec in enumerate(space.specs)
        if spec.dynamic
        for axis, size in enumerate(spec.dims)
        if size > 1
    }

    def accepts(places: Sequence[Place], size: int) -> bool:
        dims = [list(spec.dims) for spec in space.specs]
        for p in places:
            dims[p.input][p.axis] = p.scale * size + p.offset
        return space.runs([tuple(d) for d in dims], values)

    def varies(places: Sequence[Place]) -> bool:
        first = places[0]
        return any(accepts(places, n) for n in smaller_sizes(most[first.input, first.axis]))

    groups: list[tuple[Place, ...]] = []
    left = []
    for at in most:
        if varies([Place(*at)]):
            groups.append((Place(*at),))
        else:
            left.append(at)
    for places in _tied(left, most):
        free = all((p.input, p.axis) in left for p in places)
        if free and varies(places):
            groups.append(places)
            left = [at for at in left if at not in {(p.input, p.axis) for p in places}]
    groups.sort(key=lambda places: (places[0].input, places[0].axis))
    sizes = [most[places[0].input, places[0].axis] for places in groups]
    return [
        Symbol(_dim_name(n), size, size, places) for n, (places, size) in enumerate(zip(groups, sizes, strict=True))
    ]


def _tied(left: Sequence[DimAt], most: Mapping[DimAt, int]) -> Iterator[tuple[Place, ...]]:
    """Dims that may be one: of the same size, as many as can be; then pairs with a ratio or a difference."""
    for size in dict.fromkeys(most[at] for at in left):
        same = [at for at in left if most[at] == size]
        counts = range(len(same), 1, -1) if len(same) <= MAX_TIED else [len(same)]
        for count in counts:
            for some in combinations(same, count):
                yield tuple(Place(*at) for at in some)
    for small, large in combinations(sorted(left, key=lambda at: most[at]), 2):
        if most[small] == most[large]:
            continue
        if most[large] % most[small] == 0:
            yield Place(*small), Place(*large, scale=most[large] // most[small])
        yield Place(*small), Place(*large, offset=most[large] - most[small])


def _dim_name(n: int) -> str:
    return DIM_NAMES[n] if n < len(DIM_NAMES) else f"D{n}"


def _smallest(space: Space, dims: Sequence[Symbol], values: Mapping[ElementAt, int]) -> dict[str, int]:
    """The smallest level of a few that is accepted."""
    for n in (1, 2, 3, 4, 8):
        level = {symbol.name: min(n, symbol.most) for symbol in dims}
        if space.runs(dims_at(space.specs, dims, level), values):
            return level
    return {symbol.name: symbol.most for symbol in dims}


# ---- integers


def _start(space: Space, elements: Mapping[ElementAt, bool]) -> dict[ElementAt, int]:
    """Integers that the program accepts at its max dims: 0; 1 where a shape is made from one; or the size of a dim."""
    if not elements:
        return {}
    dims = [spec.dims for spec in space.specs]
    sizes = tuple(dict.fromkeys(d for spec in space.specs if spec.dynamic for d in spec.dims if d > 1))
    options = [((1, 0) if pinned else (0, 1)) + sizes for pinned in elements.values()]
    for tried, chosen in enumerate(product(*options)):
        values = dict(zip(elements, chosen, strict=True))
        if space.runs(dims, values):
            return values
        if tried == 64:
            break
    return {element: int(pinned) for element, pinned in elements.items()}


def _largest(space: Space, dims: Sequence[Dims], values: Mapping[ElementAt, int], element: ElementAt) -> int:
    """The largest value of an integer up to which all the powers of two tried are accepted."""

    def accepts(value: int) -> bool:
        return space.runs(dims, {**values, element: value})

    if accepts(INT32_MAX):
        return INT32_MAX
    low = values[element]
    if not accepts(low):
        return low
    step = 1
    while low + step < INT32_MAX and accepts(low + step):
        low, step = low + step, step * 2
    while step > 1:
        step //= 2
        if accepts(low + step):
            low += step
    return low
