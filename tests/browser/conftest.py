"""A real Chromium for the pages; without one these tests are skipped, and say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browsing import Opened, launched
from lavapipe import lavapipe_variables

WEBGPU = ("--headless=new", "--enable-unsafe-webgpu")


@pytest.fixture(scope="session")
def running() -> Iterator[Any]:
    """Playwright, of which a process has one."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: it is in the dev extra")
    with playwright.sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def chromium(running: Any) -> Iterator[Any]:
    with launched(running, "--disable-gpu") as browser:
        yield browser


@pytest.fixture(scope="module")
def browser(running: Any) -> Iterator[Any]:
    """With WebGPU."""
    with launched(running, *WEBGPU) as browser:
        yield browser


@pytest.fixture(scope="module")
def browser_with_halves(running: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """With WebGPU on Mesa's lavapipe, which has halves and subgroups of eight lanes."""
    variables = lavapipe_variables(tmp_path_factory.mktemp("lavapipe"))
    with launched(running, *WEBGPU, variables=variables) as browser:
        yield browser


@pytest.fixture
def opened(chromium: Any) -> Iterator[Opened]:
    """A new page; whatever went wrong on it fails the test."""
    page = chromium.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
    made = Opened(page)
    page.on("console", lambda m: made.problems.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: made.problems.append(str(error)))
    page.on("request", lambda request: made.requests.append(request.url))
    yield made
    page.close()
    assert made.problems == []
    assert all(url.startswith(("file:", "data:", "blob:")) for url in made.requests)
