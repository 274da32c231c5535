"""A real Chromium for the pages; without one these tests are skipped, and say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browsing import Opened, launched
from lavapipe import lavapipe_variables

WEBGPU = ("--headless=new", "--enable-unsafe-webgpu")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    with launched("--disable-gpu") as browser:
        yield browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """With WebGPU."""
    with launched(*WEBGPU) as browser:
        yield browser


@pytest.fixture(scope="module")
def browser_with_halves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """With WebGPU on Mesa's lavapipe, which has halves and subgroups of eight lanes."""
    with launched(*WEBGPU, variables=lavapipe_variables(tmp_path_factory.mktemp("lavapipe"))) as browser:
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
