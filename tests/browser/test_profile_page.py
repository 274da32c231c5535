"""The page of `hightide profile --html` in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import Opened
from schedules import PROGRAMS

from hightide.gpu.device import Device
from hightide.tools.profile import profile_file

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def profile_page(device: Device, tmp_path_factory: pytest.TempPathFactory) -> Path:
    measured = profile_file(PROGRAMS / "llama_gqa.pte", [{"S": 17, "pos": 0}, {"S": 1, "pos": 40}], runs=2)
    path = tmp_path_factory.mktemp("profile") / "profile.html"
    path.write_text(measured.html(), "utf-8")
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
