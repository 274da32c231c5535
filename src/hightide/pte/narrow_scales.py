"""Scales that a program holds as float64, held as the float32 numbers that they are.

Torch chooses scales in float32 and gives them as float64, which a GPU does not hold. Where only such ops read them
that round in float32 anyway, or convert them, nothing is lost.
"""

from __future__ import annotations

from dataclasses import replace

from hightide.formats.program_file import MethodFile, TensorSpec
from hightide.ops.contract import Op
from hightide.ops.elementwise.elementwise import ToCopy
from hightide.ops.int8.affine import Affine
from hightide.ops.int8.qparams import ChooseForRows, ChooseForTensor
from hightide.pte.accesses import Accesses

MAKERS: tuple[type[Op], ...] = (ChooseForRows, ChooseForTensor)
TAKERS: tuple[type[Op], ...] = (Affine, ToCopy)


def with_narrow_scales(method: MethodFile, accesses: Accesses) -> MethodFile:
    """The method with float32 for every float64 tensor that holds nothing else."""
    passed = {*method.inputs, *method.outputs}
    narrow = {
        id: replace(spec, dtype="float32")
        for id, spec in enumerate(method.values)
        if isinstance(spec, TensorSpec) and spec.dtype == "float64" and not (spec.constant or spec.initial)
        if id not in passed and _holds_scales(id, accesses)
    }
    if not narrow:
        return method
    return replace(method, values=tuple(narrow.get(id, spec) for id, spec in enumerate(method.values)))


def _holds_scales(id: int, accesses: Accesses) -> bool:
    made = [n for n, ids in enumerate(accesses.writes) if id in ids]
    taken = [n for n, ids in enumerate(accesses.reads) if id in ids]
    return bool(made) and _are(MAKERS, made, accesses) and _are(TAKERS, taken, accesses)


def _are(ops: tuple[type[Op], ...], instructions: list[int], accesses: Accesses) -> bool:
    return all(n in accesses.kernels and issubclass(accesses.kernels[n].op, ops) for n in instructions)
