"""Files that change while they are open: cut short, written over, replaced; and what is no file at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from flatbuffer_writer import PROGRAMS

from hightide import LLM, load
from hightide.errors import ProgramError
from hightide.formats.gguf import is_gguf, read_gguf
from hightide.formats.pte import read_program
from hightide.formats.source_file import SourceFile
from hightide.gpu.device import Device
from hightide.runtime.build import build_session
from hightide.runtime.session import Session
from hightide.tools.opened_file import open_file

MODEL = PROGRAMS.parent / "models" / "llama.gguf"


def copied(name: str | Path, folder: Path) -> Path:
    """A file of the tests as one that was written long ago."""
    path = folder / Path(name).name
    shutil.copyfile(PROGRAMS / name, path)
    os.utime(path, (1, 1))
    return path


def write_over(path: Path) -> None:
    """Other bytes, as many: as a new export to the same path may do."""
    path.write_bytes(bytes(path.stat().st_size))


def cut(path: Path) -> None:
    os.truncate(path, 8)


CHANGES = {"cut": (cut, "was changed after it was opened"), "written over": (write_over, "was written to")}
changes = pytest.mark.parametrize("change", CHANGES)


@changes
def test_bytes_of_a_changed_file_are_refused(change: str, tmp_path: Path) -> None:
    path = copied("counter.pte", tmp_path)
    source = SourceFile(path)
    assert bytes(source.read(4, 4)) == b"ET12"
    make, sentence = CHANGES[change]
    make(path)
    for blob in (source.whole(), source.whole()):
        with pytest.raises(ProgramError, match=sentence):
            blob.region(4, 4)
    with pytest.raises(ProgramError, match=sentence):
        source.check()


def test_a_file_that_is_replaced_stays_what_it_was(tmp_path: Path) -> None:
    path = copied("counter.pte", tmp_path)
    program = load(path, device="cpu")
    other = tmp_path / "other"
    other.write_bytes(b"something else")
    other.replace(path)
    with program.method() as method:
        assert method(*(np.zeros(spec.dims, spec.dtype) for spec in method.inputs))


@changes
def test_a_method_of_a_changed_program_is_not_built(change: str, tmp_path: Path) -> None:
    path = copied("symints.pte", tmp_path)
    program = load(path, device="cpu")
    make, sentence = CHANGES[change]
    make(path)
    with pytest.raises(ProgramError, match=sentence):
        method = program.method()
        method(*(np.zeros(spec.dims, spec.dtype) for spec in method.inputs))


@changes
def test_a_model_that_changes_before_its_first_answer(change: str, tmp_path: Path) -> None:
    path = copied(MODEL, tmp_path)
    with LLM(path, device="cpu", context=32) as llm:
        make, sentence = CHANGES[change]
        make(path)
        with pytest.raises(ProgramError, match=sentence):
            llm.generate([1, 2, 3], max_tokens=2)
        assert llm.tokens == []


def test_the_references_need_the_file_no_more_after_a_run(tmp_path: Path) -> None:
    path = copied(MODEL, tmp_path)
    with LLM(path, device="cpu", context=32) as llm:
        ids = llm.generate([1, 2, 3], max_tokens=2).tokens
        cut(path)
        llm.reset()
        assert llm.generate([1, 2, 3], max_tokens=2).tokens == ids


@changes
def test_tools_refuse_a_changed_file(change: str, tmp_path: Path) -> None:
    path = copied(MODEL, tmp_path)
    opened = open_file(path, device="cpu", context=32)
    make, sentence = CHANGES[change]
    make(path)
    (part,) = opened.parts
    with pytest.raises(ProgramError, match=sentence), part.session() as session:
        session.run(part.inputs_at({}))


def state_of(session: Session) -> bytes:
    return b"".join(array.tobytes() for array in session.read_state())


@changes
@pytest.mark.parametrize("on_gpu", [False, pytest.param(True, marks=pytest.mark.gpu)])
def test_a_reset_from_a_changed_file_is_refused_and_loses_nothing(
    change: str, on_gpu: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    device: Device | None = request.getfixturevalue("device") if on_gpu else None
    path = copied("llama_mqa.pte", tmp_path)
    program = load(path, device="cpu")
    graph, info = program.single_graph("forward"), program.methods["forward"]
    assert graph is not None
    dynamic = [spec.dynamic for spec in info.inputs]
    with build_session(graph, device, dynamic, [spec.name for spec in info.inputs]) as session:
        inputs = [np.ones((1, 3), np.int64), np.zeros(1, np.int64)]
        before = session.run(inputs)
        state = state_of(session)
        make, sentence = CHANGES[change]
        make(path)
        with pytest.raises(ProgramError, match=sentence):
            session.reset()
        assert state_of(session) == state
        np.testing.assert_array_equal(session.run(inputs)[0], before[0])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system")
def test_a_pipe_is_no_file_and_does_not_block(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    assert not is_gguf(pipe)
    for read in (read_gguf, read_program, load, LLM):
        with pytest.raises(ProgramError, match="not a regular file"):
            read(pipe)
