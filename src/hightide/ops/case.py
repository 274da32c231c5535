"""Op cases: what each op is checked with, on every adapter, by the tests and by `hightide doctor`.

A family's cases are in its folder: `ops/<family>/cases.py` has a list `CASES`; adding an op adds rows. A dim given
as a letter is live: it runs at its max, at 1 and at odd sizes, from one built session.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, quants

from hightide.formats.gguf import block_size
from hightide.ops import FOLDERS

MAX = {"S": 21, "T": 9, "B": 3, "P": 40}  # the max of each live dim; P is a position in a context of 64
CONTEXT = 64


@dataclass(frozen=True)
class In:
    """An input tensor; `low`..`high` bound its values (integers: inclusive).

    One that must fit other inputs is made by `make`, from the live dims of a level, which then decide its dims.
    """

    dims: tuple[int | str, ...]
    dtype: str = "float32"
    low: float = -3
    high: float = 3
    make: Callable[[np.random.Generator, Mapping[str, int]], np.ndarray] | None = None


@dataclass(frozen=True)
class Const:
    make: Callable[[np.random.Generator], np.ndarray]


# Where the scales (f16) of a block are, if not in front.
SCALES_AT: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    "Q6_K": (208,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    **dict.fromkeys(("IQ1_M", "MXFP4"), ()),
}


@dataclass(frozen=True)
class Blocks:
    """A weight in GGUF's blocks of a kind: random quants, sane scales."""

    kind: str
    dims: tuple[int, ...]

    def make(self, rng: np.random.Generator) -> bytes:
        elements, size = block_size(self.kind)
        count = math.prod(self.dims) // elements
        if elements == 1:
            plain = rng.normal(size=self.dims).astype(np.float32)
            return bytes(quants.quantize(plain, GGMLQuantizationType[self.kind]).tobytes())
        data = rng.integers(0, 256, (count, size), dtype=np.uint8)
        for at in SCALES_AT.get(self.kind, (0,)):
            data[:, at : at + 2] = rng.uniform(0.001, 0.01, (count, 1)).astype(np.float16).view(np.uint8)
        if self.kind == "IQ1_M":  # four bits of the scale in each of four halves
            bits = rng.uniform(0.001, 0.01, (count, 1)).astype(np.float16).view(np.uint16)
            halves = data[:, 48:].view(np.uint16)
            halves[...] = halves & 0xFFF | (bits >> np.array([0, 4, 8, 12], np.uint16) & 15) << 12
        elif self.kind == "MXFP4":
            data[:, 0] = rng.integers(118, 122, count)
        return data.tobytes()


@dataclass(frozen=True)
class Size:
    """A SymInt: the live dim `dim` of argument number `arg`, plus `plus`."""

    arg: int
    dim: int
    plus: int = 0


@dataclass(frozen=True)
class Pos:
    """A SymInt read from an input: the position P, plus the live dim `plus`, if any."""

    plus: str = ""


@dataclass(frozen=True)
class Case:
    name: str
    op: str
    args: tuple[Any, ...]
    out: str | tuple[str, ...] = "float32"  # the type of the output, or of each
    dims: list[tuple[int, ...]] | None = None  # max dims of the outputs, where the args do not give them
    tolerance: float = 2e-6  # of the range of the expected values
    empty: bool = True  # also runs with the first live dim at 0
    extra: dict[str, Any] = field(default_factory=dict)


def all_cases() -> list[Case]:
    """The cases of every family."""
    return [case for folder in FOLDERS for case in cases_of(folder)]


def cases_of(folder: str) -> list[Case]:
    name = f"hightide.ops.{folder}.cases"
    cases: list[Case] = import_module(name).CASES if find_spec(name) else []
    return cases


# ---- what several families make their cases of

x2, x3 = In(("S", 12)), In(("B", "S", 10))
positive = In(("S", 7), low=0.1, high=4)
image = In(("B", 4, "S", "T"))


def floats(*dims: int, low: float = -2, high: float = 2) -> Const:
    return Const(lambda rng: rng.uniform(low, high, dims).astype(np.float32))


def fixed(array: np.ndarray) -> Const:
    return Const(lambda rng: array)


def q4_weight(n: int, k: int, group: int, bias: bool = False, padded: int = 0) -> tuple[Any, ...]:
    """(weight, scales, group, bias) of a 4-bit linear."""
    return (
        Const(lambda rng: rng.integers(0, 256, (n, (k + padded) // 2), dtype=np.uint8)),
        floats(-(-k // group), n, low=0.01, high=0.1),
        group,
        floats(n) if bias else None,
    )
