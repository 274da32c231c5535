"""Which levels of a part to verify: those that are named, or a few of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from hightide.errors import HightideError, InputError
from hightide.tools.opened_file import Part


def levels_of(
    part: Part, wanted: Mapping[str, Sequence[int]], exact: Sequence[Mapping[str, int]] = ()
) -> list[dict[str, int]]:
    """The levels to verify: those that are named, else a few of each kind.

    `wanted` are values by symbol, taken in all combinations that the part accepts; `exact` are whole levels.
    """
    if exact:
        return [part.level(at) for at in exact]
    symbols = part.symbols
    if unknown := [name for name in wanted if name not in symbols]:
        part.level(dict.fromkeys(unknown, 0))  # says what there is
    if wanted:
        free = {name: wanted.get(name) or (None,) for name in symbols}
        given = [
            part.level({name: value for name, value in zip(free, values, strict=True) if value is not None})
            for values in product(*free.values())
        ]
        accepted = [at for at in given if _accepts(part, at)]
        if not accepted:
            raise InputError(f"{part.name} takes none of these levels")
        return accepted
    return list(_usual_levels(part))


def _usual_levels(part: Part) -> Iterator[dict[str, int]]:
    """A few of each kind: small and odd, one after a position, the max."""
    symbols = part.symbols
    dims = [name for name in symbols if name.isupper() and len(name) == 1]
    kinds: list[dict[str, int]] = []
    for size, position in ((7, 0), (1, 11), (5, 40), (None, 0)):
        at = {name: symbols[name] if size is None else min(size, symbols[name]) for name in dims}
        if "pos" in symbols:
            at["pos"] = min(position, max(0, symbols["pos"] - 8))
        if "keep" in symbols:
            at["keep"] = 1
        kinds.append(at)
    seen = []
    for at in kinds:
        level = part.level(at)
        if level not in seen and _accepts(part, level):
            seen.append(level)
            yield level
    if not seen:
        yield part.level({})


def _accepts(part: Part, at: Mapping[str, int]) -> bool:
    try:
        part.inputs_at(at)
    except HightideError:
        return False
    return True


def level_of(part: Part, given: Sequence[np.ndarray]) -> dict[str, int]:
    """The level that inputs are at."""
    level = {}
    for symbol in part.source.symbols:
        if symbol.element is not None:
            position, flat = symbol.element
            level[symbol.name] = int(np.asarray(given[position]).reshape(-1)[flat])
        else:
            place = symbol.places[0]
            level[symbol.name] = (np.shape(given[place.input])[place.axis] - place.offset) // place.scale
    return level


def parse_values(text: str, name: str = "") -> tuple[str, tuple[int, ...]]:
    """`S=1,7,128` as a symbol and its values; with a `name`, the values alone."""
    if not name:
        name, _, text = (word.strip() for word in text.partition("="))
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not name or not words or not all(word.isdigit() for word in words):
        raise InputError(f"levels are written as S=1,7,128; {text or name!r} is not a list of numbers")
    return name, tuple(map(int, words))
