"""Reads ExecuTorch programs: `.pte` files, and the `.ptd` files that hold their external data.

A `.pte` is a FlatBuffer (schema: program.fbs of ExecuTorch), which segments of data may follow. Only
the metadata is read; weights stay in the file as blobs. Every index is checked here, so that
what comes out can be used without further checks.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.checks import check_index, check_indices, part
from hightide.formats.container import read_named_data, read_segments
from hightide.formats.flatbuffer import FlatTable, Int8, Int32, Uint32, root_table
from hightide.formats.instructions import DelegateCall, FreeCall, Instruction, JumpFalseCall, KernelCall, MoveCall
from hightide.formats.program_file import Delegate, MethodFile, ProgramFile
from hightide.formats.ptd import read_data_file
from hightide.formats.pte_values import TensorData, read_subsegments, read_values
from hightide.formats.source_file import SourceFile
from hightide.graph.blob import Blob

PROGRAM = (
    "version",
    "execution_plan",
    "constant_buffer",
    "backend_delegate_data",
    "segments",
    "constant_segment",
    "mutable_data_segments",
    "named_data",
)
EXECUTION_PLAN = ("name", "container_meta_type", "values", "inputs", "outputs", "chains", "operators", "delegates")
CHAIN = ("inputs", "outputs", "instructions")
INSTRUCTION = ("instr_args_type", "instr_args")
INSTRUCTION_ARGUMENTS = {
    "KernelCall": ("op_index", "args"),
    "DelegateCall": ("delegate_index", "args"),
    "MoveCall": ("move_from", "move_to"),
    "JumpFalseCall": ("cond_value_index", "destination_instruction"),
    "FreeCall": ("value_index",),
}
OPERATOR = ("name", "overload")
BACKEND_DELEGATE = ("id", "processed", "compile_specs")
DATA_REFERENCE = ("location", "index")
COMPILE_SPEC = ("key", "value")
NAMED_DATA = ("key", "segment_index")
SUBSEGMENT_OFFSETS = ("segment_index", "offsets")

# The extended header: magic, its own length, program size, segment base offset; later also segment data size.
_HEADER = struct.Struct("<4sIQQ")
_HEADER_OFFSET = 8  # after the FlatBuffer's root offset and identifier


def read_program(path: str | os.PathLike[str], data_files: Iterable[str | os.PathLike[str]] = ()) -> ProgramFile:
    """Reads a `.pte` file; `data_files` are the `.ptd` files that it needs, if any."""
    path = Path(path)
    flatbuffer, segment_region = _read_header(SourceFile(path).whole(), path.name)
    root = root_table(flatbuffer, b"ET12", PROGRAM, f"{path.name}: Program", "an ExecuTorch program (.pte)")
    segments = read_segments(root, segment_region)
    external: dict[str, Blob] = {}
    for data_file in data_files:
        _merge(external, read_data_file(data_file), str(data_file))
    named_data = read_named_data(root.tables("named_data", NAMED_DATA), segments)
    _merge(named_data, external, f"the data files of {path.name}")

    tensor_data = TensorData(
        inline=[buffer.blob("storage") for buffer in root.tables("constant_buffer", ("storage",))],
        constant=read_subsegments(root.table("constant_segment", SUBSEGMENT_OFFSETS), segments),
        mutable=[
            read_subsegments(table, segments) for table in root.tables("mutable_data_segments", SUBSEGMENT_OFFSETS)
        ],
        external=external,
    )
    delegate_data = [entry.blob("data") for entry in root.tables("backend_delegate_data", ("data",))]
    methods: dict[str, MethodFile] = {}
    for plan in root.tables("execution_plan", EXECUTION_PLAN):
        method = _read_method(plan, tensor_data, delegate_data, segments)
        if method.name in methods:
            raise ProgramError(f"{plan.place}: two methods are named {method.name!r}")
        methods[method.name] = method
    return ProgramFile(path, methods, named_data)


def _read_header(file: Blob, name: str) -> tuple[Blob, Blob]:
    """The FlatBuffer and the region of the segments; old files are a FlatBuffer alone."""
    place = f"{name}: header"
    if file.length < _HEADER_OFFSET + 4 or bytes(file.region(_HEADER_OFFSET, 4)) != b"eh00":
        return file, part(file, file.length, 0, place)
    header = part(file, _HEADER_OFFSET, _HEADER.size, place)
    _, length, program_size, segment_base = _HEADER.unpack(header.view())
    if length < _HEADER.size:
        raise ProgramError(f"{place}: a header of {length} bytes is too short")
    segment_size = 0
    if length > _HEADER.size:
        (segment_size,) = struct.unpack_from("<Q", part(file, _HEADER_OFFSET + _HEADER.size, 8, place).view())
    flatbuffer = part(file, 0, program_size, place)
    # A size of 0 stands for "not stated": then the segments may reach to the end of the file.
    return flatbuffer, part(file, segment_base, segment_size or max(file.length - segment_base, 0), place)


def _merge(target: dict[str, Blob], more: dict[str, Blob], source: str) -> None:
    for key, blob in more.items():
        if key in target:
            raise ProgramError(f"{source}: data named {key!r} is already in another file")
        target[key] = blob


def _read_method(
    plan: FlatTable, tensor_data: TensorData, delegate_data: list[Blob], segments: list[Blob]
) -> MethodFile:
    name = plan.string("name")
    if not name:
        raise ProgramError(f"{plan.place}: the method has no name")
    values = read_values(plan, tensor_data)
    operators = [_operator_name(operator) for operator in plan.tables("operators", OPERATOR)]
    delegates = tuple(
        _read_delegate(delegate, delegate_data, segments) for delegate in plan.tables("delegates", BACKEND_DELEGATE)
    )
    chains = plan.tables("chains", CHAIN)
    if len(chains) != 1:  # no exporter has written several chains yet
        raise UnsupportedError(f"{plan.place}: the method has {len(chains)} chains; only one is supported")
    instructions = chains[0].tables("instructions", INSTRUCTION)
    return MethodFile(
        name=name,
        values=values,
        inputs=check_indices(plan.integers("inputs", Int32), len(values), "value", f"{plan.place}.inputs"),
        outputs=check_indices(plan.integers("outputs", Int32), len(values), "value", f"{plan.place}.outputs"),
        instructions=tuple(
            _read_instruction(instruction, len(values), operators, len(delegates), len(instructions))
            for instruction in instructions
        ),
        delegates=delegates,
    )


def _operator_name(operator: FlatTable) -> str:
    name, overload = operator.string("name"), operator.string("overload")
    return f"{name}.{overload}" if overload else name


def _read_delegate(delegate: FlatTable, delegate_data: list[Blob], segments: list[Blob]) -> Delegate:
    reference = delegate.table("processed", DATA_REFERENCE)
    if reference is None:
        raise ProgramError(f"{delegate.place}: the delegate has no data")
    location = reference.integer("location", Int8)
    if location not in (0, 1):
        raise ProgramError(f"{reference.place}: data location {location} is neither 0 (inline) nor 1 (segment)")
    blobs, what = (segments, "segment") if location == 1 else (delegate_data, "inline data")
    index = check_index(reference.integer("index", Uint32), len(blobs), what, reference.place)
    specs = delegate.tables("compile_specs", COMPILE_SPEC)
    return Delegate(
        id=delegate.string("id"),
        processed=blobs[index],
        compile_specs={spec.string("key"): spec.octets("value") for spec in specs},
    )


def _read_instruction(
    instruction: FlatTable, value_count: int, operators: list[str], delegate_count: int, instruction_count: int
) -> Instruction:
    kind, call = instruction.union("instr_args", INSTRUCTION_ARGUMENTS)

    def index(field: str, count: int, what: str) -> int:
        return check_index(call.integer(field, Int32), count, what, f"{call.place}.{field}")

    def args() -> tuple[int, ...]:
        return check_indices(call.integers("args", Int32), value_count, "value", f"{call.place}.args")

    match kind:
        case "KernelCall":
            return KernelCall(operators[index("op_index", len(operators), "operator")], args())
        case "DelegateCall":
            return DelegateCall(index("delegate_index", delegate_count, "delegate"), args())
        case "MoveCall":
            return MoveCall(index("move_from", value_count, "value"), index("move_to", value_count, "value"))
        case "JumpFalseCall":
            return JumpFalseCall(
                condition=index("cond_value_index", value_count, "value"),
                destination=index("destination_instruction", instruction_count + 1, "instruction"),
            )
        case _:
            return FreeCall(index("value_index", value_count, "value"))
