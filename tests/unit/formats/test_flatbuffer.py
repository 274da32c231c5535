"""The checked FlatBuffer reader: what it reads, and what it refuses."""

from __future__ import annotations

import struct

import pytest
from flatbuffer_writer import Number, Numbers, TableSpec, encode

from hightide.errors import ProgramError
from hightide.formats.flatbuffer import FlatTable, Float64, Int32, Int64, Uint8, root_table
from hightide.graph.blob import Blob

LEAF = ("number", "text", "items")
MEMBERS = {"First": ("x",), "Second": LEAF}
ROOT = ("byte", "long", "double", "text", "ints", "doubles", "bools", "data", "child", "leaves", "pick_type", "pick")


def read(spec: TableSpec) -> FlatTable:
    return read_bytes(encode(spec, b"TEST"))


def read_bytes(data: bytes) -> FlatTable:
    return root_table(Blob(data, 0, len(data)), b"TEST", ROOT, "Root", "a test")


def test_reads_every_kind_of_field() -> None:
    leaf = TableSpec(LEAF, number=Number(Int32, -5), text="größe")
    root = read(
        TableSpec(
            ROOT,
            byte=Number(Uint8, 200),
            long=Number(Int64, -(2**63)),
            double=Number(Float64, 0.1),
            text="hello",
            ints=Numbers(Int32, [1, -2, 3]),
            doubles=Numbers(Float64, [0.5, -1e300]),
            bools=Numbers(Uint8, [0, 1, 7]),
            data=b"\x00\x01\xff",
            child=leaf,
            leaves=[leaf, TableSpec(LEAF)],
            pick_type=Number(Uint8, 2),
            pick=leaf,
        )
    )
    assert root.integer("byte", Uint8) == 200
    assert root.integer("long", Int64) == -(2**63)
    assert root.double("double") == 0.1
    assert root.string("text") == "hello"
    assert root.integers("ints", Int32) == (1, -2, 3)
    assert root.doubles("doubles") == (0.5, -1e300)
    assert root.booleans("bools") == (False, True, True)
    assert bytes(root.blob("data").view()) == root.octets("data") == b"\x00\x01\xff"
    child = root.table("child", LEAF)
    assert child is not None and child.integer("number", Int32) == -5
    assert [table.string("text") for table in root.tables("leaves", LEAF)] == ["größe", ""]
    name, member = root.union("pick", MEMBERS)
    assert name == "Second" and member.integer("number", Int32) == -5


def test_absent_fields_read_as_defaults() -> None:
    root = read(TableSpec(ROOT))
    assert root.integer("byte", Uint8) == 0
    assert root.integer("byte", Uint8, default=127) == 127
    assert root.double("double") == 0.0
    assert root.string("text") == ""
    assert root.integers("ints", Int32) == root.booleans("bools") == ()
    assert root.table("child", LEAF) is None
    assert root.tables("leaves", LEAF) == []


def test_a_field_newer_than_the_file_is_absent() -> None:
    data = encode(TableSpec(("byte",), byte=Number(Uint8, 1)), b"TEST")
    assert read_bytes(data).string("text") == ""


@pytest.mark.parametrize("data", [b"", b"\x08\0\0\0TES", b"\x08\0\0\0TEST", b"\xff\xff\xff\xffTEST\0\0\0\0\0\0\0\0"])
def test_refuses_a_buffer_without_a_root(data: bytes) -> None:
    with pytest.raises(ProgramError, match=r"^Root"):
        read_bytes(data)


def test_refuses_another_identifier() -> None:
    with pytest.raises(ProgramError, match=r"identifier is b'ELSE', not b'TEST'"):
        read_bytes(encode(TableSpec(ROOT), b"ELSE"))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (TableSpec(ROOT, pick_type=Number(Uint8, 3), pick=TableSpec(LEAF)), "type 3 of the union"),
        (TableSpec(ROOT, pick=TableSpec(LEAF)), "type 0 of the union"),
        (TableSpec(ROOT, pick_type=Number(Uint8, 1)), "the union has a type but no value"),
    ],
)
def test_refuses_a_broken_union(spec: TableSpec, reason: str) -> None:
    with pytest.raises(ProgramError, match=f"^Root.pick: {reason}"):
        read(spec).union("pick", MEMBERS)


