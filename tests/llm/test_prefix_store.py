"""Prefixes on disk: another engine finds them, and no file in the folder can do harm."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hightide import Engine
from hightide.errors import DeviceLostError, InputError
from hightide.gpu.device import Device
from hightide.llm.answer import Completion

MODELS = Path(__file__).parents[1] / "models"
MODEL = MODELS / "llama.gguf"
PROGRAM = Path(__file__).parents[1] / "conformance" / "gpt2.pte"
CONTEXT, PAGE = 96, 16
PROMPT = np.random.default_rng(1).integers(0, 100, 80).tolist()  # five pages
OTHER = np.random.default_rng(2).integers(0, 100, 80).tolist()


def opened(folder: Path, device: str | None = "cpu", **options: Any) -> Engine:
    return Engine(MODEL, device=device, **{"context": CONTEXT, "prefix_cache": folder} | options)


def answer(folder: Path, prompt: Sequence[int] = PROMPT, **options: Any) -> tuple[Completion, int]:
    """Of an engine that is opened and closed; and how many tokens it took from disk."""
    with opened(folder, **options) as engine:
        completion = engine.submit(prompt, max_tokens=8).result(60)
        return completion, engine.stats().disk_tokens


def pages(folder: Path) -> list[Path]:
    """The oldest first."""
    return sorted(folder.rglob("*.npz"), key=lambda path: path.stat().st_mtime_ns)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A folder that has the prompt, and its answer."""
    folder = tmp_path_factory.mktemp("prefixes")
    return folder, answer(folder)[0].tokens


@pytest.fixture
def copy(saved: tuple[Path, list[int]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved[0], tmp_path / "copy"))


def test_another_engine_finds_the_prompt(saved: tuple[Path, list[int]], copy: Path) -> None:
    assert len(pages(copy)) == 5  # the answer's page is not full
    completion, from_disk = answer(copy)
    assert from_disk == completion.stats.reused_tokens == len(PROMPT) - 1
    assert completion.tokens == saved[1]
    assert answer(copy, [*PROMPT[:40], *OTHER[:8]])[1] == 2 * PAGE


@pytest.fixture
def long_model(tmp_path: Path) -> Path:
    """The same model with a context of 1,024 tokens."""
    key = b"llama.context_length" + struct.pack("<I", 4)
    data = MODEL.read_bytes()
    assert key + struct.pack("<I", 256) in data
    path = tmp_path / "long.gguf"
    path.write_bytes(data.replace(key + struct.pack("<I", 256), key + struct.pack("<I", 1024)))
    return path


SCRIPT = """
import json, sys
import numpy as np
import hightide
model, folder, seed, device = sys.argv[1:]
prompt = np.random.default_rng(int(seed)).integers(0, 100, 512).tolist()
with hightide.Engine(model, device=device or None, context=576, prefix_cache=folder) as engine:
    made = engine.submit(prompt, max_tokens=40).result()
    print(json.dumps([made.tokens, engine.stats().disk_tokens, made.stats.reused_tokens]))
"""


def started(model: Path, folder: Path, seed: int = 0, device: str = "cpu") -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(model), str(folder), str(seed), device]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> list[Any]:
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and not errors, errors
    found: list[Any] = json.loads(out)
    return found


def test_another_process_finds_a_prompt_of_512_tokens(long_model: Path, tmp_path: Path) -> None:
    first, none, _ = told(started(long_model, tmp_path / "prefixes"))
    second, from_disk, reused = told(started(long_model, tmp_path / "prefixes"))
    assert none == 0 and from_disk == reused == 511
    assert first == second and len(pages(tmp_path / "prefixes")) == (512 + 39) // PAGE


