"""Pictures of the HTML pages for docs/: `python scripts/make_screenshots.py`, with a Chromium and the dev extra."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SIZE = {"width": 1200, "height": 720}


def open_layer(page: Page) -> None:
    """One layer of the model, one op of it, its kernel's source."""
    page.click(".node[data-node=g0]")
    page.keyboard.press("/")
    page.keyboard.type("attend")
    page.keyboard.press("Enter")
    page.click("#panel details summary")


def show_costs(page: Page) -> None:
    """The whole model, bars as long as the bytes that an op moves."""
    page.select_option("#colour", "bytes")
    page.click("#layers")


def talk(browser: Browser, folder: Path) -> None:
    """The default model answers on the page of a server."""
    up = folder / "up"
    server = subprocess.Popen([sys.executable, "-m", "hightide", "serve", "--port", "0", "--ready-file", up])
    try:
        while not up.exists():
            assert server.poll() is None
            time.sleep(0.1)
        page = browser.new_page(viewport={**SIZE, "height": 800}, color_scheme="light")
        page.goto(up.read_text().strip())
        ask(page, "Write a Python function that adds two numbers.")
        page.screenshot(path=ROOT / "docs" / "server-page.png")
    finally:
        server.terminate()
        server.wait()


def talk_alone(browser: Browser) -> None:
    """The default model answers in the page itself."""
    command = [sys.executable, "-m", "hightide", "web", "default", "--open"]
    with subprocess.Popen(command, env={**os.environ, "BROWSER": "true"}, stderr=subprocess.PIPE, text=True) as web:
        assert web.stderr is not None
        url = next(found[0] for line in web.stderr if (found := re.search(r"http://\S+/", line)))
        page = browser.new_page(viewport={"width": 900, "height": 560}, color_scheme="light")
        page.goto(url)
        page.wait_for_selector("#status:has-text('Ready on')", state="attached", timeout=600_000)
        ask(page, "What is the capital of France?")
        page.screenshot(path=ROOT / "docs" / "web-page.png")
        web.terminate()


def ask(page: Page, question: str) -> None:
    page.click("#settings-open")
    page.fill("[name=temperature]", "0")
    page.click("dialog >> text=Done")
    page.fill("#question", question)
    page.keyboard.press("Enter")
    page.wait_for_selector("#status:has-text('Answer finished')", state="attached", timeout=600_000)


def main() -> int:
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        print("no Chromium: scripts/ensure-chromium.sh installs one", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as running:
        html = Path(folder) / "model.html"
        subprocess.run([sys.executable, "-m", "hightide", "inspect", "default", "--html", html], check=True, cwd=ROOT)
        browser = running.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        for scheme, act in (("light", open_layer), ("dark", show_costs)):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)
            page.goto(html.as_uri())
            act(page)
            page.screenshot(path=ROOT / "docs" / f"inspect-{scheme}.png")
        command = [sys.executable, "-m", "hightide", "profile", "default", "--html", html]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        page = browser.new_page(viewport={**SIZE, "height": 1000}, color_scheme="light")
        page.goto(html.as_uri())
        page.click("#levels button:nth-child(2)")
        page.screenshot(path=ROOT / "docs" / "profile.png")
        talk(browser, Path(folder))
        browser.close()
        webgpu = ["--no-sandbox", "--headless=new", "--enable-unsafe-webgpu"]
        talk_alone(running.chromium.launch(executable_path=found, args=webgpu))
    return 0


if __name__ == "__main__":
    sys.exit(main())
