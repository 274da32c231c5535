"""A page in the browser, and what it said."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass
class Opened:
    """A page, with everything that its console, its script and its network said."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def goto(self, path: Path) -> Any:
        self.page.goto(path.as_uri())
        return self.page


@contextmanager
def launched(running: Any, *arguments: str, variables: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A real Chromium, with these variables besides its own; without one the test is skipped, and says so."""
    path = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if path is None:
        pytest.skip("no Chromium: scripts/ensure-chromium.sh installs one")
    environment = {**os.environ, **(variables or {})}
    browser = running.chromium.launch(executable_path=path, args=["--no-sandbox", *arguments], env=environment)
    yield browser
    browser.close()


def ask(page: Any, text: str) -> None:
    """Send a message on the chat page."""
    page.fill("#question", text)
    page.keyboard.press("Enter")


def check_hello(page: Any) -> None:
    """The answer of a scripted model is there, and its Markdown is shown as such."""
    ask(page, "<|hello|>")
    wait_for_text(page, "#status", "Answer finished: 3 tokens")
    assert page.inner_text("article.assistant .text") == "Hello reader."
    assert page.inner_text("article.assistant strong") == "reader"


def wait_for_text(page: Any, selector: str, text: str) -> None:
    """Until an element has this text in it; on pages that allow no script from outside, too."""
    page.locator(selector).filter(has_text=text).first.wait_for(state="attached")
