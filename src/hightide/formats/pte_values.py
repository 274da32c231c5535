"""Reads the values of a `.pte` method, and finds the data of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.checks import check_index, part, tensor_bytes
from hightide.formats.flatbuffer import FlatTable, Int8, Int32, Int64, Kind, Uint8, Uint32, Uint64
from hightide.formats.literal_values import LITERALS
from hightide.formats.program_file import EValue, TensorSpec, ValueListSpec
from hightide.graph.blob import Blob

EVALUE = ("val_type", "val")
TENSOR = (
    "scalar_type",
    "storage_offset",
    "sizes",
    "dim_order",
    "requires_grad",
    "data_buffer_idx",
    "allocation_info",
    "layout",
    "shape_dynamism",
    "extra_tensor_info",
)
EXTRA_TENSOR_INFO = ("mutable_data_segments_idx", "fully_qualified_name", "location")
ALLOCATION_DETAILS = ("memory_id", "memory_offset_low", "memory_offset_high")
KERNEL_TYPES = {
    "Null": (),
    "Int": ("int_val",),
    "Bool": ("bool_val",),
    "Double": ("double_val",),
    "Tensor": TENSOR,
    "String": ("string_val",),
    "IntList": ("items",),
    "DoubleList": ("items",),
    "BoolList": ("items",),
    "TensorList": ("items",),
    "OptionalTensorList": ("items",),
}
DTYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    11: "bool",
    15: "bfloat16",
}
UNSUPPORTED_DTYPES = {
    12: "qint8",
    13: "quint8",
    14: "qint32",
    16: "quint4x2",
    17: "quint2x4",
    22: "bits16",
    23: "float8_e5m2",
    24: "float8_e4m3fn",
    25: "float8_e5m2fnuz",
    26: "float8_e4m3fnuz",
    27: "uint16",
    28: "uint32",
    29: "uint64",
}
EXTERNAL = 1  # TensorDataLocation: the data is in a .ptd file


@dataclass(frozen=True)
class Subsegments:
    """Data of several tensors in one segment: where each begins."""

    segment: Blob
    offsets: tuple[int, ...]

    def part(self, index: int, length: int, place: str) -> Blob:
        return part(self.segment, self.offsets[check_index(index, len(self.offsets), "data", place)], length, place)


@dataclass(frozen=True)
class TensorData:
    """All places where a program keeps the data of tensors."""

    inline: list[Blob]  # of files from before September 2024
    constant: Subsegments
    mutable: list[Subsegments]
    external: Mapping[str, Blob]  # of the .ptd files

    def find_constant(self, index: int, length: int, place: str) -> Blob:
        if self.constant.offsets:
            return self.constant.part(index, length, place)
        return part(self.inline[check_index(index, len(self.inline), "constant", place)], 0, length, place)

    def find_initial(self, group: int, index: int, length: int, place: str) -> Blob:
        check_index(group, len(self.mutable), "mutable data segment", place)
        return self.mutable[group].part(index, length, place)

    def find_external(self, name: str | None, length: int, place: str) -> Blob:
        if name is None:
            raise ProgramError(f"{place}: the tensor's data is external, but the tensor has no name")
        if name not in self.external:
            raise ProgramError(f"{place}: the data of {name!r} is not in the data files given; pass its .ptd file")
        return part(self.external[name], 0, length, f"{place} ({name!r}, external)")


def read_subsegments(table: FlatTable | None, segments: list[Blob]) -> Subsegments:
    offsets = table.integers("offsets", Uint64) if table else ()
    if table is None or not offsets:  # without offsets, segment_index means nothing
        return Subsegments(Blob(b"", 0, 0), ())
    index = check_index(table.integer("segment_index", Uint32), len(segments), "segment", table.place)
    return Subsegments(segments[index], offsets)


def read_values(plan: FlatTable, data: TensorData) -> tuple[EValue, ...]:
    tables = plan.tables("values", EVALUE)
    values = tuple(_read_value(table, data) for table in tables)
    for table, value in zip(tables, values, strict=True):
        if isinstance(value, ValueListSpec):
            _check_items(value, values, table.place)
    return values


def _check_items(value: ValueListSpec, values: tuple[EValue, ...], place: str) -> None:
    for item in value.items:
        if item != -1 and isinstance(values[check_index(item, len(values), "value", place)], ValueListSpec):
            raise ProgramError(f"{place}: the list holds another list, value {item}")


def _read_value(table: FlatTable, data: TensorData) -> EValue:
    kind, value = table.union("val", KERNEL_TYPES)
    if kind in LITERALS:
        return LITERALS[kind](value)
    match kind:
        case "IntList":  # indices of values, as an int may be computed by an instruction
            return _read_list(value, Int64, least=0)
        case "TensorList":
            return _read_list(value, Int32, least=0)
        case "OptionalTensorList":
            return _read_list(value, Int32, least=-1)
        case _:
            return _read_tensor(value, data)


def _read_list(table: FlatTable, kind: Kind, least: int) -> ValueListSpec:
    items = table.integers("items", kind)
    if items and min(items) < least:
        raise ProgramError(f"{table.place}: value {min(items)} does not exist")
    return ValueListSpec(items)


def _read_tensor(tensor: FlatTable, data: TensorData) -> TensorSpec:
    place = tensor.place
    dtype = _read_dtype(tensor)
    dims = tensor.integers("sizes", Int32)
    length = tensor_bytes(dims, dtype, place)
    dim_order = tensor.integers("dim_order", Uint8)
    if sorted(dim_order) != list(range(len(dims))):
        raise ProgramError(f"{place}: dim order {list(dim_order)} is not an order of {len(dims)} dims")
    if tensor.integer("storage_offset", Int32) != 0:
        raise UnsupportedError(f"{place}: a tensor with a storage offset is not supported")

    extra = tensor.table("extra_tensor_info", EXTRA_TENSOR_INFO)
    name = (extra.string("fully_qualified_name") if extra else "") or None
    allocation = tensor.table("allocation_info", ALLOCATION_DETAILS)
    planned = None if allocation is None else _read_place(allocation)
    buffer = tensor.integer("data_buffer_idx", Uint32)  # 0 is reserved for tensors without data
    blob = None
    if extra and extra.integer("location", Int8) == EXTERNAL:
        blob = data.find_external(name, length, place)
    elif buffer > 0 and planned is not None:
        group = extra.integer("mutable_data_segments_idx", Uint64) if extra else 0
        blob = data.find_initial(group, buffer, length, place)
    elif buffer > 0:
        blob = data.find_constant(buffer, length, place)
    return TensorSpec(
        dtype=dtype,
        dims=dims,
        dynamic=tensor.integer("shape_dynamism", Int8) != 0,
        dim_order=dim_order,
        constant=blob if planned is None else None,
        initial=None if planned is None else blob,
        place=planned,
        name=name,
    )


def _read_place(allocation: FlatTable) -> tuple[int, int]:
    low, high = (allocation.integer(f"memory_offset_{part}", Uint32) for part in ("low", "high"))
    return allocation.integer("memory_id", Uint32), (high << 32) + low


def _read_dtype(tensor: FlatTable) -> str:
    code = tensor.integer("scalar_type", Int8)
    if code in DTYPES:
        return DTYPES[code]
    if code in UNSUPPORTED_DTYPES:
        raise UnsupportedError(f"{tensor.place}: tensors of {UNSUPPORTED_DTYPES[code]} are not supported")
    raise ProgramError(f"{tensor.place}: scalar type {code} does not exist")
