"""`hightide embed` with a tiny random encoder."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hightide import Embedder
from hightide.cli import main

MODEL = Path(__file__).parents[1] / "models" / "encoders" / "bert.gguf"
TEXTS = ["the cat", "a dog ran far", "naïve"]


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    with Embedder(MODEL, device="cpu") as embedder:
        return embedder.embed(TEXTS)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command; gives (exit code, stdout, stderr)."""

    def call(*arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
        given = ["hightide", "embed", MODEL, *arguments, "--device", "cpu"]
        monkeypatch.setattr(sys, "argv", list(map(str, given)))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as done:
            main()
        return int(done.value.code or 0), *capsys.readouterr()

    return call


def test_json_lines_on_stdout(run: Run, expected: np.ndarray) -> None:
    code, out, err = run(*TEXTS)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [(line["index"], line["text"]) for line in lines] == list(enumerate(TEXTS))
    np.testing.assert_allclose([line["embedding"] for line in lines], expected, atol=1e-6)
    assert "3 texts of 32 numbers each" in err


def test_lines_of_a_file_to_files(run: Run, tmp_path: Path, expected: np.ndarray) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[1:]) + "\n\n", "utf-8")
    assert run(TEXTS[0], "--file", tmp_path / "texts.txt", "--out", tmp_path / "v.npy")[:2] == (0, "")
    vectors = np.load(tmp_path / "v.npy")
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert run("--file", "-", "--out", tmp_path / "v.jsonl", stdin="\n".join(TEXTS).encode())[0] == 0
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text("utf-8").splitlines()]
    np.testing.assert_allclose([line["embedding"] for line in lines], expected, atol=1e-6)


def test_options(run: Run, tmp_path: Path) -> None:
    assert run("a " * 100, "--truncate", "--out", tmp_path / "cut.npy")[0] == 0
    assert run(TEXTS[0], "--raw", "--pooling", "cls", "--out", tmp_path / "raw.npy")[0] == 0
    assert np.linalg.norm(np.load(tmp_path / "cut.npy")) == pytest.approx(1, abs=1e-5)
    assert abs(np.linalg.norm(np.load(tmp_path / "raw.npy")) - 1) > 0.1


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "there is nothing to embed; give texts, or --file"),
        (["x", "--out", "vectors.txt"], "vectors.txt must end in .npy or .jsonl"),
        (["a " * 100], "the prompt has 102 tokens; the context holds 64"),
        (["x", "--file", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_what_goes_wrong(run: Run, arguments: list[str], says: str) -> None:
    code, out, err = run(*arguments)
    assert code == 1 and says in err and not out
