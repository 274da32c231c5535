"""Reads the graph in an XNNPACK delegate's data: an `XH00` header, an `XN01` FlatBuffer, then inline constants.

The schema is ExecuTorch's backends/xnnpack/serialization/schema.fbs. Nothing is interpreted here but the layout: which
ops the nodes are is for `pte.xnnpack`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, isnan, prod
from typing import NamedTuple, TypeAlias

from hightide.errors import ProgramError
from hightide.formats.checks import check_index, part, tensor_bytes
from hightide.formats.delegate_data import read_delegate_data
from hightide.formats.flatbuffer import FlatTable, Int16, Int32, Uint32, Uint64, root_table
from hightide.formats.xnn_tables import (
    CONSTANT_OFFSET,
    FLOATS,
    LISTS,
    NODES,
    OUTPUT_RANGE,
    QUANTIZED_VALUE,
    SCALINGS,
    TENSOR_VALUE,
    VALUES,
    XNN_GRAPH,
    XNODE,
    XVALUE,
)
from hightide.graph.blob import Blob
from hightide.graph.values import Dims

DELEGATE_IDS = ("XnnpackBackend",)

# By number: the name, and the bits of an element. Codes of 4 bits fill whole bytes in each row.
DATATYPES = {
    1: ("fp32", 32),
    2: ("fp16", 16),
    3: ("qint8", 8),
    4: ("quint8", 8),
    5: ("qint32", 32),
    6: ("qcint8", 8),
    7: ("qcint32", 32),
    8: ("qcint4", 4),
    9: ("qdint8", 8),
    10: ("qbint4", 4),
    11: ("qpint8", 8),
    12: ("int32", 32),
    13: ("pfp32", 32),
    14: ("bf16", 16),
}
NONE = 2**32 - 1  # as an id: there is no such value
INPUT, OUTPUT = 1, 2  # flags of a value


class TensorScale(NamedTuple):
    """One scale and zero point."""

    scale: float
    zero: int


class ChannelScales(NamedTuple):
    """A float32 scale for each place along `axis`."""

    scales: Blob
    axis: int


class GroupScales(NamedTuple):
    """A bfloat16 scale for each `group` elements of a row: [rows, groups of a row]."""

    scales: Blob
    group: int


class RowScales(NamedTuple):
    """Scales and zero points found when the graph runs, for each block of the last `dims` dims."""

    dims: int


Scaling: TypeAlias = TensorScale | ChannelScales | GroupScales | RowScales


@dataclass(frozen=True)
class XnnValue:
    """A tensor: its max dims, what its elements are, and its data if it is constant."""

    dims: Dims
    datatype: str  # a name of DATATYPES
    constant: Blob | None
    scaling: Scaling | None
    flags: int
    external: int | None  # its place among what the delegate is called with


@dataclass(frozen=True)
class XnnNode:
    """One op: value numbers, numbers and lists by the schema's names, `input1_id` as "input1"."""

    index: int
    kind: str  # "FullyConnected"
    ids: Mapping[str, int]  # without those that are absent
    numbers: Mapping[str, int]
    floats: Mapping[str, float]
    lists: Mapping[str, tuple[int, ...]]
    limits: tuple[float, float] | None  # what the output is clamped to

    def __str__(self) -> str:
        return f"node {self.index} ({self.kind})"


@dataclass(frozen=True)
class XnnGraph:
    values: tuple[XnnValue, ...]
    nodes: tuple[XnnNode, ...]
    externals: int  # how many values the delegate is called with


def read_xnn_graph(processed: Blob, named_data: Mapping[str, Blob]) -> XnnGraph:
    """The graph of one delegate; constants stay where they are, in `processed` or in `named_data`."""
    data = read_delegate_data(processed, named_data, b"XH00", "an XNNPACK")
    root = root_table(data.flatbuffer, b"XN01", XNN_GRAPH, "XNNGraph", "an XNNPACK graph")
    constants = [data.constant(t, t.integer("size", Uint64)) for t in root.tables("constant_data", CONSTANT_OFFSET)]
    externals = root.integer("num_externs", Uint32)
    numbers: dict[int, int] = {}  # of a value in the nodes -> its place
    values: list[XnnValue] = []
    for table in root.tables("xvalues", XVALUE):
        number, value = _read_value(table, constants, externals)
        if number in numbers:
            raise ProgramError(f"{table.place}: value {number} is defined twice")
        numbers[number] = len(values)
        values.append(value)
    nodes = tuple(_read_node(n, table, numbers) for n, table in enumerate(root.tables("xnodes", XNODE)))
    _check_externals(values, root)
    return XnnGraph(tuple(values), nodes, externals)


# ---- values


