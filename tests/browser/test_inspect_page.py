"""The page of `hightide inspect --html` in a real browser: clicked, typed into, zoomed, narrow and dark."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from browsing import Opened

from hightide.tools.inspect.file_report import inspect_file
from hightide.tools.inspect.inspect_page import write_page
from hightide.tools.inspect.planning import target_of

TESTS = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A deep model, an encoder without layers to fold, methods of nine parts and of two, one without any."""
    folder, made = tmp_path_factory.mktemp("pages"), {}
    files = {
        "deep": TESTS / "models" / "gemma3_27b.gguf",
        "bert": TESTS / "conformance" / "bert.pte",
        "parts": TESTS / "conformance" / "llama_nokv.pte",
        "two": TESTS / "conformance" / "partial.pte",
        "none": TESTS / "conformance" / "wide.pte",
    }
    for name, path in files.items():
        inspection = inspect_file(path, target_of(None), fused=name != "parts")
        made[name] = folder / f"{name}.html"
        write_page(made[name], inspection, [p for parts in inspection.parts.values() for p in parts], None)
    return made


def panel(page: Any) -> str:
    return str(page.inner_text("#panel"))


def transform(page: Any) -> tuple[float, float, float]:
    numbers = re.findall(r"-?[\d.]+(?:e-?\d+)?", page.get_attribute("#view", "transform"))
    x, y, k = map(float, numbers)
    return x, y, k


def node_named(page: Any, text: str) -> Any:
    return page.locator(".node", has=page.locator(f"text:text-is('{text}')")).first


def test_a_click_opens_a_layer_and_an_op_says_everything(opened: Opened, pages: dict[str, Path]) -> None:
    page = opened.goto(pages["deep"])
    assert page.locator(".node.folded").count() > 60
    assert "live integers" in panel(page).lower() and "S - keep" in panel(page)
    before = page.locator(".node").count()
    page.click(".node[data-node=g0]")
    assert page.locator(".node").count() > before + 5
    node_named(page, "rope_attend").click()
    text = panel(page)
    assert "hightide.rope_attend.default" in text
    assert "[1, S, 2, 32]" in text and "[1, 1, 2, 32]" in text and "[1, 128, 2, 32]" in text  # live, here, max
    assert "k_cache" in text and "= pos" in text and "route" in text
    assert page.locator("path.edge.near").count() >= 2
    page.click("#panel details summary")
    page.wait_for_selector("#panel details pre span")  # it is filled in when the browser says that it was opened
    source = page.inner_text("#panel details pre")
    assert "fn main" in source and source.startswith("1")


def test_what_goes_wrong_on_a_page_is_seen(opened: Opened) -> None:
    opened.page.set_content("<script>console.error('said'); throw new Error('thrown')</script>")
    opened.page.wait_for_function("true")  # what happened before has been told by then
    assert sorted(opened.problems) == ["said", "thrown"]
    opened.problems.clear()


def test_dims_follow_the_level(opened: Opened, pages: dict[str, Path]) -> None:
    page = opened.goto(pages["deep"])
    node_named(page, "embedding").click()
    assert "[1, 1, 32]" in panel(page)
    page.fill("#panel input[data-symbol=S]", "77")
    page.keyboard.press("Tab")
    assert "[1, 77, 32]" in panel(page) and "Plans are in this page for" in panel(page)
    page.select_option("#level", label="S=128, pos=0, keep=1")
    assert "[1, 128, 32]" in panel(page) and "FLOPs" in panel(page)


