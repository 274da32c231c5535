"""Graphs of the XNNPACK delegate: real ones, every kind of scale, and graphs that say impossible things."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import pytest
from flatbuffer_writer import PROGRAMS, Number, Numbers, TableSpec, delegate_data

from hightide.errors import ProgramError
from hightide.formats import xnn_tables
from hightide.formats.delegate_data import NAMED
from hightide.formats.flatbuffer import Float32, Int16, Int32, Uint8, Uint32, Uint64
from hightide.formats.pte import read_program
from hightide.formats.xnngraph import (
    DELEGATE_IDS,
    NONE,
    ChannelScales,
    GroupScales,
    RowScales,
    TensorScale,
    XnnGraph,
    read_xnn_graph,
)
from hightide.graph.blob import Blob

MAGICS = (b"XH00", b"XN01")  # of the header and the FlatBuffer


def test_reads_a_real_graph() -> None:
    program = read_program(PROGRAMS / "xnn_int4.pte")
    (delegate,) = program.methods["forward"].delegates
    assert delegate.id in DELEGATE_IDS
    graph = read_xnn_graph(delegate.processed, program.named_data)
    kinds = [node.kind for node in graph.nodes]
    assert kinds.count("FullyConnected") == 3 and kinds.count("Convert") >= 2
    weights = [value for value in graph.values if value.datatype == "qbint4"]
    assert sorted(value.dims for value in weights) == [(64, 96), (96, 64), (96, 64)]
    assert all(isinstance(value.scaling, GroupScales) and value.scaling.group == 32 for value in weights)
    assert weights[0].constant in program.named_data.values()  # the blob of the file itself, not a copy
    assert graph.externals == 2


# ---- graphs made here


def tagged(members: Mapping[str, Any], name: str, kind: str, **fields: Any) -> dict[str, Any]:
    """The two fields of a union."""
    tag = list(members).index(kind) + 1
    return {f"{name}_type": Number(Uint8, tag), name: TableSpec(members[kind], **fields)}


def tensor_fields(dims: list[int], datatype: int = 1, **numbers: int) -> dict[str, Any]:
    given = {"num_dims": len(dims), "external_id": NONE, **numbers}
    fields = {name: Number(Uint32, number) for name, number in given.items()}
    return {"datatype": Number(Int16, datatype), "dims": Numbers(Uint32, dims), **fields}


def tensor(dims: list[int], datatype: int = 1, **numbers: int) -> TableSpec:
    fields = tensor_fields(dims, datatype, **numbers)
    return TableSpec(xnn_tables.XVALUE, **tagged(xnn_tables.VALUES, "xvalue_union", "XNNTensorValue", **fields))


def codes(dims: list[int], datatype: int, scaling: str, numbers: Mapping[str, int] = {}, **fields: Any) -> TableSpec:
    inner = TableSpec(xnn_tables.TENSOR_VALUE, **tensor_fields(dims, datatype, **numbers))
    quant = tagged(xnn_tables.SCALINGS, "quant_params", scaling, **fields)
    union = tagged(xnn_tables.VALUES, "xvalue_union", "XNNQuantizedTensorValue", tensor_value=inner, **quant)
    return TableSpec(xnn_tables.XVALUE, **union)


def node(kind: str, limits: TableSpec | None = None, **fields: Any) -> TableSpec:
    given = {name: Number(Uint32, value) if isinstance(value, int) else value for name, value in fields.items()}
    extra = {} if limits is None else {"output_min_max": limits}
    return TableSpec(xnn_tables.XNODE, **tagged(xnn_tables.NODES, "xnode_union", kind, **given), **extra)


def limits(low: float, high: float) -> TableSpec:
    return TableSpec(xnn_tables.OUTPUT_RANGE, output_min=Number(Float32, low), output_max=Number(Float32, high))


def constant(offset: int, size: int, **fields: Any) -> TableSpec:
    numbers = {"offset": Number(Uint64, offset), "size": Number(Uint64, size)}
    return TableSpec(xnn_tables.CONSTANT_OFFSET, **numbers, **fields)


def graph(*values: TableSpec, externs: int = 0, **fields: Any) -> TableSpec:
    return TableSpec(xnn_tables.XNN_GRAPH, xvalues=list(values), num_externs=Number(Uint32, externs), **fields)


def read(root: TableSpec, raw: bytes = b"", named_data: Mapping[str, Blob] | None = None) -> XnnGraph:
    return read_xnn_graph(Blob(data := delegate_data(root, MAGICS, raw), 0, len(data)), named_data or {})


NOTHING = constant(0, 0)  # the reserved first one


def test_reads_every_kind_of_scale() -> None:
    made = read(
        graph(
            codes([2], 3, "PerTensorQuant", scale=Number(Float32, 0.5), zero_point=Number(Int32, -3)),
            codes([2, 4], 9, "PerTokenDynamicQuant", {"id_out": 1}, num_nonbatch_dims=Number(Int32, 1)),
            codes(
                [2, 3],
                6,
                "PerChannelQuant",
                {"id_out": 2, "constant_buffer_idx": 1},
                scale=Numbers(Float32, [1, 2, 4]),
                channel_dim=Number(Int32, 1),
            ),
            codes(
                [3, 64],
                10,
                "PerChannelGroupQuant",
                {"id_out": 3, "constant_buffer_idx": 2},
                group_size=Number(Int32, 32),
                scale_buffer_idx=Number(Uint32, 1),
            ),
            constant_data=[NOTHING, constant(0, 12), constant(NAMED, 96, named_key="w")],
        ),
        bytes(range(12)),
        {"w": Blob(bytes(100), 4, 96)},
    )
    one, token, channel, group = (value.scaling for value in made.values)
    assert one == TensorScale(0.5, -3) and token == RowScales(1)
    assert isinstance(channel, ChannelScales) and bytes(channel.scales.view()) == struct.pack("<3f", 1, 2, 4)
    assert isinstance(group, GroupScales) and bytes(group.scales.view()) == bytes(range(12))
    assert [value.constant.length for value in made.values if value.constant] == [6, 96]


def test_reads_nodes() -> None:
    """FlatBuffers leave out fields of value 0: an id that is absent is value 0."""
    made = read(
        graph(
            tensor([2], id_out=7, external_id=0, flags=1),
            tensor([2], external_id=1, flags=2),
            xnodes=[
                node("ELU", limits(-1, float("inf")), alpha=Number(Float32, 0.5), input_id=7),
                node("FullyConnected", input1_id=7, filter_id=7, bias_id=NONE),
            ],
            externs=2,
        )
    )
    elu, linear = made.nodes
    assert (elu.kind, elu.ids, elu.floats, elu.limits) == (
        "ELU",
        {"input": 0, "output": 1},
        {"alpha": 0.5},
        (-1, float("inf")),
    )
    assert linear.ids == {"input1": 0, "filter": 0, "output": 1} and linear.numbers == {"flags": 0}
    assert [value.external for value in made.values] == [0, 1]


def outside(kind: str, **fields: Any) -> TableSpec:
    return graph(tensor([1]), xnodes=[node(kind, **fields)])


IMPOSSIBLE = {
    "missing name": (graph(constant_data=[constant(NAMED, 4, named_key="q")]), "no data named 'q'"),
    "no name": (graph(constant_data=[constant(NAMED, 4)]), "no data named ''"),
    "constant outside": (graph(constant_data=[constant(10, 7)]), "needs 7 bytes at offset 10"),
    "named constant short": (graph(constant_data=[constant(NAMED, 9, named_key="w")]), "needs 9 .* are only 8"),
    "tensor larger than constant": (
        graph(tensor([3, 2], constant_buffer_idx=1), constant_data=[NOTHING, constant(0, 16)]),
        "needs 24 bytes at offset 0, but there are only 16",
    ),
    "nibbles larger than constant": (
        graph(
            codes([3, 11], 8, "PerTensorQuant", {"constant_buffer_idx": 1}, scale=Number(Float32, 1)),
            constant_data=[NOTHING, constant(0, 16)],
        ),
        "needs 18 bytes",
    ),
    "constant id": (graph(tensor([1], constant_buffer_idx=1)), "constant 1 does not exist"),
    "input id": (outside("Abs", input_id=3), r"xnodes\[0\].*input_id: value 3 does not exist"),
    "output id": (outside("Add", output_id=2), "output_id: value 2 does not exist"),
    "limit": (graph(tensor([1]), xnodes=[node("Clamp", limits(float("nan"), 0))]), "a limit is not a number"),
    "value twice": (graph(tensor([1]), tensor([1])), "value 0 is defined twice"),
    "external": (graph(tensor([1], external_id=1, flags=1), externs=1), "external value 1 does not exist"),
    "external twice": (
        graph(tensor([1], external_id=0, flags=1), tensor([1], external_id=0, flags=2, id_out=1), externs=1),
        "two values are external value 0",
    ),
    "output first": (
        graph(tensor([1], external_id=0, flags=2), tensor([1], external_id=1, flags=1, id_out=1), externs=2),
        "an output comes before an input",
    ),
    "in and out": (graph(tensor([1], external_id=0, flags=3), externs=1), "is an input and an output"),
    "data type": (graph(tensor([1], datatype=15)), "data type 15 does not exist"),
    "rank told": (graph(tensor([1], num_dims=2)), "1 dims are given, not 2"),
    "overflow": (graph(tensor([2**32 - 1] * 2)), "more bytes than 63 bits"),
    "rank": (graph(tensor([2**32 - 1] * 100_000)), "rank 100000"),
    "scale": (graph(codes([1], 3, "PerTensorQuant", scale=Number(Float32, -1))), "-1.0 is no scale"),
    "no scale": (graph(codes([1], 3, "PerTensorQuant")), "0.0 is no scale"),
    "channel": (graph(codes([1], 6, "PerChannelQuant", channel_dim=Number(Int32, 1))), "dim 1 does not exist"),
    "scales": (graph(codes([2], 6, "PerChannelQuant", scale=Numbers(Float32, [1]))), "1 inline scales are not the 2"),
    "scales outside": (
        graph(codes([9], 6, "PerChannelQuant", scale_buffer_idx=Number(Uint32, 1)), constant_data=[NOTHING, NOTHING]),
        "needs 36 bytes",
    ),
    "rows": (
        graph(codes([2], 9, "PerTokenDynamicQuant", num_nonbatch_dims=Number(Int32, 2))),
        "dim 2 does not exist",
    ),
    "groups": (
        graph(codes([2, 48], 10, "PerChannelGroupQuant", group_size=Number(Int32, 32))),
        "cannot be cut into groups of 32",
    ),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_refuses_the_impossible(case: str) -> None:
    spec, reason = IMPOSSIBLE[case]
    with pytest.raises(ProgramError, match=f"^XNNGraph.*{reason}"):
        read(spec, bytes(16), {"w": Blob(bytes(8), 0, 8)})


def test_refuses_every_truncation() -> None:
    program = read_program(PROGRAMS / "xnn_int4.pte")
    data = bytes(program.methods["forward"].delegates[0].processed.view())
    header_and_graph = 32 + struct.unpack_from("<I", data, 14)[0]
    for length in range(0, header_and_graph, 7):
        with pytest.raises(ProgramError):
            read_xnn_graph(Blob(data, 0, length), program.named_data)
