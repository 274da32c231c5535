"""An export read back, as a page reads it: what it would dispatch at any level."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from pathlib import Path
from typing import Any

from hightide.graph.values import Dims
from hightide.web.folder_writer import KERNELS, PLAN
from hightide.web.session_tables import Data

ReadElements = Mapping[tuple[int, int], int]  # by (input, flat index)


@dataclass(frozen=True)
class ReplayedDispatch:
    text: str  # of the kernel
    params: list[int]  # words, without the zeros at the end
    places: list[Any]  # of the tensors bound: a buffer, or [buffer, offset, bytes]
    groups: int


@dataclass
class ReplayedSession:
    """One variant of an export."""

    name: str
    data: Data
    constants: list[list[int]]
    kernels: Mapping[str, Data]
    params: list[list[int]]

    def __post_init__(self) -> None:
        self._levels = {json.dumps(level["dims"]): level for level in self.data["levels"]}

    def level(self, dims: Sequence[Dims]) -> Data:
        return self._levels[json.dumps([list(d) for d in dims])]

    def dispatches(self, dims: Sequence[Dims], elements: ReadElements) -> list[ReplayedDispatch]:
        level = self.level(dims)
        course = self.data["courses"][level["course"]]
        made = []
        for number, slot in zip(course["groups"], course["slots"], strict=True):
            kernel, *places = self.data["groups"][number]
            block, grid = level["slots"][slot]
            groups = max(0, evaluated(grid, elements))
            made.append(ReplayedDispatch(self.kernels[kernel]["text"], self.params[block], places, groups))
        return made

    def symints(self, dims: Sequence[Dims], elements: ReadElements) -> list[int]:
        return [evaluated(formula, elements) for formula in self.level(dims)["symints"]]


def read_export(folder: Path) -> list[ReplayedSession]:
    """The variants of an export."""
    tables = json.loads(gzip.decompress((folder / KERNELS).read_bytes()))
    plan = json.loads((folder / PLAN).read_bytes())
    return [
        ReplayedSession(one["name"], one["session"], one["constants"], tables["kernels"], tables["params"])
        for one in plan["variants"]
    ]


def evaluated(formula: Any, elements: ReadElements) -> int:
    """See `session_tables.formula`."""
    if isinstance(formula, int):
        return formula
    kind, *parts = formula
    if kind == "in":
        return elements[parts[0], parts[1]]
    numbers = [evaluated(part, elements) for part in parts]
    if kind == "//":
        return numbers[0] // numbers[1]
    return sum(numbers) if kind == "+" else reduce(mul, numbers)
