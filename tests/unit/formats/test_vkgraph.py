"""Graphs of the Vulkan delegate: a real one, every kind of value, and graphs that say impossible things."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from flatbuffer_writer import PROGRAMS, Number, Numbers, TableSpec, delegate_data

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats import vkgraph
from hightide.formats.delegate_data import NAMED
from hightide.formats.flatbuffer import Float64, Int8, Int32, Int64, Uint8, Uint32, Uint64
from hightide.formats.pte import read_program
from hightide.formats.vkgraph import read_graph
from hightide.graph.blob import Blob
from hightide.graph.graph import FileCall, GraphFile
from hightide.graph.values import ListValue, LiteralValue, SymIntValue, TensorValue

MAGICS = (b"VH00", b"VK00")  # of the header and the FlatBuffer


def test_reads_a_real_graph() -> None:
    program = read_program(PROGRAMS / "ops" / "rms_norm__width_1.pte")
    (delegate,) = program.methods["forward"].delegates
    assert delegate.id in vkgraph.DELEGATE_IDS
    graph = read_graph(delegate.processed, program.named_data)
    assert [call.name for call in graph.calls] == ["et_vk.rms_norm.default"]
    weights = [value for value in graph.values if isinstance(value, TensorValue) and value.constant]
    assert [(weight.dims, weight.dtype, weight.max_bytes) for weight in weights] == [((1,), "float32", 4)]
    assert weights[0].constant in program.named_data.values()  # the blob of the file itself, not a copy
    x = graph.values[graph.inputs[0]]
    assert isinstance(x, TensorValue) and x.dims == (1, 1, 1, 1) and x.host_dtype == "float32"
    assert [value.id for value in graph.values] == list(range(len(graph.values)))


def value(kind: str, **fields: Any) -> TableSpec:
    tag = list(vkgraph.GRAPH_TYPES).index(kind) + 1
    return TableSpec(
        vkgraph.VK_VALUE, value_type=Number(Uint8, tag), value=TableSpec(vkgraph.GRAPH_TYPES[kind], **fields)
    )


def tensor(dims: list[int], dtype: int = 5, constant: int = -1, **fields: Any) -> TableSpec:
    numbers = {"datatype": Number(Int8, dtype), "constant_id": Number(Int32, constant)}
    return value("VkTensor", dims=Numbers(Uint32, dims), **numbers, **fields)


def constant(offset: int, length: int, **fields: Any) -> TableSpec:
    return TableSpec(vkgraph.VK_BYTES, offset=Number(Uint64, offset), length=Number(Uint64, length), **fields)


def call(name: str, args: list[int]) -> TableSpec:
    return TableSpec(vkgraph.OPERATOR_CALL, name=name, args=Numbers(Int32, args))


def graph(*values: TableSpec, **fields: Any) -> TableSpec:
    return TableSpec(vkgraph.VK_GRAPH, values=list(values), **fields)


def read(root: TableSpec, raw: bytes = b"", named_data: Mapping[str, Blob] | None = None) -> GraphFile:
    return read_graph(Blob(data := delegate_data(root, MAGICS, raw), 0, len(data)), named_data or {})


def test_reads_every_kind_of_value() -> None:
    made = read(
        graph(
            value("Null"),
            value("Int", int_val=Number(Int64, -(2**40))),
            value("Double", double_val=Number(Float64, 1e-6)),
            value("Bool", bool_val=Number(Uint8, 1)),
            tensor([2, 3], dtype=4, staging_datatype=Number(Int8, 5)),
            value("IntList", items=Numbers(Int64, [-1, 4])),
            value("DoubleList", items=Numbers(Float64, [0.5])),
            value("BoolList", items=Numbers(Uint8, [1, 0])),
            value("ValueList", items=Numbers(Int32, [4, 10])),
            value("String", string_val="tanh"),
            value("SymInt", value=Number(Int32, 7)),
            chain=[call("aten.add.Tensor", [4, 4, 1, 4])],
            input_ids=Numbers(Uint32, [4, 10]),
            output_ids=Numbers(Uint32, [4]),
        )
    )
    literals = {index: item.value for index, item in enumerate(made.values) if isinstance(item, LiteralValue)}
    assert literals == {
        0: None,
        1: -(2**40),
        2: 1e-6,
        3: True,
        5: (-1, 4),
        6: (0.5,),
        7: (True, False),
        9: "tanh",
    }
    assert made.values[4] == TensorValue(4, (2, 3), "float16", "float32")
    assert made.values[8] == ListValue(8, (4, 10))
    assert made.values[10] == SymIntValue(10, 7)
    assert made.calls == (FileCall(0, "aten.add.Tensor", (4, 4, 1, 4)),)
    assert (made.inputs, made.outputs) == ((4, 10), (4,))


def test_constants_are_inline_or_named() -> None:
    raw, weights = bytes(range(32)), Blob(b"....weights!", 4, 8)
    made = read(
        graph(
            tensor([2], dtype=1, constant=0),
            tensor([2], dtype=5, constant=1),
            tensor([0, 5], constant=2),
            tensor([4], staging_datatype=Number(Int8, 127)),
            constants=[constant(16, 2), constant(NAMED, 8, named_key="w"), constant(32, 0)],
        ),
        raw,
        {"w": weights},
    )
    found = [item.constant for item in made.values if isinstance(item, TensorValue)]
    assert [None if blob is None else bytes(blob.view()) for blob in found] == [b"\x10\x11", b"weights!", b"", None]
    assert found[1] == weights


def test_a_constant_id_left_out_is_the_first_constant() -> None:
    """FlatBuffers leave out fields of value 0; -1, for no constant, is always written."""
    spec = value("VkTensor", datatype=Number(Int8, 2), dims=Numbers(Uint32, [3]))
    (made,) = read(graph(spec, constants=[constant(0, 3)]), b"abc").values
    assert isinstance(made, TensorValue) and made.constant is not None
    assert bytes(made.constant.view()) == b"abc"


IMPOSSIBLE = {
    "missing name": (graph(constants=[constant(NAMED, 4, named_key="q.weight")]), "no data named 'q.weight'"),
    "no name": (graph(constants=[constant(NAMED, 4)]), "no data named ''"),
    "constant outside": (graph(constants=[constant(10, 7)]), r"constants\[0\]: needs 7 bytes at offset 10"),
    "constant overflow": (graph(constants=[constant(2**64 - 2, 2**64 - 1)]), r"constants\[0\]: needs"),
    "named constant short": (graph(constants=[constant(NAMED, 9, named_key="w")]), "needs 9 .* are only 8"),
    "tensor larger than constant": (
        graph(tensor([3, 2], constant=0), constants=[constant(0, 16)]),
        r"values\[0\].value: needs 24 bytes at offset 0, but there are only 16",
    ),
    "constant id": (graph(tensor([1], constant=0)), "constant 0 does not exist"),
    "argument": (graph(chain=[call("op", [0])]), r"chain\[0\].args: value 0 does not exist"),
    "op without a name": (graph(chain=[call("", [])]), "the op has no name"),
    "input": (graph(input_ids=Numbers(Uint32, [2**32 - 1])), "input_ids: value 4294967295"),
    "output": (graph(output_ids=Numbers(Uint32, [0])), "output_ids: value 0"),
    "list item": (graph(value("ValueList", items=Numbers(Int32, [-1]))), "value -1 does not exist"),
    "list in itself": (graph(value("ValueList", items=Numbers(Int32, [0]))), "the list holds another list"),
    "overflow": (graph(tensor([2**32 - 1] * 2)), "more bytes than 63 bits"),
    "rank": (graph(tensor([2**32 - 1] * 100_000)), "rank 100000"),
    "data type": (graph(tensor([1], dtype=8)), "data type 8 does not exist"),
    "unset data type": (graph(tensor([1], dtype=127)), "data type 127 does not exist"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_refuses_the_impossible(case: str) -> None:
    spec, reason = IMPOSSIBLE[case]
    with pytest.raises(ProgramError, match=f"^VkGraph.*{reason}"):
        read(spec, bytes(16), {"w": Blob(bytes(8), 0, 8)})


def test_says_that_shaders_are_not_supported() -> None:
    with pytest.raises(UnsupportedError, match=r"shaders"):
        read(graph(shaders=[constant(0, 0)]))
