"""`.pte` and `.ptd` files: real programs of every kind, and programs that say impossible things."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffer_writer import PROGRAMS, Number, Numbers, TableSpec, encode

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats import pte, pte_values
from hightide.formats.flatbuffer import Float64, Int8, Int32, Int64, Uint8, Uint32, Uint64
from hightide.formats.instructions import DelegateCall, KernelCall
from hightide.formats.program_file import ProgramFile, TensorSpec, ValueListSpec
from hightide.formats.ptd import read_data_file
from hightide.formats.pte import read_program
from hightide.graph.blob import Blob

EXTERNAL = PROGRAMS / "external"


def floats(blob: Blob | None) -> list[float]:
    assert blob is not None
    return [float(number) for number in np.frombuffer(blob.view(), np.float32)]


# Real programs.


def test_reads_a_delegated_program() -> None:
    program = read_program(PROGRAMS / "ops" / "rms_norm__width_1.pte")
    method = program.methods["forward"]
    assert method.instructions == (DelegateCall(0, (0, 1)),)
    assert (method.inputs, method.outputs) == ((0,), (1,))
    assert [delegate.id for delegate in method.delegates] == ["VulkanBackend"]
    assert method.delegates[0].processed.view()[4:8] == b"VH00"
    (weight,) = program.named_data.values()
    assert len(floats(weight)) == 1


@pytest.mark.parametrize(("name", "data_files"), [("segment", ()), ("external", (EXTERNAL / "external.ptd",))])
def test_reads_constants_and_initial_state(name: str, data_files: tuple[Path, ...]) -> None:
    program = read_program(EXTERNAL / f"{name}.pte", data_files)
    assert list(program.methods) == ["forward", "swap"]
    method = program.methods["forward"]
    weight, bias, count = method.values[:3]
    assert isinstance(weight, TensorSpec) and isinstance(bias, TensorSpec) and isinstance(count, TensorSpec)
    assert (weight.dims, weight.dtype, weight.dim_order, weight.dynamic) == ((2, 3), "float32", (0, 1), False)
    assert floats(weight.constant) == [0, 1, 2, 3, 4, 5]
    assert floats(bias.constant) == [10, 20]
    assert (count.constant, count.place is not None, floats(count.initial)) == (None, True, [7, 7])
    assert method.instructions[0] == KernelCall("aten::add.out", (2, 3, 6, 5, 5))
    assert weight.name == ("linear.weight" if data_files else None)
    # A delegate may ask for data by name, and finds that of the data files too.
    assert sorted(program.named_data) == (["linear.bias", "linear.weight"] if data_files else [])


def test_lists_hold_indices_of_values() -> None:
    method = read_program(EXTERNAL / "segment.pte").methods["swap"]
    split_sizes, pieces = method.values[5], method.values[10]
    assert isinstance(split_sizes, ValueListSpec) and isinstance(pieces, ValueListSpec)
    assert [method.values[item] for item in split_sizes.items] == [2, 2]
    assert all(isinstance(method.values[item], TensorSpec) for item in pieces.items)


def test_reads_an_old_file_with_everything_inline() -> None:
    values = read_program(EXTERNAL / "inline.pte").methods["forward"].values
    assert isinstance(values[0], TensorSpec) and floats(values[0].constant) == [0, 1, 2, 3, 4, 5]


def test_reads_a_data_file() -> None:
    data = read_data_file(EXTERNAL / "external.ptd")
    assert {name: floats(blob) for name, blob in data.items()} == {
        "linear.weight": [0, 1, 2, 3, 4, 5],
        "linear.bias": [10, 20],
    }


def test_names_the_external_data_that_is_missing() -> None:
    with pytest.raises(ProgramError, match=r"'linear.weight' is not in the data files.*\.ptd"):
        read_program(EXTERNAL / "external.pte")


def test_refuses_the_same_name_in_two_data_files() -> None:
    with pytest.raises(ProgramError, match=r"external.ptd: data named 'linear\.\w+' is already"):
        read_program(EXTERNAL / "external.pte", [EXTERNAL / "external.ptd"] * 2)


# Paths that hold no program.


def test_refuses_what_is_not_a_program(tmp_path: Path) -> None:
    (tmp_path / "empty.pte").touch()
    (tmp_path / "text.pte").write_text("This is not a program, it is a text.")
    with pytest.raises(ProgramError, match=r"empty.pte is empty"):
        read_program(tmp_path / "empty.pte")
    with pytest.raises(ProgramError, match=r"cannot read .*absent.pte: No such file"):
        read_program(tmp_path / "absent.pte")
    with pytest.raises(ProgramError, match=r"cannot read .*: Is a directory"):
        read_program(tmp_path)
    with pytest.raises(ProgramError, match=r"text.pte: Program: this is not an ExecuTorch program \(.pte\): its file"):
        read_program(tmp_path / "text.pte")
    with pytest.raises(ProgramError, match=r"not the header of a .ptd file"):
        read_data_file(EXTERNAL / "segment.pte")


# Programs that say impossible things.


def i8(value: int) -> Number:
    return Number(Int8, value)


def i32(value: int) -> Number:
    return Number(Int32, value)


def u32(value: int) -> Number:
    return Number(Uint32, value)


def value(kind: str, **fields: Any) -> TableSpec:
    tag = list(pte_values.KERNEL_TYPES).index(kind) + 1
    return TableSpec(
        pte_values.EVALUE, val_type=Number(Uint8, tag), val=TableSpec(pte_values.KERNEL_TYPES[kind], **fields)
    )


def tensor(dims: list[int], dtype: int = 6, **fields: Any) -> TableSpec:
    fields = {"dim_order": Numbers(Uint8, range(len(dims)))} | fields
    return value("Tensor", scalar_type=i8(dtype), sizes=Numbers(Int32, dims), **fields)


def instruction(kind: str, **fields: Any) -> TableSpec:
    tag = list(pte.INSTRUCTION_ARGUMENTS).index(kind) + 1
    call = TableSpec(pte.INSTRUCTION_ARGUMENTS[kind], **fields)
    return TableSpec(pte.INSTRUCTION, instr_args_type=Number(Uint8, tag), instr_args=call)


def method(name: str = "forward", instructions: tuple[TableSpec, ...] = (), **fields: Any) -> TableSpec:
    fields = {
        "values": [value("Null"), value("Int", int_val=Number(Int64, 3)), tensor([2, 3])],
        "chains": [TableSpec(pte.CHAIN, instructions=list(instructions))],
        "operators": [TableSpec(pte.OPERATOR, name="aten::add", overload="out")],
    } | fields
    return TableSpec(pte.EXECUTION_PLAN, name=name, **fields)


def program(*methods: TableSpec, **fields: Any) -> TableSpec:
    return TableSpec(pte.PROGRAM, execution_plan=list(methods), **fields)


def subsegments(segment: int, offsets: list[int]) -> TableSpec:
    return TableSpec(pte.SUBSEGMENT_OFFSETS, segment_index=u32(segment), offsets=Numbers(Uint64, offsets))


def delegate(location: int, index: int) -> TableSpec:
    reference = TableSpec(pte.DATA_REFERENCE, location=i8(location), index=u32(index))
    return TableSpec(pte.BACKEND_DELEGATE, id="VulkanBackend", processed=reference)


def read(tmp_path: Path, root: TableSpec) -> ProgramFile:
    path = tmp_path / "made.pte"
    path.write_bytes(encode(root, b"ET12"))
    return read_program(path)


def test_reads_every_kind_of_value_and_instruction(tmp_path: Path) -> None:
    args = Numbers(Int32, [0, 1])
    spec = method(
        values=[
            value("Null"),
            value("Bool", bool_val=Number(Uint8, 1)),
            value("String", string_val="mean"),
            value("DoubleList", items=Numbers(Float64, [0.5])),
            value("BoolList", items=Numbers(Uint8, [1, 0])),
            value("OptionalTensorList", items=Numbers(Int32, [-1, 6])),
            tensor([2, 0], dtype=15, shape_dynamism=i8(1)),
        ],
        instructions=(
            instruction("KernelCall", op_index=i32(0), args=args),
            instruction("DelegateCall", delegate_index=i32(0), args=args),
            instruction("MoveCall", move_from=i32(1), move_to=i32(2)),
            instruction("JumpFalseCall", cond_value_index=i32(1), destination_instruction=i32(5)),
            instruction("FreeCall", value_index=i32(6)),
        ),
        delegates=[delegate(0, 0)],
    )
    made = read(tmp_path, program(spec, backend_delegate_data=[TableSpec(("data",), data=b"blob")])).methods["forward"]
    assert made.values[:6] == (None, True, "mean", (0.5,), (True, False), ValueListSpec((-1, 6)))
    assert made.values[6] == TensorSpec("bfloat16", (2, 0), True, (0, 1), None, None, None, None)
    assert made.instructions == (
        pte.KernelCall("aten::add.out", (0, 1)),
        pte.DelegateCall(0, (0, 1)),
        pte.MoveCall(1, 2),
        pte.JumpFalseCall(1, 5),
        pte.FreeCall(6),
    )
    assert bytes(made.delegates[0].processed.view()) == b"blob"


def with_value(spec: TableSpec, **fields: Any) -> TableSpec:
    return program(method(values=[spec]), **fields)


def with_instruction(kind: str, **fields: Any) -> TableSpec:
    return program(method(instructions=(instruction(kind, **fields),)))


PLANNED = TableSpec(pte_values.ALLOCATION_DETAILS)
IMPOSSIBLE = {
    # indices
    "input": (program(method(inputs=Numbers(Int32, [3]))), r"execution_plan\[0\].inputs: value 3 does not exist"),
    "output": (program(method(outputs=Numbers(Int32, [-1]))), r"execution_plan\[0\].outputs: value -1 does not exist"),
    "operator": (with_instruction("KernelCall", op_index=i32(1)), r"instructions\[0\].*op_index: operator 1"),
    "argument": (with_instruction("KernelCall", args=Numbers(Int32, [0, 9])), r"args: value 9 does not exist"),
    "delegate call": (with_instruction("DelegateCall", delegate_index=i32(0)), "delegate 0 does not exist"),
    "move": (with_instruction("MoveCall", move_from=i32(0), move_to=i32(7)), "move_to: value 7"),
    "jump": (with_instruction("JumpFalseCall", destination_instruction=i32(2)), "instruction 2 does not exist"),
    "jump back": (with_instruction("JumpFalseCall", destination_instruction=i32(-1)), "instruction -1 does not exist"),
    "free": (with_instruction("FreeCall", value_index=i32(-9)), "value_index: value -9"),
    "list item": (with_value(value("IntList", items=Numbers(Int64, [2**62]))), "value 4611686018427387904"),
    "list without optional items": (with_value(value("TensorList", items=Numbers(Int32, [-1]))), "value -1"),
    "list in itself": (with_value(value("TensorList", items=Numbers(Int32, [0]))), "the list holds another list"),
    "delegate data": (program(method(delegates=[delegate(0, 0)])), "inline data 0 does not exist; there are 0"),
    "delegate segment": (program(method(delegates=[delegate(1, 4)])), "segment 4 does not exist; there are 0"),
    "delegate location": (program(method(delegates=[delegate(2, 0)])), "data location 2"),
    "constant": (with_value(tensor([1], data_buffer_idx=u32(1))), "constant 1 does not exist"),
    "constant segment": (program(method(), constant_segment=subsegments(1, [0])), "segment 1 does not exist"),
    "initial state": (
        with_value(tensor([1], data_buffer_idx=u32(1), allocation_info=PLANNED)),
        "mutable data segment 0 does not exist",
    ),
    "named data": (
        program(method(), named_data=[TableSpec(pte.NAMED_DATA, key="weight", segment_index=u32(0))]),
        r"named_data\[0\]: segment 0 does not exist",
    ),
    # sizes
    "negative dim": (with_value(tensor([2, -3])), r"dims \[2, -3\] contain a negative size"),
    "overflow": (with_value(tensor([2**31 - 1] * 3)), "more bytes than 63 bits"),
    "rank": (with_value(tensor([2**31 - 1] * 100_000, dim_order=b"")), "rank 100000 is more than 16"),
    "dim order": (with_value(tensor([2, 3], dim_order=Numbers(Uint8, [0, 0]))), r"dim order \[0, 0\]"),
    "segment": (
        program(method(), segments=[TableSpec(("offset", "size"), offset=Number(Uint64, 2**64 - 1))]),
        r"segments\[0\]: needs 0 bytes at offset 18446744073709551615",
    ),
    "short constant": (
        with_value(
            tensor([2, 3], data_buffer_idx=u32(1)),
            constant_buffer=[TableSpec(("storage",)), TableSpec(("storage",), storage=bytes(20))],
        ),
        "needs 24 bytes at offset 0, but there are only 20",
    ),
    # kinds
    "scalar type": (with_value(tensor([1], dtype=99)), "scalar type 99 does not exist"),
    "external without a name": (
        with_value(tensor([1], extra_tensor_info=TableSpec(pte_values.EXTRA_TENSOR_INFO, location=i8(1)))),
        "is external, but the tensor has no name",
    ),
    "method without a name": (program(method("")), "the method has no name"),
    "two methods of one name": (program(method(), method()), r"execution_plan\[1\]: two methods are named 'forward'"),
    "delegate without data": (
        program(method(delegates=[TableSpec(pte.BACKEND_DELEGATE, id="x")])),
        "the delegate has no data",
    ),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_refuses_the_impossible(case: str, tmp_path: Path) -> None:
    spec, reason = IMPOSSIBLE[case]
    with pytest.raises(ProgramError, match=f"made.pte: Program.*{reason}"):
        read(tmp_path, spec)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (with_value(tensor([1], dtype=27)), r"values\[0\].val: tensors of uint16"),
        (with_value(tensor([1], storage_offset=i32(4))), "storage offset"),
        (program(method(chains=[TableSpec(pte.CHAIN), TableSpec(pte.CHAIN)])), "2 chains"),
    ],
)
def test_says_what_is_not_supported(spec: TableSpec, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        read(tmp_path, spec)


def test_one_method_referred_to_often_is_refused_quickly(tmp_path: Path) -> None:
    shared = method(values=[value("IntList", items=Numbers(Int64, [0] * 1000))] * 1000)
    with pytest.raises(ProgramError, match=r"refers to the same data too often"):
        read(tmp_path, program(*[shared] * 1000))


@pytest.mark.parametrize(
    ("field", "number", "reason"),
    [
        (12, 8, "a header of 8 bytes is too short"),
        (16, 2**64 - 1, "needs 18446744073709551615 bytes at offset 0"),
        (24, 2**63, "at offset 9223372036854775808"),
        (32, 2**40, "needs 1099511627776 bytes"),
    ],
)
def test_refuses_a_header_that_reaches_outside_the_file(field: int, number: int, reason: str, tmp_path: Path) -> None:
    data = bytearray((EXTERNAL / "segment.pte").read_bytes())
    assert data[8:12] == b"eh00"
    struct.pack_into("<I" if field == 12 else "<Q", data, field, number)
    (tmp_path / "made.pte").write_bytes(data)
    with pytest.raises(ProgramError, match=f"made.pte: header: .*{reason}"):
        read_program(tmp_path / "made.pte")
