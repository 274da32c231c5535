"""The chat page of an export: the served page's own, with the engine in it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import ask, check_hello, wait_for_text
from schedules import PROGRAMS, error_of_range, steps
from scripted_models import scripted_model
from static_host import Host, hosting
from web_engine import engine_of

from hightide.web.export_file import export_model, export_program

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("webgpu")]
SCRIPTS = {"hello": ["Hello", " **reader**", "."], "long": ["so", " on~"]}
EXAMPLE = Path(__file__).parents[2] / "examples" / "web" / "index.html"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("page")
    # A page that is slow to stop a long answer has room for the next prompt, in which every letter is a token.
    model = scripted_model(tmp_path_factory.mktemp("model") / "scripted.gguf", SCRIPTS, context=8192)
    export_model(model, folder)
    with hosting(folder) as host:
        yield host


@pytest.fixture
def page(browser: Any, host: Host) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 390, "height": 780})  # of a phone
    page = context.new_page()
    page.set_default_timeout(120_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    page.goto(host.url)
    wait_for_text(page, "#status", "Ready on")
    yield page
    context.close()
    assert problems == []


def test_an_answer(page: Any) -> None:
    check_hello(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_stop_and_ask_again(page: Any) -> None:
    ask(page, "<|long|>")
    page.wait_for_function("document.querySelector('article.assistant .text')?.innerText.length > 20")
    page.click("#stop")
    wait_for_text(page, "#status", "Stopped")
    ask(page, "<|hello|>")
    wait_for_text(page, "#status", "Answer finished: 3 tokens")


def test_nobody_is_asked_for_a_key(page: Any) -> None:
    page.click("#settings-open")
    assert not page.is_visible("[name=key]")
    page.fill("[name=max_tokens]", "1")
    page.click("dialog >> text=Done")
    ask(page, "<|hello|>")
    wait_for_text(page, "#status", "Answer finished: 1 tokens")


def test_without_a_network(page: Any, host: Host) -> None:
    page.evaluate("navigator.serviceWorker.ready")
    page.wait_for_function("async () => (await (await caches.open('hightide')).keys()).length > 20")
    host.down = True
    try:
        page.reload()
        wait_for_text(page, "#status", "Ready on")
        ask(page, "<|hello|>")
        wait_for_text(page, "#status", "Answer finished: 3 tokens")
    finally:
        host.down = False


def test_the_command_serves_the_folder(browser: Any, tmp_path: Path) -> None:
    model = scripted_model(tmp_path / "scripted.gguf", SCRIPTS)
    command = [sys.executable, "-m", "hightide", "web", str(model), "--open"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "BROWSER": "true"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        url = next(found[0] for line in running.stderr if (found := re.search(r"http://\S+/", line)))
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.goto(url)
        wait_for_text(page, "#status", "Ready on")
        page.close()
        running.send_signal(signal.SIGINT)
        assert running.wait(20) in (0, 130)


def test_the_example_of_a_classifier(browser: Any, tmp_path: Path) -> None:
    export_program(PROGRAMS / "resnet18.pte", tmp_path / "model", at=["S=1"])
    (tmp_path / "index.html").write_text(EXAMPLE.read_text())
    picture = tmp_path / "picture.png"
    with hosting(tmp_path) as host:
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.goto(host.url)
        wait_for_text(page, "#said", "Ready on")
        page.screenshot(path=picture)
        page.set_input_files("#file", str(picture))
        wait_for_text(page, "#said", "Class")
        page.close()


def test_an_image_classifier_is_right(browser: Any, tmp_path: Path) -> None:
    runs = list(steps("resnet18"))
    dims = sorted({inputs[0].shape for _, inputs, _ in runs})
    export_program(PROGRAMS / "resnet18.pte", tmp_path, at=[f"S={n},T={h},U={w}" for n, _, h, w in dims])
    assert len(json.loads((tmp_path / "plan.json").read_text())["variants"][0]["session"]["levels"]) == len(dims)
    with engine_of(browser, tmp_path) as engine:
        engine.load_program()
        for _, inputs, expected in runs:
            for got, want in zip(engine.forward(inputs, expected), expected, strict=True):
                assert error_of_range(got, want) < 1e-4
