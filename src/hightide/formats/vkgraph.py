"""Reads the graph in a Vulkan delegate's data: a `VH00` header, a `VK00` FlatBuffer, then inline constants.

ExecuTorch's WebGPU partitioner writes the same data under the same id. Storage types and memory
layouts are advice for Vulkan textures and are ignored; so are memory object ids (see docs/design.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.checks import check_index, check_indices, part, tensor_bytes
from hightide.formats.delegate_data import read_delegate_data
from hightide.formats.flatbuffer import FlatTable, Int8, Int32, Int64, Uint32, Uint64, root_table
from hightide.formats.literal_values import LITERALS
from hightide.graph.blob import Blob
from hightide.graph.graph import FileCall, GraphFile
from hightide.graph.values import ListValue, LiteralValue, SymIntValue, TensorValue, Value

DELEGATE_IDS = ("VulkanBackend",)

VK_GRAPH = ("version", "chain", "values", "input_ids", "output_ids", "constants", "shaders")
OPERATOR_CALL = ("node_id", "name", "args")
VK_VALUE = ("value_type", "value")
VK_BYTES = ("offset", "length", "named_key")
GRAPH_TYPES = {
    "Null": (),
    "Int": ("int_val",),
    "Double": ("double_val",),
    "Bool": ("bool_val",),
    "VkTensor": (
        "datatype",
        "dims",
        "constant_id",
        "mem_obj_id",
        "storage_type",
        "memory_layout",
        "staging_datatype",
    ),
    "IntList": ("items",),
    "DoubleList": ("items",),
    "BoolList": ("items",),
    "ValueList": ("items",),
    "String": ("string_val",),
    "SymInt": ("value",),
}
DTYPES = {
    0: "bool",
    1: "uint8",
    2: "int8",
    3: "int32",
    4: "float16",
    5: "float32",
    6: "float64",
    7: "int64",
}
UNSET_DTYPE = 127


def read_graph(processed: Blob, named_data: Mapping[str, Blob]) -> GraphFile:
    """The graph of one delegate; constants stay where they are, in `processed` or in `named_data`."""
    data = read_delegate_data(processed, named_data, b"VH00", "a Vulkan")
    root = root_table(data.flatbuffer, b"VK00", VK_GRAPH, "VkGraph", "a Vulkan graph")
    if root.tables("shaders", VK_BYTES):
        raise UnsupportedError("VkGraph.shaders: a graph with shaders of its own is not supported")
    constants = [data.constant(t, t.integer("length", Uint64)) for t in root.tables("constants", VK_BYTES)]
    tables = root.tables("values", VK_VALUE)
    values = tuple(_read_value(index, table, constants) for index, table in enumerate(tables))
    for table, value in zip(tables, values, strict=True):
        if isinstance(value, ListValue):
            _check_items(value, values, table.place)
    calls = tuple(
        _read_call(index, table, len(values)) for index, table in enumerate(root.tables("chain", OPERATOR_CALL))
    )
    return GraphFile(
        values=values,
        calls=calls,
        inputs=check_indices(root.integers("input_ids", Uint32), len(values), "value", "VkGraph.input_ids"),
        outputs=check_indices(root.integers("output_ids", Uint32), len(values), "value", "VkGraph.output_ids"),
    )


def _read_value(id: int, table: FlatTable, constants: list[Blob]) -> Value:
    kind, value = table.union("value", GRAPH_TYPES)
    if kind in LITERALS:
        return LiteralValue(id, LITERALS[kind](value))
    if kind == "IntList":
        return LiteralValue(id, value.integers("items", Int64))
    if kind == "ValueList":
        return ListValue(id, value.integers("items", Int32))
    if kind == "SymInt":
        return SymIntValue(id, value.integer("value", Int32))
    return _read_tensor(id, value, constants)


def _read_tensor(id: int, tensor: FlatTable, constants: list[Blob]) -> TensorValue:
    dtype = _dtype(tensor.integer("datatype", Int8), tensor.place)
    staging = tensor.integer("staging_datatype", Int8, default=UNSET_DTYPE)
    dims = tensor.integers("dims", Uint32)
    length = tensor_bytes(dims, dtype, tensor.place)
    constant_id = tensor.integer("constant_id", Int32)  # absent means 0, the first constant
    constant = None
    if constant_id >= 0:
        check_index(constant_id, len(constants), "constant", tensor.place)
        constant = part(constants[constant_id], 0, length, tensor.place)
    return TensorValue(
        id=id,
        dims=dims,
        dtype=dtype,
        host_dtype=dtype if staging == UNSET_DTYPE else _dtype(staging, tensor.place),
        constant=constant,
    )


def _dtype(code: int, place: str) -> str:
    if code not in DTYPES:
        raise ProgramError(f"{place}: data type {code} does not exist")
    return DTYPES[code]


def _check_items(value: ListValue, values: tuple[Value, ...], place: str) -> None:
    for item in value.items:
        if isinstance(values[check_index(item, len(values), "value", place)], ListValue):
            raise ProgramError(f"{place}: the list holds another list, value {item}")


def _read_call(index: int, table: FlatTable, value_count: int) -> FileCall:
    args = check_indices(table.integers("args", Int32), value_count, "value", f"{table.place}.args")
    name = table.string("name")
    if not name:
        raise ProgramError(f"{table.place}: the op has no name")
    return FileCall(index, name, args)