def test_processes_at_once(long_model: Path, tmp_path: Path) -> None:
    """They save the same pages at the same time, and find each other's."""
    folder = tmp_path / "prefixes"
    made = [told(process) for process in [started(long_model, folder, n % 2) for n in range(3)]]
    assert made[0][0] == made[2][0] != made[1][0]
    assert told(started(long_model, folder, 1))[:2] == [made[1][0], 511]
    assert len(pages(folder)) == 2 * ((512 + 39) // PAGE)
    assert not list(folder.rglob(".*"))  # nothing half written


@pytest.mark.gpu
def test_on_the_gpu(device: Device, tmp_path: Path) -> None:
    for reproducible in (False, True):
        for kv in ("f32", "f16"):
            options: dict[str, Any] = {"device": None, "reproducible": reproducible, "kv": kv}
            (first, none), (second, found) = (answer(tmp_path, **options) for _ in range(2))
            assert (none, found) == (0, len(PROMPT) - 1) and first.tokens == second.tokens
    assert len(list(tmp_path.iterdir())) == 4  # what is computed differently is kept apart
    assert answer(tmp_path, device="cpu")[1] == 0


# ---- what is in the folder


def damage(path: Path, how: str, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes())
    if how == "cut short":
        del data[int(rng.integers(len(data))) :]
    elif how == "changed":
        for at in rng.integers(0, len(data), 20):
            data[at] ^= 0xFF
    elif how == "empty":
        data.clear()
    elif how == "of another prompt":
        data = bytearray(next(other for other in path.parent.iterdir() if other != path).read_bytes())
    path.unlink()
    if how == "a folder":
        path.mkdir()
    elif how != "gone":
        path.write_bytes(data)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("how", ["cut short", "changed", "empty", "of another prompt", "a folder", "gone"])
def test_damaged_pages_are_read_anew(how: str, saved: tuple[Path, list[int]], copy: Path) -> None:
    rng = np.random.default_rng(3)
    in_order = list(reversed(pages(copy)))  # the last page of a prompt is the oldest
    for at in (0, 2):
        damage(in_order[at], how, rng)
        completion, from_disk = answer(copy)
        assert completion.tokens == saved[1] and from_disk == at * PAGE
        if how != "a folder":  # it was replaced
            assert answer(copy)[1] == len(PROMPT) - 1
        else:
            in_order[at].rmdir()
            answer(copy)


def test_another_model_has_its_own_pages(saved: tuple[Path, list[int]], copy: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    data = bytearray(MODEL.read_bytes())
    data[-1] ^= 1
    other.write_bytes(data)
    with Engine(other, device="cpu", context=CONTEXT, prefix_cache=copy) as engine:
        engine.submit(PROMPT, max_tokens=1).result(60)
        assert engine.stats().disk_tokens == 0
    ours, its = sorted(copy.iterdir(), key=lambda path: path.name != pages(saved[0])[0].parent.name)
    for path in its.iterdir():  # as if it were ours
        shutil.copy(path, ours / path.name)
    completion, from_disk = answer(copy)
    assert completion.tokens == saved[1] and from_disk == 0
    assert answer(copy, context=CONTEXT // 2, prompt=PROMPT[:40])[1] == 0  # rotary tables may depend on the context


def test_the_folder_keeps_to_its_size(tmp_path: Path) -> None:
    answer(tmp_path)
    nbytes = pages(tmp_path)[0].stat().st_size
    most = 9 * nbytes
    mine = tmp_path / "mine.npz"
    mine.write_bytes(bytes(10**6))
    answer(tmp_path, OTHER, prefix_cache_size=most)
    kept = pages(tmp_path / next(path for path in os.listdir(tmp_path) if path != mine.name))
    assert 5 < len(kept) < 9 and sum(path.stat().st_size for path in kept) <= most
    assert mine.exists()  # no file of ours
    assert answer(tmp_path, OTHER)[1] == len(OTHER) - 1
    assert 0 < answer(tmp_path, prefix_cache_size=most)[1] < len(PROMPT) - 1  # the first pages, not the last
    old, young = (kept[0].parent / f".{kept[0].name}.0123abc{n}" for n in range(2))
    for path in (old, young):  # processes that were killed, or are writing
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    answer(tmp_path, [5, *PROMPT])
    assert not old.exists() and young.exists()


def test_what_is_used_stays(tmp_path: Path) -> None:
    for prompt in (PROMPT, OTHER, PROMPT):
        answer(tmp_path, prompt)
    nbytes = pages(tmp_path)[0].stat().st_size
    answer(tmp_path, [7, *PROMPT[:40]], prefix_cache_size=10 * nbytes)
    assert answer(tmp_path)[1] == len(PROMPT) - 1
    assert answer(tmp_path, OTHER)[1] < len(OTHER) - 1


# ---- saving


def test_pages_are_saved_while_there_is_nothing_to_do(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        engine.submit(PROMPT, max_tokens=1).result(60)
        until = time.monotonic() + 30
        while len(pages(tmp_path)) < 5 and time.monotonic() < until:
            time.sleep(0.01)
        before = [path.stat().st_ino for path in pages(tmp_path)]
        assert len(before) == 5
    assert [path.stat().st_ino for path in pages(tmp_path)] == before  # none was written again


def test_closing_amid_an_answer_saves_what_was_read(saved: tuple[Path, list[int]], tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        next(engine.submit(PROMPT))
    completion, from_disk = answer(tmp_path)
    assert from_disk == len(PROMPT) - 1 and completion.tokens == saved[1]


def test_short_memory(saved: tuple[Path, list[int]], copy: Path) -> None:
    """Pages come from disk as long as there are free ones; answers are the same."""
    with opened(copy, max_sequences=4, kv_memory=CONTEXT // PAGE * 8192) as engine:
        pool = engine.stats().pages
        prompts = [PROMPT, OTHER, PROMPT[:50], [*PROMPT[:40], *OTHER[:30]]] * 2
        together = engine.generate(prompts, max_tokens=8)
        assert engine.stats().disk_tokens
    assert pool < 4 * CONTEXT // PAGE
    with Engine(MODEL, device="cpu", context=CONTEXT) as engine:
        for prompt, made in zip(prompts, together, strict=True):
            assert engine.submit(prompt, max_tokens=8).result(60).tokens == made.tokens


def saves_nothing(folder: Path, says: str) -> None:
    """One warning for several prompts, and all answers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with opened(folder) as engine:
            for prompt in (OTHER, [9, *OTHER], OTHER):
                assert len(engine.submit(prompt, max_tokens=8).result(60).tokens) == 8
                time.sleep(0.1)
    (warning,) = [str(warning.message) for warning in caught]
    assert re.search(says, warning) and "\n" not in warning


def test_a_full_disk(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = pages(copy)
    monkeypatch.setattr(os, "fsync", full)
    saves_nothing(copy, "no more prefixes are saved to .*: .*No space left on device")
    monkeypatch.undo()
    assert sorted(pages(copy)) == sorted(before) and not list(copy.rglob(".*"))
    assert answer(copy)[1] == len(PROMPT) - 1


def test_a_folder_that_cannot_be_written(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    if getattr(os, "geteuid", lambda: 0)() == 0:  # who may write everywhere
        monkeypatch.setattr("hightide.llm.state_file.replacing", refused)
        monkeypatch.setattr(os, "utime", refused)
    else:
        pages(copy)[0].parent.chmod(0o555)
    assert answer(copy)[1] == len(PROMPT) - 1  # it can be read
    saves_nothing(copy, "no more prefixes are saved to .*: .*Permission denied")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="not a folder"):
        opened(tmp_path / "file")
    saves_nothing(tmp_path / "file" / "folder", "no more prefixes are saved to .*: Not a directory")


def test_a_warning_that_is_an_error_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with opened(tmp_path / "file" / "folder") as engine:
            for _ in range(3):
                assert len(engine.submit(OTHER, max_tokens=8).result(60).tokens) == 8


def test_a_device_that_is_lost_while_pages_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as engine:
        read, lost = engine.decoder.read_pages, [DeviceLostError("lost")]

        def once(*args: Any) -> list[np.ndarray]:
            if lost:
                raise lost.pop()
            return read(*args)

        monkeypatch.setattr(engine.decoder, "read_pages", once)
        first = engine.submit(PROMPT, max_tokens=8).result(60).tokens
        while lost:
            time.sleep(0.01)
        assert engine.submit(PROMPT, max_tokens=8).result(60).tokens == first
    assert len(pages(tmp_path)) == 5


def test_pages_of_numbers_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as engine:
        read = engine.decoder.read_pages

        def odd(*args: Any) -> list[np.ndarray]:
            arrays = read(*args)
            arrays[0][0, 3] = np.nan
            return arrays

        monkeypatch.setattr(engine.decoder, "read_pages", odd)
        engine.submit(PROMPT, max_tokens=1).result(60)
    assert len(pages(tmp_path)) == 4


def test_programs_in_turns_have_none(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Engine(PROGRAM, device="cpu", prefix_cache=tmp_path) as engine:
            turns = engine.decoder.page == engine.decoder.context
            engine.submit([1, 2, 3], max_tokens=2).result(60)
    assert turns and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prefix_cache": 3}, "prefix_cache must be the path"),
        ({"prefix_cache_size": "much"}, "prefix_cache_size must be bytes"),
        ({"prefix_cache_size": 100}, "prefix_cache_size must be at least .* a page, not 100"),
    ],
)
def test_options_are_checked(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        opened(tmp_path, **options)
