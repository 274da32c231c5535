"""Delegate calls without the integers that their graphs do not read.

The exporter passes a size to a delegate, removes the op that read it (an `expand` that changes nothing, as in
`cache[:, :S] = x`), and leaves the size out of the graph's inputs but not out of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hightide.formats.instructions import DelegateCall, Instruction
from hightide.formats.program_file import EValue, MethodFile, ProgramFile
from hightide.graph.graph import GraphFile
from hightide.graph.values import TensorValue


def without_unread_sizes(file: ProgramFile, delegates: Mapping[tuple[str, int], GraphFile]) -> ProgramFile:
    """`delegates` are the graphs by method and number."""
    return replace(file, methods={name: _method(method, delegates) for name, method in file.methods.items()})


def _method(method: MethodFile, delegates: Mapping[tuple[str, int], GraphFile]) -> MethodFile:
    def read(instruction: Instruction) -> Instruction:
        if not isinstance(instruction, DelegateCall):
            return instruction
        graph = delegates.get((method.name, instruction.delegate))
        return instruction if graph is None else _with_read_arguments(instruction, graph, method.values)

    return replace(method, instructions=tuple(map(read, method.instructions)))


def _with_read_arguments(call: DelegateCall, graph: GraphFile, values: Sequence[EValue]) -> DelegateCall:
    """Where a graph reads tensors alone, the integers before and among them are not for it.

    One that reads some integer says nothing about which it is: such a call stays as it is.
    """
    if not all(isinstance(graph.values[id], TensorValue) for id in graph.inputs):
        return call
    left = list(call.args)
    taken: list[int] = []
    while left and len(taken) < len(graph.inputs):
        id = left.pop(0)
        if type(values[id]) is not int:
            taken.append(id)
    gives_tensor = bool(graph.outputs) and isinstance(graph.values[graph.outputs[0]], TensorValue)
    while gives_tensor and len(left) > len(graph.outputs) and type(values[left[0]]) is int:
        left.pop(0)
    return DelegateCall(call.delegate, (*taken, *left))
