"""A method in as few graphs as it can be: its delegates, and the kernel calls that the exporter left between them.

Instructions that a GPU can run are gathered into *regions*, each of which becomes one graph, so that fusing, memory
planning, live shapes and the tools see all of it. What needs the host runs between them: jumps, numbers that
tensors hold, ops without a kernel. A method without such instructions is one graph.

The result is a method like any other, with a delegate for each region.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from hightide.errors import HightideError
from hightide.formats.instructions import DelegateCall, FreeCall, Instruction, JumpFalseCall, KernelCall, MoveCall
from hightide.formats.program_file import Delegate, MethodFile, TensorSpec
from hightide.graph.blob import Blob
from hightide.graph.graph import Graph
from hightide.graph.values import TensorValue
from hightide.ops.binding import graph_aliases
from hightide.ops.contract import SymIntOp, has_kernel
from hightide.ops.storage import GPU_TYPE
from hightide.planning.levels import INT32, MaxElements
from hightide.planning.planner import Planner
from hightide.pte.accesses import Accesses
from hightide.pte.interpreter import differ_by_ones, state_ids, tensor_array
from hightide.pte.kernel_calls import BoundKernel, is_host_work
from hightide.pte.narrow_scales import with_narrow_scales
from hightide.pte.region_graph import ON_COPIES, Number, RegionGraph, Sources

SMALL = 4096  # elements of a tensor: NumPy is done with an op on them before a GPU has begun
HOST, GPU, EITHER, NOWHERE = "host", "gpu", "either", "nowhere"
NO_BACKEND = "portable"  # whom a region without delegates was compiled for
ON_SYMINTS = {f"executorch_prim.{name}.Scalar": name for name in ("add", "sub", "mul", "floordiv", "neg")}
ITEM, SELECT = "aten._local_scalar_dense.default", "aten.select_copy.int"


def whole_method(method: MethodFile, graphs: Mapping[int, Graph]) -> tuple[MethodFile, dict[int, Graph]]:
    """The method with its regions as delegates, and their graphs; `graphs` are those of its own delegates."""
    if not any(isinstance(i, KernelCall | DelegateCall) for i in method.instructions):
        return method, dict(graphs)
    return _Method(method, graphs).joined()


def host_reasons(method: MethodFile, graphs: Mapping[int, Graph]) -> dict[KernelCall, str]:
    """Why the kernel calls stay on the host that do, when the method's regions are joined."""
    made = _Method(method, graphs)
    made.joined()
    left = (n for piece in made.pieces if not piece.on_gpu for n in piece.instructions)
    return {made.kernels[n].call: made.reason(n) for n in left if n in made.kernels}


@dataclass
class _Piece:
    """Instructions that run one after the other, on the host or as a region."""

    block: int
    on_gpu: bool
    instructions: list[int]


