"""Files of more than 4 GiB: offsets have 64 bits, and only what is used is read. They are sparse: they take no room."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flatbuffer_writer import PROGRAMS
from fuzz.gguf_parts import GgufParts
from fuzz.seeds import tiny_model

from hightide import LLM, load

FAR = 5 << 30
MEMORY_LIMIT = 64 << 20
Write = Callable[..., Path]


@pytest.fixture
def sparse(tmp_path: Path) -> Write:
    """Writes a file of a beginning and an end that is far away."""

    def write(name: str, head: bytes, at: int, tail: bytes) -> Path:
        path = tmp_path / name
        try:
            with path.open("wb") as file:
                file.write(head)
                file.seek(at)
                file.write(tail)
        except OSError as error:
            pytest.skip(f"no file of {at} bytes here: {error}")
        if getattr(path.stat(), "st_blocks", 0) * 512 > FAR // 4:
            pytest.skip("the file system has no sparse files")
        return path

    return write


def test_a_program_with_segments_behind_4_gib(sparse: Write, little_memory: None) -> None:
    data = (PROGRAMS / "external" / "segment.pte").read_bytes()
    program_size, base = struct.unpack_from("<QQ", data, 16)
    head = bytearray(data[:program_size])
    struct.pack_into("<Q", head, 24, FAR)
    path = sparse("far.pte", bytes(head), FAR, data[base:])
    assert path.stat().st_size > 1 << 32
    with load(path, device="cpu") as far, load(PROGRAMS / "external" / "segment.pte", device="cpu") as near:
        given = [np.ones(spec.dims, spec.dtype) for spec in near.methods["forward"].inputs]
        for got, expected in zip(far.method()(*given), near.method()(*given), strict=True):
            np.testing.assert_array_equal(got, expected)


def test_data_files_with_segments_behind_4_gib(sparse: Write, little_memory: None) -> None:
    data = (PROGRAMS / "external" / "external.ptd").read_bytes()
    offset, size, base, _ = struct.unpack_from("<QQQQ", data, 16)
    head = bytearray(data[: offset + size])
    struct.pack_into("<Q", head, 32, FAR)
    path = sparse("far.ptd", bytes(head), FAR, data[base:])
    program = PROGRAMS / "external" / "external.pte"
    with load(program, "cpu", path) as far, load(program, "cpu", PROGRAMS / "external" / "external.ptd") as near:
        given = [np.ones(spec.dims, spec.dtype) for spec in near.methods["forward"].inputs]
        for got, expected in zip(far.method()(*given), near.method()(*given), strict=True):
            np.testing.assert_array_equal(got, expected)


def test_a_model_with_weights_behind_4_gib(sparse: Write, tmp_path: Path, little_memory: None) -> None:
    model = tiny_model("llama")
    near = tmp_path / "near.gguf"
    near.write_bytes(model.encoded())
    last = max(model.infos, key=lambda info: info.offset)
    data, weights = model.data[: last.offset], model.data[last.offset :]
    last.offset = FAR
    head = GgufParts(model.fields, model.infos, data).encoded()
    path = sparse("far.gguf", head, len(head) - len(data) + FAR, weights)
    answers = []
    for file in (near, path):
        with LLM(file, device="cpu", context=16) as llm:
            answers.append(llm.generate([1, 5, 6], max_tokens=4).tokens)
    assert answers[0] == answers[1]
