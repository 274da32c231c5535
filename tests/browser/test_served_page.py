"""The page as `hightide serve` serves it, with a real model behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browsing import ask, check_hello, wait_for_text
from running_server import Running, running
from scripted_models import scripted_model

SCRIPTS = {
    "hello": ["Hello", " **reader**", "."],
    "think": ["<think>", "Hmm", "!", "</think>", "Because", " so"],
    "long": ["so", " on~"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("served")
    model = scripted_model(folder / "scripted.gguf", SCRIPTS, 32768)
    with running(
        folder, model, "--device", "cpu", "--name", "scripted", "--context", 32768, HIGHTIDE_API_KEY="secret"
    ) as server:
        yield server


@pytest.fixture
def page(chromium: Any, server: Running) -> Iterator[Any]:
    page = chromium.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if "Content Security Policy" in said.text else None)
    page.goto(server.url)
    page.click("#settings-open")
    page.fill("[name=key]", "secret")
    page.click("dialog >> text=Done")
    page.wait_for_selector("#model option[value=scripted]", state="attached")
    yield page
    page.close()
    assert problems == []


def test_an_answer(page: Any) -> None:
    check_hello(page)


def test_thoughts_are_shown_apart(page: Any) -> None:
    ask(page, "<|think|>")
    wait_for_text(page, "#status", "Answer finished")
    page.click("article.assistant summary")
    assert page.inner_text("article.assistant details .text") == "Hmm!"
    assert page.inner_text("article.assistant .body > .text") == "Because so"


def test_stop_ends_the_answer_at_the_server(page: Any, server: Running) -> None:
    ask(page, "<|long|>")
    wait_for_text(page, "article.assistant .text", "on~ on~")
    page.keyboard.press("Escape")
    wait_for_text(page, "#queue", "0, 0")
    assert page.inner_text("article.assistant .note") == "stopped"


def test_the_pages_files_need_no_key_and_nothing_else_does_without(server: Running) -> None:
    for path in ("/", "/page/page.js", "/page/vendor/purify.es.mjs"):
        reply = server.get(path)
        assert reply.status_code == 200 and "default-src 'none'" in reply.headers["Content-Security-Policy"]
    assert server.get("/page/../security.py").status_code in (401, 404)
    assert server.get("/page/vendor/README.md").status_code == 404
    assert server.get("/v1/models").status_code == 401 and server.get("/metrics").status_code == 401