def test_refuses_text_that_is_not_utf8() -> None:
    with pytest.raises(ProgramError, match=r"^Root.text: the string is not UTF-8"):
        read(TableSpec(ROOT, text=b"\xff\xfe")).string("text")


@pytest.mark.parametrize("length", [4, 2**31, 2**32 - 1])
def test_refuses_a_vector_longer_than_the_buffer(length: int) -> None:
    data = encode(TableSpec(ROOT, ints=Numbers(Int32, [77, 88, 99])), b"TEST")
    vector = data.index(struct.pack("<III", 3, 77, 88))
    root = read_bytes(data[:vector] + struct.pack("<I", length) + data[vector + 4 :])
    with pytest.raises(ProgramError, match=f"^Root.ints: {length} items of 4 bytes run past the end"):
        root.integers("ints", Int32)


# 0 would be a cycle (a table that holds itself); the large ones would be cycles if 32 bits wrapped.
@pytest.mark.parametrize("offset", [0, 2**32 - 4, 2**31, 10_000])
def test_refuses_an_offset_that_does_not_point_forward_into_the_buffer(offset: int) -> None:
    data = encode(TableSpec(ROOT, child=TableSpec(LEAF)), b"TEST")
    root = read_bytes(data)
    field = root.locate("child", 4)
    assert field is not None
    hostile = read_bytes(data[:field] + struct.pack("<I", offset) + data[field + 4 :])
    with pytest.raises(ProgramError, match=f"^Root.child: offset {offset} at byte {field} does not point"):
        hostile.table("child", LEAF)


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        ("vtable_size", 3, "a vtable of 3 bytes"),
        ("vtable_size", 65534, "a vtable of 65534 bytes"),
        ("table_size", 2, "a table of 2 bytes"),
        ("table_size", 65535, "a table of 65535 bytes"),
        ("first_field", 2, "offset 2 is outside"),
        ("first_field", 60000, "offset 60000 is outside"),
    ],
)
def test_refuses_an_impossible_vtable(at: str, value: int, reason: str) -> None:
    data = encode(TableSpec(ROOT, byte=Number(Uint8, 1)), b"TEST")
    place = read_bytes(data).vtable + ("vtable_size", "table_size", "first_field").index(at) * 2
    with pytest.raises(ProgramError, match=reason):
        read_bytes(data[:place] + struct.pack("<H", value) + data[place + 2 :]).integer("byte", Uint8)


@pytest.mark.parametrize("distance", [2**31 - 1, -(2**31)])
def test_refuses_a_vtable_outside_the_buffer(distance: int) -> None:
    data = encode(TableSpec(ROOT, byte=Number(Uint8, 1)), b"TEST")
    place = read_bytes(data).position
    with pytest.raises(ProgramError, match=r"vtable at byte .* is outside the buffer"):
        read_bytes(data[:place] + struct.pack("<i", distance) + data[place + 4 :])


def test_shared_tables_cannot_multiply_the_work() -> None:
    """A kilobyte that says a thousand times "the same long list" must not become a million numbers."""
    shared = TableSpec(LEAF, items=Numbers(Int32, range(1000)))
    leaves = read(TableSpec(ROOT, leaves=[shared] * 1000)).tables("leaves", LEAF)
    with pytest.raises(ProgramError, match=r"refers to the same data too often"):
        for leaf in leaves:
            leaf.integers("items", Int32)


def test_strings_may_be_shared() -> None:
    text = "a name"
    leaves = read(TableSpec(ROOT, leaves=[TableSpec(LEAF, text=text) for _ in range(9)])).tables("leaves", LEAF)
    assert {leaf.string("text") for leaf in leaves} == {text}
