"""An overview of a file as data: methods, what varies, ops, constants, memory. `cli/inspect.py` prints it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hightide.errors import UnsupportedError
from hightide.formats.gguf import GgufFile
from hightide.formats.instructions import KernelCall
from hightide.formats.model_file import is_model, model_bytes, read_model
from hightide.formats.program_file import MethodFile, ProgramFile
from hightide.formats.pte import read_program
from hightide.graph.graph import FileCall
from hightide.graph.values import TensorValue
from hightide.ops import REGISTRY
from hightide.planning.levels import InputSpec
from hightide.pte.delegates import DELEGATE_IDS, calls_of, read_delegate
from hightide.pte.kernel_calls import find_op, is_host_work
from hightide.pte.program import Program
from hightide.tools.inspect.constant_list import Constant, constants_of, printable
from hightide.tools.inspect.graph_trace import Dim
from hightide.tools.inspect.memory_report import Memory
from hightide.tools.inspect.method_listing import MethodListing
from hightide.tools.inspect.planning import PlannedPart, Target
from hightide.tools.levels.level_sources import MethodSource, Source
from hightide.tools.levels.varying import live_dims
from hightide.tools.opened_file import OpenedFile, method_parts, open_file


@dataclass(frozen=True)
class TensorReport:
    """An input or output: its max dims, and its live dims as formulas."""

    name: str
    dtype: str
    max: tuple[int, ...]
    live: tuple[str, ...]


@dataclass(frozen=True)
class PartReport:
    name: str
    delegate: str  # the backend that the exporter compiled it for, or "GGUF"
    ops: dict[str, int]  # op calls of the file, by name
    runs: dict[str, int]  # op calls after passes
    dispatches: int  # at the max dims
    constants: tuple[Constant, ...]  # the largest first
    memory: Memory


@dataclass(frozen=True)
class MethodReport:
    name: str
    symbols: dict[str, int]
    inputs: tuple[TensorReport, ...]
    outputs: tuple[TensorReport, ...]
    parts: tuple[PartReport, ...]
    outside: dict[str, int]  # kernels outside delegates, by name
    constants: tuple[Constant, ...]  # that they read or keep, the largest first
    host: dict[str, int]  # of these, sizes and loops: work for the host on any device


@dataclass(frozen=True)
class FileReport:
    path: str
    kind: str
    bytes: int
    target: str
    metadata: dict[str, Any]
    methods: tuple[MethodReport, ...]
    missing: tuple[str, ...] = ()  # what keeps it from running here
    ops: dict[str, int] = field(default_factory=dict)  # of a file that cannot run


@dataclass
class Inspection:
    """A file with its planned parts, by method."""

    report: FileReport
    files: dict[str, OpenedFile]
    parts: dict[str, list[PlannedPart]]
    listings: dict[str, MethodListing]  # of methods that are not one delegate alone

    def listings_of(self, parts: Sequence[PlannedPart]) -> list[MethodListing]:
        """Those of the methods whose parts are all among these."""
        shown = {part.part for part in parts}
        return [
            listing
            for name, listing in self.listings.items()
            if listing.lines and all(part.part in shown for part in self.parts[name])
        ]


def inspect_file(
    path: str | os.PathLike[str], target: Target, *, context: int | None = None, fused: bool = True
) -> Inspection:
    """Reads a file and plans every method that has parts; ProgramError if it is damaged."""
    path = Path(path)
    try:
        return _inspected(path, target, context, fused)
    except UnsupportedError as error:
        if is_model(path):
            return Inspection(_unsupported_gguf(read_model(path), target, str(error)), {}, {}, {})
        return Inspection(_unsupported_program(read_program(path), target, str(error)), {}, {}, {})


def _inspected(path: Path, target: Target, context: int | None, fused: bool) -> Inspection:
    opened = open_file(path, context=context) if is_model(path) else None
    program = Program(read_program(path), "cpu", whole=fused) if opened is None else None
    if opened is not None:
        files = {"forward": opened}
    else:
        assert program is not None
        called = [name for name in program.methods if name not in program.metadata]
        files = {name: OpenedFile(path, None, name, method_parts(program, name), program) for name in called}
    parts = {name: [PlannedPart(part, target, fused) for part in s.parts] for name, s in files.items()}
    listings = {name: listing for name, opened in files.items() if (listing := _listing(opened)) is not None}
    methods = tuple(_method(opened, parts[name], listings.get(name)) for name, opened in files.items())
    kind, metadata = _kind(opened, program)
    report = FileReport(str(path), kind, model_bytes(path), target.name, metadata, methods)
    return Inspection(report, files, parts, listings)


def dims_text(dims: Iterable[Dim]) -> tuple[str, ...]:
    return tuple(map(str, dims))


def _listing(opened: OpenedFile) -> MethodListing | None:
    source = _source(opened)
    names = {part.number: part.name for part in opened.parts}
    return MethodListing(source, names) if isinstance(source, MethodSource) else None


def _method(opened: OpenedFile, parts: Sequence[PlannedPart], listing: MethodListing | None) -> MethodReport:
    program, name = opened.program, opened.method
    source = _source(opened) if listing is None else listing.source
    kernels: Counter[str] = Counter()
    if program is not None:
        instructions = program.file.methods[name].instructions
        kernels.update(i.op for i in instructions if isinstance(i, KernelCall))
    inputs, outputs = _signature(opened, parts, listing)
    return MethodReport(
        name=name,
        symbols={symbol.name: symbol.most for symbol in source.symbols},
        inputs=inputs,
        outputs=outputs,
        parts=tuple(_part(opened, part) for part in parts),
        outside={op: n for op, n in kernels.items() if not is_host_work(op)},
        constants=() if listing is None else tuple(listing.constants),
        host={op: n for op, n in kernels.items() if is_host_work(op)},
    )


def _part(opened: OpenedFile, planned: PlannedPart) -> PartReport:
    names, part = {}, planned.part
    delegate = "GGUF"
    if opened.gguf is not None:
        names = {(id(t.data.source), t.data.offset): t.name for t in opened.gguf.tensors.values()}
    elif opened.program is not None:
        delegate = opened.program.file.methods[opened.method].delegates[part.number].id
    return PartReport(
        name=part.name,
        delegate=delegate,
        ops=dict(Counter(call.name for call in part.graph.calls).most_common()),
        runs=dict(Counter(call.name for call in planned.graph.calls).most_common()),
        dispatches=len(planned.plan_most().steps),
        constants=tuple(constants_of(planned.graph, planned.planner.aliases.state, names)),
        memory=planned.memory,
    )


def _signature(
    opened: OpenedFile, parts: Sequence[PlannedPart], listing: MethodListing | None
) -> tuple[tuple[TensorReport, ...], tuple[TensorReport, ...]]:
    """Inputs and outputs of a method."""
    if opened.program is None:
        (part,) = parts
        names = (*part.part.names, "logits", "ids")
        values = [part.graph.values[id] for id in (*part.graph.inputs, *part.graph.outputs)]
        made = [
            TensorReport(n, v.host_dtype, v.dims, dims_text(part.formulas.dims[v.id]))
            for n, v in zip(names, values, strict=True)
            if isinstance(v, TensorValue)
        ]
        return tuple(made[: len(part.graph.inputs)]), tuple(made[len(part.graph.inputs) :])
    info = opened.program.methods[opened.method]
    source = _source(opened) if listing is None else listing.source
    live = [dims_text(dims) for dims in live_dims(info.inputs, source.symbols)]
    inputs = [_tensor(spec, dims) for spec, dims in zip(info.inputs, live, strict=True)]
    if listing is not None:
        known, ids = listing.formulas.dims, listing.file.outputs
    else:
        (part,) = parts
        known, ids = part.formulas.dims, part.graph.outputs
    # Of a method that takes none of the levels that were tried, nothing is known.
    outputs = [
        _tensor(spec, dims_text(known[id]) if id in known else ("?",) * len(spec.dims))
        for spec, id in zip(info.outputs, ids, strict=True)
    ]
    return tuple(inputs), tuple(outputs)


def _source(opened: OpenedFile) -> Source:
    """What says what varies, also of a method that has no parts."""
    if opened.parts or opened.program is None:
        return opened.parts[0].source
    program = opened.program
    return MethodSource(program, program.methods[opened.method], program.file.methods[opened.method])


def _tensor(spec: InputSpec, live: tuple[str, ...]) -> TensorReport:
    return TensorReport(printable(spec.name), spec.dtype, spec.dims, live)


def _kind(opened: OpenedFile | None, program: Program | None) -> tuple[str, dict[str, Any]]:
    if opened is not None and opened.gguf is not None:
        return f"GGUF model, {opened.gguf.architecture}", _gguf_metadata(opened.gguf)
    assert program is not None
    return "ExecuTorch program", {name: _plain(value) for name, value in program.metadata.items()}


def _gguf_metadata(file: GgufFile) -> dict[str, Any]:
    """Fields that fit a line: no vocabularies, no templates."""
    short = {k: v for k, v in file.metadata.items() if not isinstance(v, list) and not k.startswith("tokenizer.")}
    short = {printable(k): printable(v) if isinstance(v, str) else v for k, v in short.items()}
    return {k: v for k, v in short.items() if not isinstance(v, str) or len(v) <= 60}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    return value.tolist() if hasattr(value, "tolist") else value


# ---- files that cannot run here


def _unsupported_program(file: ProgramFile, target: Target, error: str) -> FileReport:
    ops: Counter[str] = Counter()
    missing: dict[str, None] = {}
    for method in file.methods.values():
        for instruction in method.instructions:
            if isinstance(instruction, KernelCall):
                ops[printable(instruction.op)] += 1
                if find_op(instruction.op) is None:
                    missing[printable(instruction.op)] = None
        for number, delegate in enumerate(method.delegates):
            if delegate.id not in DELEGATE_IDS:
                missing[f"the backend {delegate.id}"] = None
                continue
            for call in _delegate_calls(file, method, number):
                ops[printable(call.name)] += 1
                if call.name not in REGISTRY:
                    missing[printable(call.name)] = None
    nbytes = model_bytes(file.path)
    listed = dict(ops.most_common())
    return FileReport(
        str(file.path), "ExecuTorch program", nbytes, target.name, {}, (), tuple(missing) or (error,), listed
    )


def _delegate_calls(file: ProgramFile, method: MethodFile, number: int) -> Sequence[FileCall]:
    """The op calls of a delegate that is called, if they can be told."""
    try:
        return read_delegate(file, method, number).calls if calls_of(method, number) else ()
    except UnsupportedError:  # the report says why
        return ()


def _unsupported_gguf(file: GgufFile, target: Target, error: str) -> FileReport:
    kind = f"GGUF model, {file.architecture}"
    nbytes = model_bytes(file.path)
    return FileReport(str(file.path), kind, nbytes, target.name, _gguf_metadata(file), (), (error,))
