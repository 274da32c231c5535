"""The server's page in a browser, with a reader, a phone, a keyboard and hostile answers. Answers are made up here."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "src" / "hightide" / "chat_page"
METRICS = """# HELP hightide:num_requests_running Requests
hightide:num_requests_running{model="tiny"} 2.0
hightide:num_requests_waiting{model="tiny"} 1.0
hightide:kv_cache_usage_perc{model="tiny"} 0.25
hightide:generation_tokens_total{model="tiny"} 100.0
"""
Route = Any


class Files(http.server.SimpleHTTPRequestHandler):
    """The page's files, where the server has them."""

    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}

    def translate_path(self, path: str) -> str:
        name = path.partition("?")[0].removeprefix("/page/").strip("/") or "index.html"
        return str(PAGE / name)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=str(PAGE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


class Server:
    """Answers the page's requests; `asked` has the bodies."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer: Callable[[dict[str, Any]], str] = lambda body: body["messages"][-1]["content"].upper()
        self.status, self.keys = 200, set[str]()

    def handle(self, route: Route) -> None:
        path = route.request.url.split("/", 3)[3]
        self.keys.add(route.request.headers.get("authorization", ""))
        if path == "v1/models":
            route.fulfill(json={"object": "list", "data": [{"id": "tiny"}, {"id": "other"}]})
        elif path == "metrics":
            route.fulfill(body=METRICS, content_type="text/plain")
        elif self.status != 200:
            route.fulfill(status=self.status, json={"error": {"message": "the queue is full"}})
        else:
            self.asked.append(json.loads(route.request.post_data))
            route.fulfill(body=self.stream(self.answer(self.asked[-1])), content_type="text/event-stream")

    @staticmethod
    def stream(text: str) -> str:
        pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
        chunks: list[Any] = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
        chunks += [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        chunks.append({"choices": [], "usage": {"completion_tokens": len(pieces)}})
        return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + ": keep-alive\n\ndata: [DONE]\n\n"


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def page(chromium: Any, address: str, server: Server) -> Iterator[Any]:
    page = chromium.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    for path in ("v1/**", "metrics"):
        page.route(f"{address}{path}", server.handle)
    page.goto(address)
    page.wait_for_function("document.querySelector('#model').options.length === 2")
    yield page
    page.close()
    assert not wrong


def ask(page: Any, text: str) -> None:
    page.fill("#question", text)
    page.keyboard.press("Enter")
    page.wait_for_selector("#send:not([hidden])")


def texts(page: Any) -> list[str]:
    return [body.strip() for body in page.locator("article .body").all_inner_texts()]


def test_a_conversation(page: Any, server: Server) -> None:
    ask(page, "one")
    ask(page, "two")
    assert texts(page) == ["one", "ONE", "two", "TWO"]
    assert [message["role"] for message in server.asked[1]["messages"]] == ["user", "assistant", "user"]
    assert server.asked[1]["model"] == "tiny"
    assert page.inner_text("#status").startswith("Answer finished: 1 tokens")


def test_edit_and_retry(page: Any, server: Server) -> None:
    ask(page, "one")
    ask(page, "two")
    server.answer = lambda body: f"again {len(body['messages'])}"
    page.locator("article.assistant >> text=Retry").last.click()
    page.wait_for_function("document.body.innerText.includes('again 3')")
    assert texts(page) == ["one", "ONE", "two", "again 3"]
    page.locator("article.user >> text=Edit").first.click()
    page.locator("article textarea").fill("zero")
    page.keyboard.press("Enter")
    page.wait_for_function("document.body.innerText.includes('again 1')")
    assert texts(page) == ["zero", "again 1"]


def test_conversations_are_kept(page: Any, server: Server) -> None:
    ask(page, "first subject")
    page.keyboard.press("Alt+n")
    ask(page, "second subject")
    page.reload()
    assert page.locator("nav .open").all_inner_texts() == ["second subject", "first subject"]
    assert texts(page) == ["second subject", "SECOND SUBJECT"]
    page.click("nav >> text=first subject")
    assert texts(page) == ["first subject", "FIRST SUBJECT"]
    page.locator("nav .remove").last.click()
    assert page.locator("nav .open").all_inner_texts() == ["second subject"]


def test_settings_are_sent_and_kept(page: Any, server: Server) -> None:
    page.click("#settings-open")
    page.fill("[name=system]", "Be brief.")
    page.fill("[name=temperature]", "0.5")
    page.fill("[name=max_tokens]", "7")
    page.fill("[name=key]", "secret")
    page.click("dialog >> text=Done")
    page.reload()
    page.select_option("#model", "other")
    ask(page, "hello")
    sent = server.asked[0]
    assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("other", 0.5, 7) and "top_p" not in sent
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    assert "Bearer secret" in server.keys


def test_markdown_and_code(page: Any, server: Server) -> None:
    text = (
        "# Title\n\n* **bold** and `x`\n\n```python\ndef f():\n    return 'a'\n```\n\n| a | b |\n| - | - |\n| 1 | 2 |\n"
    )
    server.answer = lambda body: text
    ask(page, "show")
    body = page.locator("article.assistant .body")
    assert body.locator("h1").inner_text() == "Title" and body.locator("strong").inner_text() == "bold"
    assert body.locator("pre .hljs-keyword").all_inner_texts() == ["def", "return"]
    assert body.locator(".code-header span").inner_text() == "python"
    assert body.locator("td").all_inner_texts() == ["1", "2"]


HOSTILE = [
    "<img src=x onerror='window.hacked=1'>",
    "<script>window.hacked=1</script>",
    "<svg onload='window.hacked=1'></svg>",
    "[a](javascript:window.hacked=1)",
    "<a href='data:text/html,<script>window.hacked=1</script>'>a</a>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
    "<style>* { display: none }</style><form action='//evil'><button>a</button></form>",
    "```python\n<img src=x onerror='window.hacked=1'>\n```",
    "```<img/src=x/onerror=window.hacked=1>\ntext\n```",
    "![a](http://evil.example/tracked.png)",
    "<div id=send name=ask class=menu style='position:fixed;inset:0'>a</div>",
]


def test_answers_can_do_nothing(page: Any, server: Server) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    server.answer = lambda body: "\n\n".join(HOSTILE) + "\n\nthe end"
    ask(page, "show")
    body = page.locator("article.assistant .body")
    assert "the end" in body.inner_text()
    page.wait_for_timeout(200)
    assert page.evaluate("window.hacked") is None
    assert body.locator("img, script, svg, iframe, style, form, [style], [id], [name], [onerror]").count() == 0
    assert all(url.startswith("http") for url in body.locator("a[href]").evaluate_all("all => all.map(a => a.href)"))
    assert not [url for url in asked if "evil" in url]


def test_an_error_is_shown_and_the_page_goes_on(page: Any, server: Server) -> None:
    server.status = 429
    ask(page, "hello")
    assert "the queue is full" in page.inner_text("#status") and "failed" in page.inner_text("article.assistant .note")
    server.status = 200
    page.click("article.assistant >> text=Retry")
    page.wait_for_function("document.body.innerText.includes('HELLO')")


def test_stop_keeps_what_is_there(page: Any, server: Server, address: str) -> None:
    page.evaluate(
        """() => {
            const real = window.fetch;
            window.fetch = (url, options) => {
                if (!String(url).includes("chat")) return real(url, options);
                const text = 'data: {"choices": [{"delta": {"content": "so far"}}]}\\n\\n';
                const body = new ReadableStream({start(control) {
                    control.enqueue(new TextEncoder().encode(text));
                    options.signal.addEventListener("abort", () => {
                        window.stopped = true;
                        control.error(new DOMException("", "AbortError"));
                    });
                }});
                return Promise.resolve(new Response(body));
            };
        }"""
    )
    page.fill("#question", "hello")
    page.keyboard.press("Enter")
    page.wait_for_function("document.body.innerText.includes('so far')")
    assert page.is_visible("#stop") and not page.is_visible("#send")
    page.keyboard.press("Escape")
    page.wait_for_selector("#send:not([hidden])")
    assert page.evaluate("window.stopped") and texts(page) == ["hello", "so far"]
    assert page.inner_text("article.assistant .note") == "stopped"


def test_what_the_server_is_doing(page: Any) -> None:
    page.wait_for_function("document.querySelector('#queue').textContent === '2, 1'")
    assert page.inner_text("#cache") == "25 %"
    drawn = "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)"
    page.wait_for_function(f"({drawn})(document.querySelector('#queue-plot'))")


def test_a_phone(chromium: Any, address: str, server: Server) -> None:
    page = chromium.new_page(viewport={"width": 360, "height": 640}, color_scheme="dark")
    for path in ("v1/**", "metrics"):
        page.route(f"{address}{path}", server.handle)
    page.goto(address)
    assert not page.is_visible("nav")
    page.click("#menu")
    assert page.is_visible("nav") and page.get_attribute("#menu", "aria-expanded") == "true"
    page.click("#new")
    ask(page, "x" * 200)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(int(part) for part in background[4:-1].split(",")) < 150
    page.close()


def test_every_control_has_a_name(page: Any) -> None:
    page.click("#settings-open")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, textarea, select")]
            .filter((one) => !(one.labels?.length || one.textContent.trim() || one.getAttribute("aria-label")))
            .map((one) => one.outerHTML)"""
    )
    assert nameless == []


def test_vendored_files_are_named_with_their_licences() -> None:
    vendor = PAGE / "vendor"
    told = (vendor / "README.md").read_text()
    for path in [*vendor.glob("*.js"), *vendor.glob("*.mjs")]:
        assert f"`{path.name}`" in told
        assert (vendor / f"{path.name.split('.')[0]}.LICENSE").is_file()
