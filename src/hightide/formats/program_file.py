"""What a `.pte` file says: methods with their values and instructions, delegates and named data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from hightide.formats.instructions import Instruction
from hightide.graph.blob import Blob
from hightide.graph.values import Dims


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of a method. At most one of `constant` and `initial` is set; neither: it is computed or an input."""

    dtype: str  # a key of ITEM_SIZE
    dims: Dims  # max dims
    dynamic: bool  # live dims may be smaller
    dim_order: tuple[int, ...]  # outermost first; (0, 1, 2, ...) is contiguous
    constant: Blob | None  # data that never changes, exactly as long as the dims need
    initial: Blob | None  # what mutable state starts as, exactly as long as the dims need
    place: tuple[int, int] | None  # its memory's number and its offset there, where the exporter planned it
    name: str | None  # fully qualified name in the model, where the exporter kept it


@dataclass(frozen=True)
class ValueListSpec:
    """A list of ints, tensors or optional tensors: each item is an index into the method's values, or -1 for None."""

    items: tuple[int, ...]


EValue: TypeAlias = None | bool | int | float | str | tuple[float, ...] | tuple[bool, ...] | TensorSpec | ValueListSpec


@dataclass(frozen=True)
class Delegate:
    """A part of a method that the exporter compiled for one backend."""

    id: str  # "VulkanBackend"
    processed: Blob
    compile_specs: dict[str, bytes]


@dataclass(frozen=True)
class MethodFile:
    name: str  # "forward"
    values: tuple[EValue, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    delegates: tuple[Delegate, ...]


@dataclass(frozen=True)
class ProgramFile:
    path: Path
    methods: dict[str, MethodFile]
    named_data: dict[str, Blob]  # of the program and of its data files
