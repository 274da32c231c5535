"""Captured output in docs: filled, checked, and current."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def load_script() -> Any:
    spec = importlib.util.spec_from_file_location("capture_docs", ROOT / "scripts" / "capture_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["capture_docs"] = module
    spec.loader.exec_module(module)
    return module


capture = load_script()
DOCUMENT = """before
<!-- captured: hightide one -->
```text
old
```
between
<!-- captured-masked: hightide two -->
```
$ hightide two
took 1.5 ms for 12 ops
```
<!-- captured: has no block -->
after
"""


def outputs(command: str) -> str:
    return {"hightide one": "new  \n", "hightide two": "took 27 s   for 3 ops\n"}[command]


def test_blocks_are_filled() -> None:
    filled = capture.update(DOCUMENT, outputs)
    assert "```text\n$ hightide one\nnew\n```" in filled and "took 27 s   for 3 ops" in filled
    assert filled.startswith("before\n") and filled.endswith("after\n") and "old" not in filled
    assert capture.update(filled, outputs) == filled
    assert capture.check(Path("x.md"), filled, outputs) == []


def test_a_stale_block_is_named() -> None:
    (difference,) = capture.check(Path("x.md"), DOCUMENT, outputs)
    assert difference.command == "hightide one" and "+new" in difference.diff


def test_masks_leave_the_words() -> None:
    changed = DOCUMENT.replace("took 1.5 ms", "needed 1.5 ms")
    assert [d.command for d in capture.check(Path("x.md"), changed, outputs)] == ["hightide one", "hightide two"]


def test_a_command_runs_in_the_root_with_both_streams() -> None:
    assert capture.run_command("ls README.md; echo oops >&2") == "README.md\noops\n"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_quoted_files_are_current(path: Path) -> None:
    text = path.read_text("utf-8")
    assert capture.update_files(text) == text, "a file that it quotes has changed: run scripts/capture_docs.py"


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_docs_are_current(path: Path) -> None:
    """On a software adapter, as the docs were made: routes differ on others."""
    text = path.read_text()
    if not capture.MARKER.search(text):
        pytest.skip("nothing captured in it")
    from hightide.gpu.device import adapters

    if not any(adapter.kind == "CPU" for adapter in adapters()[:1]):
        pytest.skip("the best adapter is not the software one that the docs were made on")
    stale = capture.check(path, text, capture.run_command)
    assert not stale, "\n".join(f"{d.command}\n{d.diff}" for d in stale)
