"""The page of `hightide profile --html` in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import Opened
from steady import steady_profile

from hightide.gpu.device import Device

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def profile_page(device: Device, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "profile.html"
    path.write_text(steady_profile(runs=2).html(), "utf-8")
    return path


def test_a_click_tells_about_a_dispatch(opened: Opened, profile_page: Path) -> None:
    page = opened.goto(profile_page)
    assert page.locator("#levels button").count() == 2
    first = page.inner_text("body")
    page.locator("svg .mark").first.click()
    assert "share" in page.inner_text("#details") and "time" in page.inner_text("#details")
    page.locator("#levels button").nth(1).click()
    assert page.inner_text("body") != first


def test_a_narrow_window(opened: Opened, profile_page: Path) -> None:
    page = opened.goto(profile_page)
    page.set_viewport_size({"width": 380, "height": 700})
    page.reload()
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
