"""What the page of a profile does when it is used: zooming, panels, sorting, dark and light, by mouse and by keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from browsing import Opened
from steady import steady_profile

from hightide.gpu.device import Device
from hightide.tools.profile import Profile

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def measured(device: Device) -> Profile:
    return steady_profile()


@pytest.fixture
def page(opened: Opened, measured: Profile, tmp_path: Path) -> Any:
    path = tmp_path / "profile.html"
    path.write_text(measured.html(), "utf-8")
    return opened.goto(path)


def widths(page: Any) -> list[float]:
    return [float(w) for w in page.locator("#flame rect").evaluate_all("all => all.map(r => r.getAttribute('width'))")]


def test_the_flame_is_as_wide_as_time_is_long_and_zooms(page: Any, measured: Profile) -> None:
    level = measured.levels[0]
    whole, first, *_ = widths(page)
    families: dict[str, float] = {}
    for dispatched in level.dispatches:
        families[dispatched.family] = families.get(dispatched.family, 0.0) + dispatched.seconds
    name, seconds = max(families.items(), key=lambda item: item[1])
    assert first / whole == pytest.approx(seconds / level.gpu_seconds, rel=1e-3)
    assert page.locator("#flame rect").nth(1).get_attribute("aria-label").startswith(f"{name}: ")
    before = widths(page)
    page.locator("#flame rect").nth(1).click()
    assert widths(page)[1] == whole and page.inner_text("#details h3") == name
    page.keyboard.press("Enter")  # what was zoomed into has the focus, and zooms out again
    assert widths(page) == before
    page.locator("#flame rect").nth(1).focus()
    page.keyboard.press(" ")
    assert widths(page)[1] == whole


def test_a_dispatch_on_the_timeline_tells_its_dims_and_workgroups(page: Any, measured: Profile) -> None:
    marks = page.locator("#timeline rect[aria-label]")
    before = marks.first.bounding_box()["width"]
    for _ in range(6):
        page.click("#in")
    page.locator("#timeline").focus()
    page.keyboard.press("ArrowRight")
    labels = marks.evaluate_all("all => all.map(mark => mark.getAttribute('aria-label').split(':')[0])")
    routes = {dispatched.route for dispatched in measured.levels[0].dispatches}
    at = next(n for n, label in enumerate(labels) if label in routes)
    marks.nth(at).click()
    panel = page.inner_text("#details")
    assert "live dims" in panel and "workgroups" in panel and labels[at] in panel
    for _ in range(8):
        page.click("#out")
    assert marks.first.bounding_box()["width"] == pytest.approx(before)
    box = page.locator("#timeline").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    page.mouse.wheel(0, -400)
    page.wait_for_function(
        "before => document.querySelector('#timeline rect').getBoundingClientRect().width != before", arg=before
    )


def test_the_roofline_has_every_route_that_computes(page: Any, measured: Profile) -> None:
    routes = [group for group in measured.levels[0].by_route() if group.cost.flops and group.cost.bytes]
    circles = page.locator("#roofline circle")
    assert circles.count() == len(routes)
    circles.first.click(force=True)
    assert page.inner_text("#details h3") == f"{routes[0].name.removesuffix('.default')} · {routes[0].route}"


def test_the_table_sorts(page: Any) -> None:
    def column(n: int) -> list[str]:
        cells = page.locator(f"#table tbody td:nth-child({n})")
        return [text.strip() for text in cells.all_inner_texts()]

    page.locator("#table th button").nth(4).click()
    calls = [int(text) for text in column(5)]
    assert calls == sorted(calls, reverse=True) and len(calls) > 3
    page.locator("#table th button").nth(0).click()
    assert column(1) == sorted(column(1))
    page.locator("#table tbody tr").first.click()
    assert page.inner_text("#details h3").startswith(column(1)[0])


def test_levels_and_themes(page: Any, measured: Profile) -> None:
    tabs = page.locator("#levels button")
    assert [tab.strip() for tab in tabs.all_inner_texts()] == [level.name for level in measured.levels]
    tabs.nth(1).click()
    assert tabs.nth(1).get_attribute("aria-selected") == "true"
    assert re.search(r"\d+% of the time is", page.inner_text("#finding"))

    def back() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = back()
    page.click("#theme")
    assert back() != light
    page.click("#theme")
    assert back() == light
