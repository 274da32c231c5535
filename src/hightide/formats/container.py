"""What `.pte` and `.ptd` files share: named segments of data after a FlatBuffer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hightide.errors import ProgramError
from hightide.formats.checks import check_index, part
from hightide.formats.flatbuffer import FlatTable, Uint32, Uint64
from hightide.graph.blob import Blob

SEGMENT = ("offset", "size")


def read_segments(root: FlatTable, region: Blob) -> list[Blob]:
    """The segments that `root` describes, inside the `region` of the file that holds them all."""
    return [
        part(region, segment.integer("offset", Uint64), segment.integer("size", Uint64), segment.place)
        for segment in root.tables("segments", SEGMENT)
    ]


def read_named_data(entries: Iterable[FlatTable], segments: Sequence[Blob]) -> dict[str, Blob]:
    named_data: dict[str, Blob] = {}
    for entry in entries:
        key = entry.string("key")
        if not key:
            raise ProgramError(f"{entry.place}: the data has no name")
        if key in named_data:
            raise ProgramError(f"{entry.place}: the name {key!r} is used twice")
        segment = entry.integer("segment_index", Uint32)
        named_data[key] = segments[check_index(segment, len(segments), "segment", entry.place)]
    return named_data
