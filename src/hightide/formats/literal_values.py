"""Literals in a union of values: programs and delegates' graphs write them alike."""

from __future__ import annotations

from collections.abc import Callable

from hightide.formats.flatbuffer import FlatTable, Int64
from hightide.graph.values import Literal

LITERALS: dict[str, Callable[[FlatTable], Literal]] = {
    "Null": lambda table: None,
    "Int": lambda table: table.integer("int_val", Int64),
    "Bool": lambda table: table.boolean("bool_val"),
    "Double": lambda table: table.double("double_val"),
    "String": lambda table: table.string("string_val"),
    "DoubleList": lambda table: table.doubles("items"),
    "BoolList": lambda table: table.booleans("items"),
}
