"""Saved states: what a damaged or hostile file does, and what is left of the old one when saving fails."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hightide import LLM
from hightide.cli.conversation import Conversation
from hightide.errors import HightideError, InputError, ProgramError

MODEL = Path(__file__).parents[1] / "models" / "llama.gguf"
PROMPT = [3, 17, 5, 40, 8, 21]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(MODEL, device="cpu", context=48) as llm:
        yield llm


@pytest.fixture(scope="module")
def saved(llm: LLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    llm.generate(PROMPT, max_tokens=4)
    path = tmp_path_factory.mktemp("saved") / "state"
    llm.save_state(path)
    return path


def members(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return dict(archive)


def refused(llm: LLM, path: Path, kind: type[HightideError] = HightideError) -> str:
    """The conversation stays as it was; the sentence."""
    llm.generate([9, 8, 7], max_tokens=1)
    held, before = list(llm.tokens), llm.read_pages()
    with pytest.raises(kind) as caught:
        llm.load_state(path)
    assert llm.tokens == held and "\n" not in str(caught.value)
    for a, b in zip(before, llm.read_pages(), strict=True):
        np.testing.assert_array_equal(a, b)
    return str(caught.value)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 12))])
def test_a_mutated_state_is_refused_or_the_same(seed: int, llm: LLM, saved: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    good = saved.read_bytes()
    expected = members(saved)["tokens"].tolist()
    bad = tmp_path / "bad"
    outcomes = set()
    for _ in range(150):
        data = bytearray(good)
        for _ in range(int(rng.integers(1, 4))):
            # Headers are a small part of the file, and the part that matters.
            places = [at for at in range(len(data)) if data[at : at + 2] == b"PK"] or [0]
            at = int(rng.choice(places)) + int(rng.integers(0, 160)) if rng.random() < 0.8 else rng.integers(len(data))
            at = min(int(at), len(data) - 1)
            if (kind := rng.integers(4)) == 0:
                data[at] = int(rng.integers(256))
            elif kind == 1:
                data[at : at + 4] = bytes(rng.choice([0, 0xFF, 0x7F], 4).astype(np.uint8))
            elif kind == 2:
                del data[at : at + int(rng.integers(1, 9))]
            else:
                data[at:at] = bytes(int(rng.integers(1, 9)))
        bad.write_bytes(data)
        llm.reset()
        try:
            llm.load_state(bad)
            assert llm.tokens == expected
            outcomes.add("same")
        except HightideError as error:
            assert llm.tokens == [] and "\n" not in str(error)
            outcomes.add("refused")
    assert "refused" in outcomes


def rewritten(path: Path, compression: int, **arrays: np.ndarray) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)
    return path


def test_what_is_too_large_is_refused_before_it_is_read(llm: LLM, saved: Path, tmp_path: Path) -> None:
    arrays = members(saved)
    huge = np.zeros(40_000_000, np.int8)
    files = {
        "bomb": rewritten(tmp_path / "bomb", zipfile.ZIP_DEFLATED, **arrays | {"state0": huge}),
        "tokens": rewritten(tmp_path / "tokens", zipfile.ZIP_DEFLATED, **arrays | {"tokens": huge.view(np.int64)}),
        "extra": rewritten(tmp_path / "extra", zipfile.ZIP_DEFLATED, **arrays, extra=huge),
        "dims": tmp_path / "dims",
    }
    good = saved.read_bytes()
    shape = f"{arrays['state0'].shape}, }}".encode()
    files["dims"].write_bytes(good.replace(shape + b" " * 8, shape.replace(b"(1, ", b"(1, 99999999")))
    assert files["dims"].read_bytes() != good
    for path in files.values():
        tracemalloc.start()
        refused(llm, path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 20e6


def test_types_and_dims_that_do_not_fit(llm: LLM, saved: Path, tmp_path: Path) -> None:
    arrays = members(saved)
    state = arrays["state0"]
    for changed, kind in (
        ({"tokens": arrays["tokens"][:, None]}, InputError),
        ({"tokens": arrays["tokens"].astype(np.float64)}, ProgramError),
        ({"tokens": arrays["tokens"][:-1]}, InputError),
        ({"tokens": arrays["tokens"] + 10**9}, InputError),
        ({"state0": state.astype(np.int64)}, ProgramError),
        ({"state0": state.astype(">f4")}, ProgramError),
        ({"state0": np.asfortranarray(np.repeat(state, 2, 0))}, HightideError),
        ({"state0": state[..., :-1]}, InputError),
        ({"model": arrays["model"] + 1}, InputError),
        ({"model": np.zeros((), np.int64)}, InputError),
        ({"model": np.array(["a"])}, ProgramError),
    ):
        refused(llm, rewritten(tmp_path / "state", zipfile.ZIP_STORED, **arrays | changed), kind)


def test_a_state_as_numpy_writes_it_is_read(llm: LLM, saved: Path, tmp_path: Path) -> None:
    arrays: dict[str, Any] = members(saved)
    with (tmp_path / "state").open("wb") as file:
        np.savez(file, **arrays)
    llm.load_state(tmp_path / "state")
    assert llm.tokens == arrays["tokens"].tolist()


# ---- saving


def test_saving_that_fails_leaves_the_old_state(
    llm: LLM, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    shutil.copy(saved, path)
    old = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HightideError, match=r"could not be saved to .*state: No space left on device"):
        llm.save_state(path)
    monkeypatch.undo()
    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(HightideError, match="No space left on device"):
        llm.save_state(path)
    monkeypatch.undo()

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(np.lib.format, "write_array", interrupt)
    with pytest.raises(KeyboardInterrupt):
        llm.save_state(path)
    assert path.read_bytes() == old and os.listdir(tmp_path) == ["state"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
@pytest.mark.filterwarnings("error")
def test_a_full_disk_and_no_folder(llm: LLM, tmp_path: Path) -> None:
    llm.generate(PROMPT, max_tokens=2)
    for path, says in (("/dev/full", "No space left"), (tmp_path, "directory"), (tmp_path / "no" / "state", "No such")):
        with pytest.raises(HightideError, match=f"could not be saved to .*{says}"):
            llm.save_state(path)
    assert os.listdir(tmp_path) == [] and not Path("/dev/full").is_file()


@pytest.mark.skipif(os.name != "posix", reason="links and modes of POSIX")
def test_links_and_modes_are_kept(llm: LLM, tmp_path: Path) -> None:
    llm.generate(PROMPT, max_tokens=2)
    target, link = tmp_path / "target", tmp_path / "link"
    target.touch()
    target.chmod(0o640)
    link.symlink_to(target)
    llm.save_state(link)
    assert link.is_symlink() and target.stat().st_mode & 0o777 == 0o640
    llm.load_state(link)


def test_a_state_outlives_the_folder_and_the_file_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    shutil.copy(MODEL, tmp_path / "a" / "model.gguf")
    monkeypatch.chdir(tmp_path / "a")
    with LLM("model.gguf", device="cpu") as llm:
        expected = llm.generate(PROMPT, max_tokens=4).tokens
        monkeypatch.chdir(tmp_path / "b")
        llm.save_state("state")
        llm.load_state("state")
        replacement = tmp_path / "new.gguf"
        replacement.write_bytes(b"something else")
        os.replace(replacement, tmp_path / "a" / "model.gguf")
        llm.save_state("state")
        llm.load_state("state")
        assert llm.generate(PROMPT, max_tokens=4).tokens == expected


def test_messages_are_replaced_whole(llm: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = Conversation(llm, {}, [{"role": "user", "content": "é"}])
    conversation.save(tmp_path / "talk")
    old = (tmp_path / "talk.json").read_bytes()
    conversation.messages = []

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        conversation.save(tmp_path / "talk")
    assert (tmp_path / "talk.json").read_bytes() == old