def _read_value(table: FlatTable, constants: list[Blob], externals: int) -> tuple[int, XnnValue]:
    """The number by which nodes call it, and the value."""
    kind, union = table.union("xvalue_union", VALUES)
    tensor = union
    if kind == "XNNQuantizedTensorValue":
        inner = union.table(QUANTIZED_VALUE[0], TENSOR_VALUE)
        if inner is None:
            raise ProgramError(f"{union.place}: a quantized value without a tensor")
        tensor = inner
    place, code, dims = tensor.place, tensor.integer("datatype", Int16), tensor.integers("dims", Uint32)
    if code not in DATATYPES:
        raise ProgramError(f"{place}: data type {code} does not exist")
    if len(dims) != tensor.integer("num_dims", Uint32):
        raise ProgramError(f"{place}: {len(dims)} dims are given, not {tensor.integer('num_dims', Uint32)}")
    tensor_bytes(dims, "float32", place)
    datatype, bits = DATATYPES[code]
    scaling = None if tensor is union else _read_scaling(union, dims, constants)
    number = tensor.integer("constant_buffer_idx", Uint32)
    constant = None
    if number:
        row_bytes = -(-dims[-1] * bits // 8) if dims else bits // 8
        constant = part(_constant(number, constants, place), 0, prod(dims[:-1]) * row_bytes, place)
    external: int | None = tensor.integer("external_id", Uint32)
    flags = tensor.integer("flags", Uint32)
    if external == NONE or not flags & (INPUT | OUTPUT):
        external = None
    else:
        check_index(external or 0, externals, "external value", place)
    return tensor.integer("id_out", Uint32), XnnValue(dims, datatype, constant, scaling, flags, external)


def _read_scaling(table: FlatTable, dims: Dims, constants: list[Blob]) -> Scaling:
    kind, quant = table.union("quant_params", SCALINGS)
    place = quant.place
    if kind == "PerTensorQuant":
        scale = quant.single("scale")
        if not isfinite(scale) or scale <= 0:
            raise ProgramError(f"{place}: {scale} is no scale")
        return TensorScale(scale, quant.integer("zero_point", Int32))
    if kind == "PerTokenDynamicQuant":
        return RowScales(check_index(quant.integer("num_nonbatch_dims", Int32), len(dims) + 1, "dim", place))
    axis = check_index(quant.integer("channel_dim", Int32), len(dims), "dim", place)
    if kind == "PerChannelQuant":
        return ChannelScales(_read_scales(quant, dims[axis], 4, constants), axis)
    group = quant.integer("group_size", Int32)
    if group < 1 or len(dims) != 2 or axis != 0 or dims[1] % group:
        raise ProgramError(f"{place}: {list(dims)} cannot be cut into groups of {group} along its rows")
    return GroupScales(_read_scales(quant, dims[0] * (dims[1] // group), 2, constants), group)


def _read_scales(quant: FlatTable, count: int, width: int, constants: list[Blob]) -> Blob:
    """`count` numbers of `width` bytes; older exporters have float32 ones inline."""
    number = quant.integer("scale_buffer_idx", Uint32)
    if number:
        return part(_constant(number, constants, quant.place), 0, count * width, quant.place)
    scales = quant.singles("scale")
    if len(scales) != count or width != 4:
        raise ProgramError(f"{quant.place}: {len(scales)} inline scales are not the {count} that are needed")
    return Blob(struct.pack(f"<{count}f", *scales), 0, count * 4)


def _constant(number: int, constants: list[Blob], place: str) -> Blob:
    return constants[check_index(number, len(constants), "constant", place)]


def _check_externals(values: list[XnnValue], root: FlatTable) -> None:
    """Each place among the inputs and outputs is one value's, and inputs come first."""
    taken: dict[int, int] = {}
    for value in values:
        if value.external is not None:
            if value.external in taken:
                raise ProgramError(f"{root.place}: two values are external value {value.external}")
            taken[value.external] = value.flags & (INPUT | OUTPUT)
    for number in taken:
        if taken[number] == INPUT | OUTPUT:
            raise ProgramError(f"{root.place}: external value {number} is an input and an output")
    outputs = [number for number, kind in taken.items() if kind == OUTPUT]
    if outputs and any(kind == INPUT and number > min(outputs) for number, kind in taken.items()):
        raise ProgramError(f"{root.place}: an output comes before an input")


# ---- nodes


def _read_node(index: int, table: FlatTable, numbers: Mapping[int, int]) -> XnnNode:
    kind, union = table.union("xnode_union", NODES)
    ids, integers = {}, {}
    for field in union.fields:
        if field.endswith("_id"):
            number = union.integer(field, Uint32)
            if number != NONE and (union.locate(field, 4) is not None or number in numbers):
                if number not in numbers:
                    raise ProgramError(f"{union.place}.{field}: value {number} does not exist")
                ids[field.removesuffix("_id")] = numbers[number]
        elif field not in FLOATS and field not in LISTS:
            integers[field] = union.integer(field, Uint32)
    limited, limits = table.table("output_min_max", OUTPUT_RANGE), None
    if limited is not None:
        limits = limited.single("output_min"), limited.single("output_max")
        if isnan(limits[0]) or isnan(limits[1]):
            raise ProgramError(f"{limited.place}: a limit is not a number")
    return XnnNode(
        index,
        kind,
        ids,
        integers,
        {field: union.single(field) for field in union.fields if field in FLOATS},
        {field: union.integers(field, Uint32) for field in union.fields if field in LISTS},
        limits,
    )
