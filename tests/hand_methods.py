"""Methods of programs made by hand, instruction by instruction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hightide.formats.instructions import Instruction
from hightide.formats.program_file import EValue, MethodFile, ProgramFile, TensorSpec
from hightide.graph.blob import Blob
from hightide.pte.program import Method, Program


def tensor(
    *dims: int,
    dtype: str = "float32",
    constant: Any = None,
    initial: Any = None,
    order: tuple[int, ...] = (),
    place: tuple[int, int] | None = None,
    fixed: bool = False,
) -> TensorSpec:
    def blob(data: Any) -> Blob | None:
        raw = None if data is None else np.asarray(data, dtype).tobytes()
        return None if raw is None else Blob(raw, 0, len(raw))

    order = order or tuple(range(len(dims)))
    return TensorSpec(dtype, dims, not fixed, order, blob(constant), blob(initial), place, None)


def method(
    values: list[EValue], inputs: list[int], outputs: list[int], *instructions: Instruction, whole: bool = False
) -> Method:
    file = MethodFile("forward", tuple(values), tuple(inputs), tuple(outputs), instructions, ())
    return Program(ProgramFile(Path("hand.pte"), {"forward": file}, {}), "cpu", whole=whole).method()
