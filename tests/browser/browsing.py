"""A page in the browser, and what it said."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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


def wait_for_text(page: Any, selector: str, text: str) -> None:
    """Until an element has this text in it; on pages that allow no script from outside, too."""
    page.locator(selector).filter(has_text=text).first.wait_for(state="attached")