class _Method:
    def __init__(self, method: MethodFile, graphs: Mapping[int, Graph]) -> None:
        accesses = Accesses(method, graphs)
        self.method, self.graphs = with_narrow_scales(method, accesses), graphs
        self.kernels, self.reads, self.writes = accesses.kernels, accesses.reads, accesses.writes
        self.jumps = any(isinstance(i, JumpFalseCall) for i in method.instructions)
        self.states = frozenset(state_ids(method, self.kernels))
        numbers, owned = ({}, frozenset()) if self.jumps else (self._numbers(), self.states)
        self.sources = Sources(self.method, accesses.defined, numbers, owned)
        self.pieces: list[_Piece] = []

    def joined(self) -> tuple[MethodFile, dict[int, Graph]]:
        self.pieces = list(self._divided())
        while shared := self._shared_states():
            self.sources = replace(self.sources, owned=self.sources.owned - shared)
            self.pieces = list(self._divided())
        regions = {n: self._region(piece) for n, piece in enumerate(self.pieces) if piece.on_gpu}
        if not self.jumps:
            self._drop_unread(regions)
        return self._assembled(regions)

    # ---- what a graph can make

    def _numbers(self) -> dict[int, Number]:
        """Integers that a graph can make by itself, of values that are defined once, and before."""
        times = Counter((*self.method.inputs, *(id for ids in self.writes for id in ids)))
        made_by = {id: n for n, ids in enumerate(self.writes) for id in ids}
        numbers: dict[int, Number] = {}
        for n, kernel in self.kernels.items():
            reads, made = kernel.signature.reads, kernel.signature.writes[0] if kernel.signature.writes else -1
            if made < 0 or type(self.method.values[made]) is not int or any(times[id] > 1 for id in (*reads, made)):
                continue
            if any(made_by.get(id, -1) >= n for id in reads):
                continue
            if issubclass(kernel.op, SymIntOp):
                numbers[made] = Number(kernel.name, reads)
            elif kernel.name in ON_SYMINTS and all(type(self.method.values[id]) is int for id in reads):
                numbers[made] = Number(ON_SYMINTS[kernel.name], reads)
            elif kernel.name == ITEM and reads and (element := self._element(reads[0], made_by)):
                numbers[made] = Number("et_vk.select_as_symint.default", element)
        return numbers

    def _element(self, id: int, made_by: Mapping[int, int]) -> tuple[int, ...]:
        """The input (and the dim and index in it) that a tensor of one integer is; () if it is none."""
        spec = self.method.values[id]
        if not isinstance(spec, TensorSpec) or spec.dtype not in ("int32", "int64") or math.prod(spec.dims) != 1:
            return ()
        kernel = self.kernels.get(made_by.get(id, -1))
        source = (id,) if kernel is None else kernel.signature.reads if kernel.name == SELECT else ()
        if not source or source[0] not in self.method.inputs or any(n in made_by for n in source):
            return ()
        return source

    # ---- which instructions make a region

    def _divided(self) -> Iterator[_Piece]:
        """In turns what the host can run and what the GPU can, each as far as it gets, between jumps."""
        places = [self._place(i, n) for n, i in enumerate(self.method.instructions)]
        for number, block in enumerate(self._blocks()):
            depends = self._dependences(block)
            left, done, on_gpu = [n for n in block if places[n] != NOWHERE], set[int](), False
            while left:
                piece: list[int] = []
                for n in left:
                    if places[n] in (EITHER, GPU if on_gpu else HOST) and depends[n] <= done:
                        piece.append(n)
                        done.add(n)
                left = [n for n in left if n not in done]
                if piece:
                    yield _Piece(number, on_gpu and self._is_worth(piece, alone=HOST not in places), piece)
                on_gpu = not on_gpu

    def _blocks(self) -> list[range]:
        """Runs of instructions that are entered at their first and left at their last; a jump is one of its own."""
        starts = {0, len(self.method.instructions)}
        for n, instruction in enumerate(self.method.instructions):
            if isinstance(instruction, JumpFalseCall):
                starts |= {n, n + 1, instruction.destination}
        return [range(first, last) for first, last in pairwise(sorted(starts))]

    def _place(self, instruction: Instruction, n: int) -> str:
        """Where an instruction can run."""
        match instruction:
            case FreeCall():
                return NOWHERE  # who allocates knows when a value is read last
            case MoveCall():
                return EITHER
            case DelegateCall():
                return GPU if self._can_splice(instruction) else HOST
            case KernelCall():
                kernel = self.kernels[n]
                if self.sources.numbers.keys() & set(kernel.signature.writes):
                    return EITHER
                return HOST if self._obstacle(n, kernel) else GPU
        return HOST

    def reason(self, n: int) -> str:
        """Why a kernel call is on the host, if it is."""
        kernel = self.kernels[n]
        if is_host_work(kernel.call.op):
            return "sizes and loops are the host's"
        return self._obstacle(n, kernel) or "so small that NumPy is done with it sooner"

    def _can_splice(self, call: DelegateCall) -> bool:
        """Whether what a delegate is given, and gives, is what its graph says: a tensor of this rank, or an integer.

        One with state that is called in several places stays one graph, which has that state.
        """
        graph = self.graphs[call.delegate]
        calls = [i for i in self.method.instructions if isinstance(i, DelegateCall) and i.delegate == call.delegate]
        if len(calls) > 1 and graph_aliases(graph).state:
            return False
        for n, (inner, outer) in enumerate(zip((*graph.inputs, *graph.outputs), call.args, strict=True)):
            value, spec = graph.values[inner], self.method.values[outer]
            if not isinstance(value, TensorValue):
                fits = type(spec) is int
            elif isinstance(spec, TensorSpec):
                viewed = n >= len(graph.inputs) and differ_by_ones(value.dims, spec.dims)
                fits = len(value.dims) == len(spec.dims) or viewed
            else:
                fits = False
            if not fits:
                return False
        return True

    def _obstacle(self, n: int, kernel: BoundKernel) -> str:
        """Why a GPU cannot run the op with these types and ranks: it is planned by itself, at its max dims."""
        signature = kernel.signature
        if not has_kernel(kernel.op):
            return "no GPU kernel"
        owned = self.sources.owned.issuperset(signature.changes)
        if not owned and not self._can_copy(n, kernel):
            return "it changes a buffer that the host reads, or that several graphs do"
        if not signature.writes:
            return "it gives nothing"
        if types := [self._type(id) for id in (*self.reads[n], *self.writes[n]) if not self._is_held(id)]:
            return f"{types[0]}, which a GPU does not hold"
        try:
            region = RegionGraph(replace(self.sources, numbers={}))
            region.kernel(kernel)
            made = signature.writes if owned else signature.changes
            Planner(region.finish([*region.inputs], made)).plan_max(MaxElements())
        except HightideError as error:
            return str(error)
        return ""

    def _can_copy(self, n: int, kernel: BoundKernel) -> bool:
        """Whether a tensor that a call changes may be another value from then on: nobody sees its memory but by its
        name, and nobody reads what the call returns."""
        if self.jumps or kernel.name not in ON_COPIES:
            return False
        returned, changed = set(kernel.signature.writes), set(kernel.signature.changes)
        if changed & {*self.states, *self.method.inputs} or returned & set(self.method.outputs).union(*self.reads):
            return False
        before = [m for m in range(n) if changed & (self.reads[m] | self.writes[m])]
        made = changed <= set().union(*(self.writes[m] for m in before))
        return made and all(m in self.kernels and not self.kernels[m].op.aliases for m in before)

    def _type(self, id: int) -> str:
        spec = self.method.values[id]
        dtype = spec.dtype if isinstance(spec, TensorSpec) else type(spec).__name__
        return "int64 beyond 32 bits" if dtype == "int64" else dtype

    def _is_held(self, id: int) -> bool:
        """Whether a GPU can hold a value: integers as 32 bits."""
        spec = self.method.values[id]
        if not isinstance(spec, TensorSpec):
            return True
        blob = spec.constant or spec.initial
        if spec.dtype != "int64" or blob is None:
            return spec.dtype in GPU_TYPE
        array = tensor_array(spec, blob.view())
        return bool(np.all((array >= INT32.min) & (array <= INT32.max)))

    def _dependences(self, block: range) -> dict[int, set[int]]:
        """For each instruction those that must have run: who defines what it reads, and reads or defines what it
        defines."""
        depends: dict[int, set[int]] = {}
        writer: dict[int, int] = {}
        readers: defaultdict[int, set[int]] = defaultdict(set)
        for n in block:
            reads, writes = self.reads[n], self.writes[n]
            depends[n] = {writer[id] for id in reads | writes if id in writer}.union(*(readers[id] for id in writes))
            for id in reads:
                readers[id].add(n)
            for id in writes:
                writer[id] = n
                readers[id] = set()
        return depends

    def _is_worth(self, instructions: Sequence[int], alone: bool) -> bool:
        """Whether a region does enough to be sent to a GPU, which takes longer to begin than NumPy for small ops."""
        if any(isinstance(self.method.instructions[n], DelegateCall) for n in instructions):
            return True
        work = [n for n in instructions if n in self.kernels and not self._is_free(self.kernels[n])]
        specs = [self.method.values[id] for n in work for id in self.reads[n] | self.writes[n]]
        largest = max((math.prod(spec.dims) for spec in specs if isinstance(spec, TensorSpec)), default=0)
        return bool(work) and (alone or largest > SMALL)

    def _is_free(self, kernel: BoundKernel) -> bool:
        number = not self.sources.numbers.keys().isdisjoint(kernel.signature.writes)
        return number or bool(kernel.op.aliases) or issubclass(kernel.op, SymIntOp)

    def _shared_states(self) -> set[int]:
        """Owned buffers that the host, or more than one region, has to do with."""
        users: defaultdict[int, set[int]] = defaultdict(set)
        for number, piece in enumerate(self.pieces):
            for n in piece.instructions:
                for id in (self.reads[n] | self.writes[n]) & self.sources.owned:
                    users[id].add(number if piece.on_gpu else -1)
        return {id for id, pieces in users.items() if len(pieces) > 1 or -1 in pieces}

    # ---- the new method

    def _region(self, piece: _Piece) -> RegionGraph:
        region = RegionGraph(self.sources)
        for n in piece.instructions:
            match self.method.instructions[n]:
                case KernelCall():
                    region.kernel(self.kernels[n])
                case DelegateCall(delegate=number, args=args):
                    region.delegate(number, self.graphs[number], args)
                case MoveCall(source=source, target=target):
                    region.move(source, target)
        return region

    def _drop_unread(self, regions: Mapping[int, RegionGraph]) -> None:
        """Leave out what the host would compute for nobody: numbers that regions make themselves."""
        read = {*self.method.outputs, *self.states, *(id for region in regions.values() for id in region.inputs)}
        for piece in reversed(self.pieces):
            if not piece.on_gpu:
                kept = []
                for n in reversed(piece.instructions):
                    if self.writes[n] & read or isinstance(self.method.instructions[n], DelegateCall):
                        kept.append(n)
                        read |= self.reads[n]
                piece.instructions = kept[::-1]

    def _assembled(self, regions: Mapping[int, RegionGraph]) -> tuple[MethodFile, dict[int, Graph]]:
        graphs: list[Graph] = []
        delegates: list[Delegate] = []
        instructions: list[Instruction] = []
        starts: dict[int, int] = {}  # of each block, among the new instructions
        kept: dict[int, int] = {}  # delegates that stay as they are -> their new number
        only = len([piece for piece in self.pieces if piece.instructions]) == 1
        for n, piece in enumerate(self.pieces):
            starts.setdefault(piece.block, len(instructions))
            if n in regions:
                inputs, outputs = self._sides(n, regions[n], only)
                instructions.append(DelegateCall(len(graphs), (*inputs, *outputs)))
                graphs.append(regions[n].finish(inputs, outputs))
                delegates.append(self._delegate(piece))
                continue
            for instruction in (self.method.instructions[m] for m in piece.instructions):
                if isinstance(instruction, DelegateCall):
                    number = instruction.delegate
                    if number not in kept:
                        kept[number] = len(graphs)
                        graphs.append(self.graphs[number])
                        delegates.append(self.method.delegates[number])
                    instruction = DelegateCall(kept[number], instruction.args)
                instructions.append(instruction)
        method = replace(self.method, instructions=self._aimed(instructions, starts), delegates=tuple(delegates))
        return method, dict(enumerate(graphs))

    def _delegate(self, piece: _Piece) -> Delegate:
        """What a region is in the new method: it has no data, only a graph."""
        joined = (self.method.instructions[n] for n in piece.instructions)
        backends = [self.method.delegates[call.delegate].id for call in joined if isinstance(call, DelegateCall)]
        return Delegate((*backends, NO_BACKEND)[0], Blob(b"", 0, 0), {})

    def _sides(self, number: int, region: RegionGraph, only: bool) -> tuple[list[int], list[int]]:
        """The values that a region takes and gives; where it is all of the method, the method's own in their order."""
        elsewhere = (n for m, piece in enumerate(self.pieces) if m != number for n in piece.instructions)
        wanted = {*self.method.outputs, *(self.states - self.sources.owned)}.union(*(self.reads[n] for n in elsewhere))
        written = {id for n in self.pieces[number].instructions for id in self.writes[n]}
        inputs, outputs = [*region.inputs], sorted(written & wanted)
        values = {id: self.method.values[id] for id in self.method.inputs}
        fit = all(
            isinstance(value, TensorSpec) or type(value) is int for value in values.values()
        )  # a graph has no others
        if only and fit and set(inputs) <= values.keys() and outputs == sorted(self.method.outputs):
            return [*self.method.inputs], [*self.method.outputs]
        return inputs, outputs

    def _aimed(self, instructions: Sequence[Instruction], starts: Mapping[int, int]) -> tuple[Instruction, ...]:
        """The new instructions with jumps to where their destinations are now; `starts` tells of the blocks."""
        now = len(instructions)
        first = {len(self.method.instructions): now}
        for n, block in reversed([*enumerate(self._blocks())]):
            first[block.start] = now = starts.get(n, now)  # of a block that is gone, where the next one is
        return tuple(
            JumpFalseCall(i.condition, first[i.destination]) if isinstance(i, JumpFalseCall) else i
            for i in instructions
        )
