"""The header of a delegate's data, which both backends write alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flatbuffer_writer import TableSpec, delegate_data

from hightide.errors import ProgramError
from hightide.formats import vkgraph, xnn_tables
from hightide.formats.vkgraph import read_graph
from hightide.formats.xnngraph import read_xnn_graph
from hightide.graph.blob import Blob

# (the reader, the root table of a graph of nothing, magics of the header and the FlatBuffer)
BACKENDS: dict[str, tuple[Callable[..., Any], TableSpec, tuple[bytes, bytes]]] = {
    "Vulkan": (read_graph, TableSpec(vkgraph.VK_GRAPH), (b"VH00", b"VK00")),
    "XNNPACK": (read_xnn_graph, TableSpec(xnn_tables.XNN_GRAPH), (b"XH00", b"XN01")),
}
WRONG = [(4, b"XX00"), (8, b"\x1f"), (10, b"\xff" * 4), (14, b"\xff" * 4), (18, b"\xff" * 4), (22, b"\xff" * 8)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_good_header_is_read(backend: str) -> None:
    reader, root, magics = BACKENDS[backend]
    data = delegate_data(root, magics)
    assert not reader(Blob(data, 0, len(data)), {}).values


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("offset", "patch"), WRONG)
def test_refuses_a_wrong_header(backend: str, offset: int, patch: bytes) -> None:
    reader, root, magics = BACKENDS[backend]
    data = bytearray(delegate_data(root, magics))
    data[offset : offset + len(patch)] = patch
    with pytest.raises(ProgramError, match=r"^delegate header: "):
        reader(Blob(bytes(data), 0, len(data)), {})
