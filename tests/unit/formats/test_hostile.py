"""Damaged files: whatever the bytes say, the answer is a program or a sentence, soon and in little memory.

`tests/fuzz` damages files by their structure, and builds and runs what can still be read.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from flatbuffer_writer import PROGRAMS
from hypothesis import given, settings
from hypothesis import strategies as st

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.program_file import TensorSpec
from hightide.formats.ptd import read_data_file
from hightide.formats.pte import read_program
from hightide.formats.vkgraph import read_graph
from hightide.graph.blob import Blob
from hightide.graph.values import TensorValue
from hightide.pte.delegates import DELEGATE_IDS, calls_of, read_delegate

FILES = (
    "ops/rms_norm__width_1.pte",
    "ops/view_copy__reshape.pte",
    "external/segment.pte",
    "external/external.pte",
    "external/inline.pte",
    "external/external.ptd",
    "xnn_int8.pte",
)
CONFORMANCE = Path(__file__).parents[4] / "shared" / "conformance"
LARGE = 3000  # bytes: what is tried at every byte takes seconds
MEMORY_LIMIT = 4 << 20  # bytes; these files are of 4 kB and less


def read_everything(path: Path) -> None:
    """Reads a file and the graphs in it, and checks that each blob lies inside the file."""
    if path.suffix == ".ptd":
        blobs = list(read_data_file(path).values())
    else:
        program = read_program(path, [PROGRAMS / "external" / "external.ptd"] if "external" in path.name else [])
        blobs = list(program.named_data.values())
        for method in program.methods.values():
            tensors = [value for value in method.values if isinstance(value, TensorSpec)]
            blobs += [blob for tensor in tensors for blob in (tensor.constant, tensor.initial) if blob]
            for number, delegate in enumerate(method.delegates):
                if delegate.id in DELEGATE_IDS and calls_of(method, number):
                    graph = read_delegate(program, method, number)
                    tensors_of_graph = [value for value in graph.values if isinstance(value, TensorValue)]
                    blobs += [value.constant for value in tensors_of_graph if value.constant]
    for blob in blobs:
        assert len(blob.view()) == blob.length  # a slice past the end would be shorter


def is_refused(path: Path, data: bytes) -> bool:
    """Whether the reader refuses the data; any exception but its own fails the test."""
    path.write_bytes(data)
    try:
        read_everything(path)
    except (ProgramError, UnsupportedError) as error:
        assert str(error)
        return True
    return False


def slow_if_large(name: str) -> Any:
    large = (PROGRAMS / name).stat().st_size > LARGE
    return pytest.param(name, marks=pytest.mark.slow) if large else name


@pytest.mark.parametrize("name", [FILES[1], *(pytest.param(name, marks=pytest.mark.slow) for name in FILES)])
def test_truncation_at_every_length(name: str, tmp_path: Path) -> None:
    data = (PROGRAMS / name).read_bytes()
    path = tmp_path / Path(name).name
    assert not is_refused(path, data)
    accepted = [length for length in range(len(data)) if not is_refused(path, data[:length])]
    # A header states the size of all; an old file can lose what follows its last string: a terminator and padding.
    assert not accepted or (name == "external/inline.pte" and accepted[0] >= len(data) - 4)


@pytest.mark.parametrize("name", [slow_if_large(name) for name in FILES])
def test_flipped_bytes(name: str, tmp_path: Path, little_memory: None) -> None:
    data = (PROGRAMS / name).read_bytes()
    path = tmp_path / Path(name).name
    chance = random.Random(name)
    for _ in range(60):
        damaged = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 2, 8))):
            damaged[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        is_refused(path, bytes(damaged))


def delegate_data() -> tuple[bytes, dict[str, Blob]]:
    program = read_program(PROGRAMS / "ops" / "rms_norm__width_1.pte")
    return bytes(program.methods["forward"].delegates[0].processed.view()), program.named_data


DELEGATE, NAMED_DATA = delegate_data()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_after_a_header_are_no_graph(noise: bytes) -> None:
    data = DELEGATE[:40] + noise
    with pytest.raises(ProgramError):
        read_graph(Blob(data, 0, len(data)), NAMED_DATA)


@pytest.mark.skipif(not CONFORMANCE.is_dir(), reason="the conformance programs are not beside the repository")
def test_reads_all_conformance_programs() -> None:
    for path in sorted(CONFORMANCE.glob("*.pte")):
        read_everything(path)
