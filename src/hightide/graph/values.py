"""The values of a graph: tensors, SymInts, literals and lists of values.

A value's *max dims* are what the file says and what its buffer is sized for; they never change.
Its *live dims* belong to one run and are computed in `hightide.planning.planner`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from hightide.graph.blob import AnyBlob

# What the exporters serialize; on the GPU int64 is narrowed, and float16 widened where the adapter has no halves.
ITEM_SIZE = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}

Dims: TypeAlias = tuple[int, ...]
Literal: TypeAlias = None | bool | int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[bool, ...]


@dataclass(frozen=True)
class TensorValue:
    """A tensor: `dims` are its max dims."""

    id: int
    dims: Dims
    dtype: str  # a key of ITEM_SIZE: the type the graph computes in
    host_dtype: str  # the type the caller gives or gets; differs from dtype under forced fp16
    constant: AnyBlob | None = None  # weights and initial state, never copied from the file here

    stored: str = ""  # the type of the constant's bytes, where it is not dtype

    @property
    def max_bytes(self) -> int:
        return math.prod(self.dims) * ITEM_SIZE[self.dtype]

    @property
    def stored_dtype(self) -> str:
        return self.stored or self.dtype


@dataclass(frozen=True)
class SymIntValue:
    """A live integer; `initial` is the exporter's upper bound or hint."""

    id: int
    initial: int


@dataclass(frozen=True)
class LiteralValue:
    id: int
    value: Literal


@dataclass(frozen=True)
class ListValue:
    """A list of other values, by id (tensors of a `cat`, SymInts of a size list)."""

    id: int
    items: tuple[int, ...]


Value: TypeAlias = TensorValue | SymIntValue | LiteralValue | ListValue
