"""Delegate calls without the arguments that their graphs do not read.

The exporter passes a value to a delegate, removes the op that read it (an `expand` that changes nothing, as in
`cache[:, :S] = x`), and leaves the value out of the graph's inputs but not out of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hightide.formats.instructions import DelegateCall, Instruction
from hightide.formats.program_file import EValue, MethodFile, ProgramFile, TensorSpec
from hightide.graph.graph import GraphFile
from hightide.graph.values import SymIntValue, TensorValue, Value


def without_unread(file: ProgramFile, delegates: Mapping[tuple[str, int], GraphFile]) -> ProgramFile:
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
    """Where a call passes too much, and only one choice of arguments fits the graph's inputs, that choice."""
    count = len(call.args) - len(graph.outputs)
    if count <= len(graph.inputs):
        return call
    given, outputs = call.args[:count], call.args[count:]
    wanted = [graph.values[id] for id in graph.inputs]
    first = _fitting(given, wanted, values)
    last = _fitting(given[::-1], wanted[::-1], values)[::-1]
    return call if first != last or len(first) < len(wanted) else DelegateCall(call.delegate, (*first, *outputs))


def _fitting(given: Sequence[int], wanted: Sequence[Value], values: Sequence[EValue]) -> list[int]:
    """The earliest arguments that fit, in order."""
    found: list[int] = []
    for id in given:
        if len(found) < len(wanted) and _fits(values[id], wanted[len(found)]):
            found.append(id)
    return found


def _fits(given: EValue, wanted: Value) -> bool:
    """Types as far as the two sides agree on them: a graph may hold int64 as int32 and floats as halves."""
    if isinstance(wanted, SymIntValue):
        return type(given) is int
    if not isinstance(wanted, TensorValue) or not isinstance(given, TensorSpec):
        return False
    floats = given.dtype.startswith("float") == wanted.dtype.startswith("float")
    return floats and given.dims == wanted.dims
