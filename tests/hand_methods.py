"""Methods of programs made by hand, instruction by instruction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hightide.formats.instructions import Instruction, JumpFalseCall, KernelCall, MoveCall
from hightide.formats.program_file import EValue, MethodFile, ProgramFile, TensorSpec
from hightide.graph.blob import Blob
from hightide.pte.program import Method, Program

# Value 5 = x + x where value 1 is true, else -x: x is value 0, value 3 is 1 and value 6 false.
BRANCHES = (
    JumpFalseCall(1, 4),
    KernelCall("aten::add.out", (0, 0, 3, 2, 2)),
    MoveCall(2, 5),
    JumpFalseCall(6, 6),
    KernelCall("aten::neg.out", (0, 4, 4)),
    MoveCall(4, 5),
)


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
