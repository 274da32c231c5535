"""Views that the exporter's memory planning took out of a method.

A view of fixed dims is no instruction: its tensor has the same place in the planned memory as the tensor that it views.
Here nothing is placed by the file, so such a tensor would never be defined: the view becomes an instruction again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from hightide.formats.instructions import Instruction, JumpFalseCall, KernelCall
from hightide.formats.program_file import EValue, MethodFile, TensorSpec, ValueListSpec
from hightide.graph.graph import Graph
from hightide.pte.accesses import Accesses

VIEW = "executorch_prim::et_view.default"


def with_planned_views(method: MethodFile, graphs: Mapping[int, Graph]) -> MethodFile:
    """The method with a view wherever a tensor is read that no instruction defines; as it is where there is none."""
    values = list(method.values)
    views: dict[int, list[Instruction]] = {}  # by the instruction that they follow; -1 is the start
    for id, source, after in _shared(method, Accesses(method, graphs)):
        views.setdefault(after, []).append(KernelCall(VIEW, (source, _sizes(values, id), id)))
    if not views:
        return method
    instructions = [*views.get(-1, ())]
    starts: list[int] = []  # where each instruction is now
    for n, instruction in enumerate(method.instructions):
        starts.append(len(instructions))
        instructions += [instruction, *views.get(n, ())]
    starts.append(len(instructions))
    aimed = (
        JumpFalseCall(i.condition, starts[i.destination]) if isinstance(i, JumpFalseCall) else i for i in instructions
    )
    return replace(method, values=tuple(values), instructions=tuple(aimed))


def _shared(method: MethodFile, accesses: Accesses) -> Iterator[tuple[int, int, int]]:
    """Tensors that nothing defines, with the one that was last at their place, and the instruction that defined it."""
    defined = accesses.defined
    first_read: dict[int, int] = {}
    for n, reads in enumerate((*accesses.reads, frozenset(method.outputs))):
        for id in reads - defined:
            first_read.setdefault(id, n)
    writes = [(-1, frozenset(method.inputs) | _with_data(method)), *enumerate(accesses.writes)]
    for id, read in first_read.items():
        spec = method.values[id]
        if not isinstance(spec, TensorSpec) or spec.place is None or spec.constant or spec.initial or spec.dynamic:
            continue
        sources = [(n, other) for n, ids in writes if n < read for other in ids if _is_at(method.values[other], spec)]
        if sources:
            after, source = max(sources)
            yield id, source, after


def _with_data(method: MethodFile) -> frozenset[int]:
    tensors = ((id, spec) for id, spec in enumerate(method.values) if isinstance(spec, TensorSpec))
    return frozenset(id for id, spec in tensors if spec.initial is not None)


def _is_at(other: EValue, spec: TensorSpec) -> bool:
    return (
        isinstance(other, TensorSpec)
        and other.place == spec.place
        and other.dtype == spec.dtype
        and math.prod(other.dims) == math.prod(spec.dims)
    )


def _sizes(values: list[EValue], id: int) -> int:
    """The dims of a tensor as a new list of integers."""
    spec = values[id]
    assert isinstance(spec, TensorSpec)
    first = len(values)
    values += [*spec.dims, ValueListSpec(tuple(range(first, first + len(spec.dims))))]
    return len(values) - 1
