"""The snippets of docs/many.md and docs/guide/structured.md run, one after the other, on the references with a tiny
model."""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from test_cli_llm import write_model

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHTIDE_DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)
    shutil.copy(write_model(tmp_path / "model.gguf"), tmp_path / "draft.gguf")


def run_snippets(page: Path) -> int:
    """How many there are."""
    text = page.read_text("utf-8")
    snippets = re.findall(r"(?<!-->\n)```python\n(.*?)```", text, re.DOTALL)  # not those that quote an example
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for snippet in snippets:
            exec(compile(snippet, str(page), "exec"), names)
    return len(snippets)


def test_the_snippets_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_snippets(DOCS / "many.md") == 10
    shown = capsys.readouterr().out
    assert "0 of 39 tokens came from disk\n32 of 39 tokens came from disk\n" in shown
    assert " closed\n" in shown and "0 running, 0 waiting, " in shown


def test_the_snippets_of_structured_answers_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_snippets(DOCS / "guide" / "structured.md") == 1
    integers, anything, place, choice, items = capsys.readouterr().out.splitlines()
    assert integers[0] == "[" and anything[0] == "{" and place[0].isupper() and items[0] in "ab("
    assert choice in ("yes", "no", "not sure")