def test_zooming_and_moving(opened: Opened, pages: dict[str, Path]) -> None:
    page = opened.goto(pages["bert"])
    first = transform(page)
    page.click("#in")
    assert transform(page)[2] == pytest.approx(first[2] * 1.25, rel=1e-3)
    page.keyboard.press("-")
    assert transform(page)[2] == pytest.approx(first[2], rel=1e-3)
    page.mouse.move(300, 300)
    page.mouse.wheel(0, -400)
    page.wait_for_function(
        f"document.getElementById('view').getAttribute('transform').indexOf('scale({first[2]})') < 0"
    )
    assert transform(page)[2] > first[2]
    moved = transform(page)
    page.mouse.move(60, 700)
    page.mouse.down()
    page.mouse.move(160, 640, steps=4)
    page.mouse.up()
    assert transform(page)[0] == pytest.approx(moved[0] + 100, abs=1) and transform(page)[1] < moved[1]
    page.click("#fit")
    box = page.locator("#view").bounding_box()
    assert box["height"] < 800 and box["width"] < 900


def test_the_keyboard_is_enough(opened: Opened, pages: dict[str, Path]) -> None:
    page = opened.goto(pages["deep"])
    page.focus("#picture")
    page.keyboard.press("ArrowDown")  # the first node
    seen = []
    for _ in range(3):
        page.keyboard.press("ArrowDown")
        seen.append(page.evaluate("document.activeElement.dataset.node"))
    assert len(set(seen)) == 3 and all(seen)
    page.keyboard.press("Enter")
    if page.locator(".group").count() == 0:  # an op was reached, not a layer
        assert page.locator(".node.chosen").count() == 1
    page.keyboard.press("/")
    page.keyboard.type("rope_attend")
    assert page.inner_text("#found") == "62 found"
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.inner_text("#found") == "2 of 62" and "rope_attend" in panel(page)
    page.keyboard.press("Escape")
    assert "GGUF model, gemma3" in panel(page)


def test_no_two_nodes_are_drawn_on_each_other(opened: Opened, pages: dict[str, Path]) -> None:
    for name in ("deep", "bert"):
        page = opened.goto(pages[name])
        if page.is_visible("#layers"):
            page.click("#layers")
        overlapping = page.evaluate(
            """() => {
                const boxes = [...drawn.nodes.entries()];
                const bad = [];
                for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
                    const [a, p] = boxes[i], [b, q] = boxes[j];
                    if (Math.abs(p.x - q.x) < (p.w + q.w) / 2 && p.y < q.y + q.h && q.y < p.y + p.h) bad.push([a, b]);
                }
                return bad;
            }"""
        )
        assert overlapping == []


def test_several_parts_and_none(opened: Opened, pages: dict[str, Path]) -> None:
    page = opened.goto(pages["parts"])
    assert page.locator("#part option").count() == 1 + 9  # the method itself, then its parts
    page.select_option("#part", "3")
    assert page.locator(".node").count() >= 4
    page = opened.goto(pages["none"])
    assert page.locator(".node").count() > 5
    node_named(page, "cumsum.out").click()
    assert "runs on NumPy" in panel(page)


def test_parts_are_connected_through_what_runs_on_numpy(opened: Opened, pages: dict[str, Path]) -> None:
    page = opened.goto(pages["two"])
    edges = page.evaluate("drawn.edges.map((e) => [e.source, e.target])")
    way = ["i0", *(f"n{n}" for n in range(9))]
    assert all([source, target] in edges for source, target in pairwise(way)) and len(edges) == 9 + 3  # outputs
    node_named(page, "part forward/1").click()
    assert "instruction 5, runs on the adapter" in panel(page)
    page.click("#open-part")
    assert page.input_value("#part") == "2" and node_named(page, "_softmax").count() == 1


def test_colours_and_themes(opened: Opened, pages: dict[str, Path]) -> None:
    page = opened.goto(pages["bert"])
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light
    page.emulate_media(color_scheme="dark")
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.select_option("#colour", "flops")
    widths = {bar.get_attribute("width") for bar in page.locator(".node .bar").all()}
    assert len(widths) > 3  # bars as long as the share of the work


def test_a_narrow_window(opened: Opened, pages: dict[str, Path]) -> None:
    page = opened.goto(pages["deep"])
    page.set_viewport_size({"width": 380, "height": 700})
    page.reload()
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    node_named(page, "tokens").click()
    assert "[1, S]" in panel(page)
