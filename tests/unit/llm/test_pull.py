"""`hightide pull`, with a hub that is not there: which files it asks for, and what it says when it cannot."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from typer.testing import CliRunner

from hightide.cli import app
from hightide.errors import HightideError, InputError
from hightide.llm.pull import choose_files, pull

FOLDER = ["README.md", "config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
FOLDER += ["model.safetensors.index.json", "tokenizer.json", "original/model.safetensors", "consolidated.safetensors"]
QUANTS = ["a-Q4_K_M.gguf", "a-Q8_0.gguf", "mmproj-f16.gguf", "big/b-F16-00001-of-00002.gguf"]
QUANTS += ["big/b-F16-00002-of-00002.gguf"]


def test_the_files_of_a_folder() -> None:
    chosen = choose_files("o/m", FOLDER, None)
    assert chosen == [FOLDER[1], FOLDER[2], FOLDER[3], FOLDER[4], "tokenizer.json"]


@pytest.mark.parametrize(
    "kind, chosen", [(None, QUANTS[:1]), ("q8_0", QUANTS[1:2]), ("F16", QUANTS[3:]), ("Q4_K_M", QUANTS[:1])]
)
def test_one_gguf_model_of_several(kind: str | None, chosen: list[str]) -> None:
    assert choose_files("o/m", QUANTS, kind) == chosen


@pytest.mark.parametrize("files, kind", [(["README.md"], None), (QUANTS, "Q2_K"), (["a.gguf", "b.gguf"], None)])
def test_nothing_to_choose(files: list[str], kind: str | None) -> None:
    with pytest.raises(InputError):
        choose_files("o/m", files, kind)


class Hub:
    """What is asked of the hub."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.asked = error, []  # type: ignore[var-annotated]

    def model_info(self, repo: str, revision: str | None = None, timeout: float | None = None) -> SimpleNamespace:
        if self.error is not None:
            raise self.error
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=file) for file in QUANTS])

    def snapshot_download(self, repo: str, **options: Any) -> str:
        self.asked.append((repo, options))
        return "/cache/snapshot"


def test_a_model_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub()
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: hub)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
    assert pull("o/m:F16", "main") == Path("/cache/snapshot") / QUANTS[3]
    assert hub.asked == [("o/m", {"revision": "main", "allow_patterns": QUANTS[3:]})]
    said = CliRunner().invoke(app, ["pull", "o/m"])
    assert said.exit_code == 0 and said.stdout.strip().endswith(QUANTS[0])


def test_without_a_network_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: Hub(ConnectionError("no route to host")))
    with pytest.raises(HightideError, match="o/m could not be fetched: no route to host"):
        pull("o/m")


def test_a_hub_that_is_not_there_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """The package would ask again for 25 s, and write a line each time."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{port}")
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with pytest.raises(HightideError, match=r"o/m could not be fetched: .*refused"):
        pull("o/m")
    assert not waits and not caplog.records and capsys.readouterr() == ("", "")


def test_without_the_package_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(HightideError, match=r"hightide\[hub\]"):
        pull("o/m")


@pytest.mark.parametrize("name", ["", "model", "a/b/c", "a/b:", "a b/c"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InputError, match="OWNER/MODEL"):
        pull(name)
