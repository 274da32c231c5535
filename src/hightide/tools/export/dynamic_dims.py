"""Which dims of the inputs vary, as text: `x:1=S<=128`. Several dims may share a symbol."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hightide.errors import InputError

FORM = "NAME:DIM=SYMBOL<=MAX, such as x:1=S<=128"
SPEC = re.compile(
    r"(?P<input>\w+):(?P<axis>-?\d{1,3})="
    r"(?:(?P<least>\d{1,9})<=)?"
    r"(?:(?P<scale>\d{1,9})\*)?(?P<symbol>[A-Za-z_]\w*)(?P<offset>[+-]\d{1,9})?"
    r"(?:<=(?P<most>\d{1,9}))?"
)


@dataclass(frozen=True)
class DynamicDim:
    """One dim of an input: `scale * symbol + offset`."""

    input: str  # its name, or its number
    axis: int
    symbol: str
    scale: int = 1
    offset: int = 0

    @property
    def size(self) -> str:
        """`2*S+1`"""
        times = "" if self.scale == 1 else f"{self.scale}*"
        return f"{times}{self.symbol}{self.offset:+}" if self.offset else f"{times}{self.symbol}"


@dataclass(frozen=True)
class DynamicDims:
    """What was asked for; the range of a symbol is (least, most)."""

    dims: tuple[DynamicDim, ...]
    ranges: Mapping[str, tuple[int, int]]

    def of(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, dict[int, DynamicDim]]:
        """By input and axis, for example inputs of these shapes; InputError if they do not fit each other."""
        names = list(shapes)
        found: dict[str, dict[int, DynamicDim]] = {}
        seen: dict[str, tuple[int, str]] = {}  # symbol -> its size in the examples, and where
        for dim in self.dims:
            name = names[int(dim.input)] if dim.input.isdigit() and int(dim.input) < len(names) else dim.input
            if name not in shapes:
                raise InputError(
                    f"there is no input {dim.input!r} to vary; the inputs are {', '.join(names) or 'none'}"
                )
            shape = shapes[name]
            if not -len(shape) <= dim.axis < len(shape):
                raise InputError(f"input {name} is {list(shape)} and has no dim {dim.axis} to vary")
            axis = dim.axis % len(shape)
            if axis in found.setdefault(name, {}):
                raise InputError(f"dim {axis} of input {name} is named twice")
            found[name][axis] = dim
            value = self._value(dim, shape[axis], f"{name}:{axis}")
            before, where = seen.setdefault(dim.symbol, (value, f"{name}:{axis}"))
            if value != before:
                raise InputError(
                    f"{dim.symbol} is {before} at {where} of the example inputs, but {value} at {name}:{axis}"
                )
        return found

    def _value(self, dim: DynamicDim, size: int, where: str) -> int:
        """Of the symbol, in an example input."""
        value, rest = divmod(size - dim.offset, dim.scale)
        least, most = self.ranges[dim.symbol]
        if rest or not least <= value <= most:
            allowed = f"{dim.size} with {least} <= {dim.symbol} <= {most}"
            raise InputError(f"the example input has {size} at {where}, which is no {allowed}")
        if size < 2:
            raise InputError(
                f"the example input has {size} at {where}, which the exporter takes for a fixed size: give it 2 or more"
            )
        return value


def parse_dynamic(specs: Iterable[str]) -> DynamicDims:
    """Checked texts; InputError says which one is wrong, and what is allowed."""
    dims: list[DynamicDim] = []
    bounds: dict[str, dict[str, int]] = {}
    for text in specs:
        found = SPEC.fullmatch(text.replace(" ", ""))
        if found is None:
            raise InputError(f"{text!r} does not say which dim varies; write {FORM}")
        scale, offset = int(found["scale"] or 1), int(found["offset"] or 0)
        if scale < 1:
            raise InputError(f"{text!r} makes the dim {offset}, whatever {found['symbol']} is")
        dims.append(DynamicDim(found["input"], int(found["axis"]), found["symbol"], scale, offset))
        known = bounds.setdefault(found["symbol"], {})
        for name, round_up in (("least", True), ("most", False)):
            if found[name] is None:
                continue
            room = int(found[name]) - offset
            bound = -(-room // scale) if round_up else room // scale
            if known.setdefault(name, bound) != bound:
                raise InputError(f"{found['symbol']} cannot have the bounds {known[name]} and {bound} at once")
    return DynamicDims(tuple(dims), {symbol: _range(symbol, known) for symbol, known in bounds.items()})


def specs_in(dynamic_shapes: Any) -> list[str] | None:
    """The texts, if `dynamic_shapes` are such and not torch's own form."""
    if isinstance(dynamic_shapes, str):
        return [dynamic_shapes]
    if isinstance(dynamic_shapes, list | tuple) and dynamic_shapes and all(isinstance(s, str) for s in dynamic_shapes):
        return list(dynamic_shapes)
    return None


def _range(symbol: str, bounds: Mapping[str, int]) -> tuple[int, int]:
    if "most" not in bounds:
        raise InputError(f"{symbol} has no largest size; memory is planned for one: write {symbol}<=128, for instance")
    least, most = bounds.get("least", 1), bounds["most"]
    if not 0 <= least < most:
        raise InputError(f"{symbol} must have room to vary, but it is at least {least} and at most {most}")
    return least, most
