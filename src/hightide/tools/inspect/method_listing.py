"""The instructions of a method that is not one delegate alone: its parts, and what runs on NumPy between them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from hightide.formats.instructions import DelegateCall, FreeCall, Instruction, JumpFalseCall, KernelCall, MoveCall
from hightide.formats.program_file import MethodFile, TensorSpec, ValueListSpec
from hightide.graph.values import ITEM_SIZE
from hightide.ops.arguments import arguments_of
from hightide.ops.contract import Op
from hightide.pte.kernel_calls import Signature, find_op, is_host_work, signature
from hightide.tools.inspect.constant_list import Constant, printable
from hightide.tools.inspect.graph_trace import Formulas, trace_method
from hightide.tools.inspect.listing import ArgumentText, CallLine
from hightide.tools.levels.level_sources import MethodSource
from hightide.units import counted

VALUE = "value "  # what parts call an input that is none of the method's: "value 12"


class MethodListing:
    """A method's instructions with live dims as formulas, and the constants that its kernels read."""

    def __init__(self, source: MethodSource, parts: Mapping[int, str]) -> None:
        self.source, self.parts = source, parts  # parts: their names, by the number of the delegate
        self.file: MethodFile = source.file
        self.names = {id: spec.name for id, spec in zip(self.file.inputs, source.specs, strict=True)}
        self.state = source.method.interpreter.state.keys()

    @cached_property
    def formulas(self) -> Formulas:
        found = trace_method(self.source)
        for source, target in ((i.source, i.target) for i in self.file.instructions if isinstance(i, MoveCall)):
            if source in found.dims:  # a move is not seen in a run
                found.dims.setdefault(target, found.dims[source])
            if source in found.symints:
                found.symints.setdefault(target, found.symints[source])
        return found

    @cached_property
    def lines(self) -> list[CallLine]:
        """Every instruction but those that only free memory."""
        return [
            CallLine(n, self._name(instruction), self._arguments(instruction), self._gives(instruction), VALUE)
            for n, instruction in enumerate(self.file.instructions)
            if not isinstance(instruction, FreeCall)
        ]

    @property
    def summary(self) -> str:
        """`8 instructions: 2 parts, 5 on NumPy, 1 of the host`"""
        kinds = Counter(self.family(self.file.instructions[line.op]) for line in self.lines)
        texts = {"part": counted(kinds["part"], "part"), "NumPy": f"{kinds['NumPy']} on NumPy"}
        texts["host"] = f"{kinds['host']} of the host"
        found = ", ".join(text for kind, text in texts.items() if kinds[kind])
        return f"{counted(len(self.lines), 'instruction')}: {found}"

    @property
    def constants(self) -> list[Constant]:
        """What kernels outside delegates read or keep, the largest first."""
        found: dict[int, Constant] = {}
        for n, instruction in enumerate(self.file.instructions):
            if not isinstance(instruction, KernelCall):
                continue
            for argument in self._arguments(instruction):
                for id in argument.ids:
                    spec, state = self.file.values[id], id in self.state
                    if isinstance(spec, TensorSpec) and (state or spec.constant is not None) and id not in found:
                        name = spec.name or f"{argument.name} of instruction {n} ({instruction.op})"
                        nbytes = math.prod(spec.dims) * ITEM_SIZE[spec.dtype]
                        found[id] = Constant(printable(name), spec.dtype, spec.dims, nbytes, state)
        return sorted(found.values(), key=lambda constant: -constant.bytes)

    def family(self, instruction: Instruction) -> str:
        """Where it runs."""
        if isinstance(instruction, DelegateCall):
            return "part"
        return "host" if not isinstance(instruction, KernelCall) or is_host_work(instruction.op) else "NumPy"

    def flows(self) -> Iterable[tuple[str, str, int]]:
        """(source, target, value) for every value that one instruction, input or output has from another."""
        makers: dict[int, list[str]] = {id: [f"i{id}"] for id in self.file.inputs}
        for n, instruction in enumerate(self.file.instructions):
            node = f"n{n}"
            for id in dict.fromkeys(self.reads(instruction)):
                for maker in makers.get(id, ()):
                    if maker != node:
                        yield maker, node, id
            for id in self.writes(instruction):
                # What branches leave is moved to one value: any of them may have made it.
                earlier = makers.get(id, []) if isinstance(instruction, MoveCall) else []
                makers[id] = [*earlier, node]
        for n, id in enumerate(self.file.outputs):
            for maker in makers.get(id, ()):
                yield maker, f"o{n}", id

    def reads(self, instruction: Instruction) -> list[int]:
        """Values that it reads, lists opened."""
        return [id for argument in self._arguments(instruction) for id in argument.ids]

    def writes(self, instruction: Instruction) -> tuple[int, ...]:
        match instruction:
            case KernelCall():
                return self._signature(instruction)[1].writes
            case DelegateCall(delegate=delegate, args=args):
                return args[self._inputs(delegate) :]
            case MoveCall(target=target):
                return (target,)
        return ()

    def op(self, instruction: KernelCall) -> type[Op]:
        return self._signature(instruction)[0]

    def _signature(self, call: KernelCall) -> tuple[type[Op], Signature]:
        op = find_op(call.op)
        assert op is not None, "the program was checked when it was loaded"
        return op, signature(call, self.file.values, op)

    def _inputs(self, delegate: int) -> int:
        return len(self.source.method.sessions[delegate].specs)

    def _name(self, instruction: Instruction) -> str:
        match instruction:
            case KernelCall(op=op):
                return op
            case DelegateCall(delegate=delegate):
                return f"part {self.parts[delegate]}"
            case MoveCall():
                return "move"
            case JumpFalseCall(destination=destination):
                return f"if not: to instruction {destination}"
        return "free"

    def _arguments(self, instruction: Instruction) -> tuple[ArgumentText, ...]:
        match instruction:
            case KernelCall():
                op, call = self._signature(instruction)
                names = [argument.name for argument in arguments_of(op)]
                pairs: Iterable[tuple[str, int]] = zip(names, call.reads, strict=False)
            case DelegateCall(delegate=delegate, args=args):
                pairs = ((f"input {n}", id) for n, id in enumerate(args[: self._inputs(delegate)]))
            case MoveCall(source=source):
                pairs = (("from", source),)
            case JumpFalseCall(condition=condition):
                pairs = (("condition", condition),)
            case _:
                pairs = ()
        return tuple(ArgumentText(name, self._text(id), tuple(self._ids(id))) for name, id in pairs)

    def _gives(self, instruction: Instruction) -> tuple[tuple[int, str, str], ...]:
        made = []
        for id in self.writes(instruction):
            spec = self.file.values[id]
            if isinstance(spec, TensorSpec):
                dims: Sequence[object] = self.formulas.dims.get(id, spec.dims)
                made.append((id, spec.dtype, f"[{', '.join(map(str, dims))}]"))
            else:
                made.append((id, "", str(self.formulas.symints.get(id, ""))))
        return tuple(made)

    def _ids(self, id: int) -> Iterable[int]:
        spec = self.file.values[id]
        if isinstance(spec, ValueListSpec):
            return (item for item in spec.items if item != -1)
        return (id,) if isinstance(spec, TensorSpec) or id in self._computed else ()

    @cached_property
    def _computed(self) -> set[int]:
        return {*self.file.inputs, *(id for i in self.file.instructions for id in self.writes(i))}

    def _text(self, id: int) -> str:
        if id in self.names:
            return self.names[id]
        spec = self.file.values[id]
        match spec:
            case TensorSpec() if id in self.state or spec.constant is not None:
                kind = "state" if id in self.state else "const"
                return f"{kind} {spec.dtype}[{', '.join(map(str, spec.dims))}]"
            case ValueListSpec(items=items):
                return "[" + ", ".join("None" if item == -1 else self._text(item) for item in items) + "]"
            case TensorSpec():
                return f"{VALUE}{id}"
        return f"{VALUE}{id}" if id in self._computed else f"{spec:g}" if isinstance(spec, float) else str(spec)
