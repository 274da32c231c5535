"""Engines in one headless Chromium: a page for each, served from this machine, and the time that its answers take."""

from __future__ import annotations

import io
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from hightide.errors import HightideError
from hightide.tools.bench.samples import TimeSample
from peerbench.peer import PeerError

PAGES = Path(__file__).parent / "web"
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = ("--headless=new", "--no-sandbox", "--enable-unsafe-webgpu")
# How long hightide's worker takes to encode and submit a step: its calls, with two more.
CALLS = "const calls = {"
TIMED_CALLS = """const launches = [];
const calls = {
  async timeLaunches() {
    const kind = Object.getPrototypeOf(opened.runtime.session);
    const { launch } = kind;
    kind.launch = function (...given) {
      const start = performance.now();
      const ticket = launch.apply(this, given);
      launches.push(performance.now() - start);
      return ticket;
    };
  },
  launches: async () => launches.splice(0),
"""


class Prompt(NamedTuple):
    """The same prompt as ids and as text."""

    tokens: list[int]
    text: str


@dataclass(frozen=True)
class Answer:
    """One answer: until its first token, and for each token after it."""

    first: TimeSample
    tokens: list[TimeSample]
    ids: list[int]
    host_ms: list[float]  # of JavaScript, for each decode step; hightide only


@dataclass(frozen=True)
class PageEngine:
    """What a page opens."""

    name: str
    script: str  # in web/
    options: dict[str, Any]
    device: str = "WebGPU"  # where it is to run
    lag: int = 0  # tokens that are made after the first one and before that is told
    reason: str = ""  # why it may run elsewhere


class Browser:
    """A Chromium, and how much of the CPU it has used."""

    def __init__(self, chromium: Any, url: str) -> None:
        self.chromium, self.url = chromium, url
        self.version = str(chromium.version)
        self._session = chromium.new_browser_cdp_session()

    def cpu_ms(self) -> dict[int, float]:
        """Of each of its processes: a software adapter's work is in one of them."""
        told = self._session.send("SystemInfo.getProcessInfo")["processInfo"]
        return {int(process["id"]): process["cpuTime"] * 1e3 for process in told}

    def adapter(self) -> dict[str, Any]:
        """Its name and features."""
        page = self.chromium.new_page()
        page.goto(f"{self.url}pages/page.html")
        found: dict[str, Any] | None = page.evaluate("() => describe_adapter()")
        page.close()
        if found is None:
            raise HightideError("this Chromium has no WebGPU adapter")
        return found


def used(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """CPU milliseconds between two readings."""
    return sum(ms - before.get(process, 0.0) for process, ms in after.items())


class Visit:
    """An engine in a page, with storage of its own."""

    def __init__(self, browser: Browser, engine: PageEngine) -> None:
        self.browser, self.engine = browser, engine
        self._context = browser.chromium.new_context()
        try:
            self._open()
        except PeerError:
            self.close()
            raise

    def answer(self, prompt: Prompt, count: int) -> Answer:
        began = self.browser.cpu_ms()
        given = [{"tokens": prompt.tokens, "text": prompt.text}, count]
        self._ask("([prompt, count]) => begin_answer(prompt, count)", given)
        first = self.browser.cpu_ms()
        told = self._ask("() => end_answer()")
        ended = self.browser.cpu_ms()
        times, ids = told["times"], told["ids"]
        if len(ids) != count:
            raise self._error(f"it made {len(ids)} tokens of {count}")
        each = used(first, ended) / max(1, count - 1 - self.engine.lag)
        tokens = [TimeSample(each, after - before) for before, after in pairwise(times)]
        host = (told["host"] or [])[1:]  # the first step reads the prompt
        return Answer(TimeSample(used(began, first), times[0]), tokens, ids, host)

    def again(self, prompt: Prompt) -> TimeSample:
        """From a new visit, with the files that the browser kept, to the first token of an answer."""
        self._page.close()
        cpu, wall = self.browser.cpu_ms(), time.perf_counter()
        self._open()
        self.answer(prompt, 1)
        return TimeSample(used(cpu, self.browser.cpu_ms()), (time.perf_counter() - wall) * 1e3)

    def close(self) -> None:
        self._context.close()

    def _open(self) -> None:
        self._page = self._context.new_page()
        self._page.goto(f"{self.browser.url}pages/page.html")
        call = "([script, options]) => open_engine(script, options)"
        self.about: dict[str, Any] = self._ask(call, [self.engine.script, self.engine.options])
        if self.about["device"] != self.engine.device:
            raise self._error(f"it runs on the {self.about['device']}{self.engine.reason}")

    def _ask(self, call: str, given: Any = None) -> Any:
        from playwright.sync_api import Error

        try:
            return self._page.evaluate(call, given)
        except Error as error:
            raise self._error(str(error).splitlines()[0].removeprefix("Page.evaluate: ")) from None

    def _error(self, what: str) -> PeerError:
        return PeerError(f"{self.engine.name} is left out: {what[:300]}")


@contextmanager
def launched(folders: Mapping[str, Path]) -> Iterator[Browser]:
    """A Chromium that finds each folder on a host, under its name."""
    path = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if path is None:
        raise HightideError("there is no Chromium: scripts/ensure-chromium.sh installs one")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise HightideError("playwright is not installed: it is in the dev extra") from None
    with hosting({"pages": PAGES, **folders}) as url, sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=path, args=list(OPTIONS))
        try:
            yield Browser(chromium, url)
        finally:
            chromium.close()


@contextmanager
def hosting(folders: Mapping[str, Path]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, folders=folders))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *args: Any, folders: Mapping[str, Path], **named: Any) -> None:
        self._folders = folders
        super().__init__(*args, **named)

    def translate_path(self, path: str) -> str:
        name, _, rest = unquote(urlsplit(path).path).lstrip("/").partition("/")
        return str(self._folders[name] / rest) if name in self._folders and ".." not in rest.split("/") else ""

    def send_head(self) -> Any:
        file = Path(self.translate_path(self.path))
        if file.name != "worker.js" or not file.is_file():
            return super().send_head()
        text = file.read_text("utf-8")
        assert CALLS in text, f"{file} has no calls to add to"
        data = text.replace(CALLS, TIMED_CALLS).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        return io.BytesIO(data)

    def end_headers(self) -> None:
        # Without these a page has no threads of WebAssembly.
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
