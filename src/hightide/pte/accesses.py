"""What the instructions of a method read and define."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hightide.formats.instructions import DelegateCall, Instruction, JumpFalseCall, KernelCall, MoveCall
from hightide.formats.program_file import MethodFile, ValueListSpec
from hightide.graph.graph import Graph
from hightide.pte.kernel_calls import bind_kernels


class Accesses:
    """By instruction; a list counts as its items."""

    def __init__(self, method: MethodFile, graphs: Mapping[int, Graph]) -> None:
        self.kernels = bind_kernels(method)
        self._method, self._graphs = method, graphs
        self.reads = [frozenset(self._opened(self._read_by(i, n))) for n, i in enumerate(method.instructions)]
        self.writes = [frozenset(self._written_by(i, n)) for n, i in enumerate(method.instructions)]
        self.defined = frozenset(method.inputs).union(*self.writes)  # at any time of a run

    def _read_by(self, instruction: Instruction, n: int) -> Sequence[int]:
        match instruction:
            case KernelCall():
                return self.kernels[n].signature.reads
            case DelegateCall(delegate=number, args=args):
                return args[: len(self._graphs[number].inputs)]
            case MoveCall(source=source):
                return (source,)
            case JumpFalseCall(condition=condition):
                return (condition,)
        return ()

    def _written_by(self, instruction: Instruction, n: int) -> Sequence[int]:
        match instruction:
            case KernelCall():
                signature = self.kernels[n].signature
                return (*signature.writes, *signature.changes)
            case DelegateCall(delegate=number, args=args):
                return args[len(self._graphs[number].inputs) :]
            case MoveCall(target=target):
                return (target,)
        return ()

    def _opened(self, ids: Iterable[int]) -> Iterator[int]:
        for id in ids:
            spec = self._method.values[id]
            yield from (item for item in spec.items if item != -1) if isinstance(spec, ValueListSpec) else (id,)
