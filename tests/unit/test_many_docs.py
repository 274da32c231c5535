"""The snippets of docs/many.md run, one after the other, on the references with a tiny model."""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from test_cli_llm import write_model

PAGE = Path(__file__).parents[2] / "docs" / "many.md"


def test_the_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HIGHTIDE_DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)
    shutil.copy(write_model(tmp_path / "model.gguf"), tmp_path / "draft.gguf")
    text = PAGE.read_text("utf-8")
    snippets = re.findall(r"(?<!-->\n)```python\n(.*?)```", text, re.DOTALL)  # not those that quote an example
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for snippet in snippets:
            exec(compile(snippet, str(PAGE), "exec"), names)
    shown = capsys.readouterr().out
    assert len(snippets) == 8
    assert "0 of 39 tokens came from disk\n32 of 39 tokens came from disk\n" in shown
    assert " closed\n" in shown and "0 running, 0 waiting, " in shown
