"""Parts of the server by themselves: who may ask, thoughts, prompts with tools in words, keep-alive, messages."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from hightide.errors import HightideError, InputError
from hightide.media.parts import Image
from hightide.server import replies
from hightide.server.answers import as_api_error
from hightide.server.api_errors import ApiError
from hightide.server.messages import Cancel, Message, News, Submit, pack, receive, receive_async
from hightide.server.prompts import check_messages
from hightide.server.reasoning import ReasoningSplitter, opened_by
from hightide.server.replies import DONE, EventStream, ServerEvent
from hightide.server.security import Security, make_security, read_keys
from hightide.server.tools import Tool, ToolUse, knows_tools, with_tools_in_words
from hightide.server.worker import unpacked

LOCAL = {"host": "127.0.0.1:8080"}

# ---- who may ask


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "myhost"])
def test_strangers_need_a_key(host: str) -> None:
    with pytest.raises(InputError, match="API key"):
        make_security(host, (), ())
    make_security(host, (b"key",), ()).check("/v1/models", {"host": "any", "authorization": "Bearer key"})


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Bearer k", "Bearer keyy", "key", "Basic key", "Bearer \udcff"]
)
def test_a_wrong_key(header: str) -> None:
    security = make_security("127.0.0.1", (b"key", b"other"), ())
    with pytest.raises(ApiError) as refused:
        security.check("/v1/models", {**LOCAL, "authorization": header})
    assert refused.value.status == 401 and "key" not in repr(security)
    security.check("/health", LOCAL)
    security.check("/v1/models", {**LOCAL, "authorization": "bearer other"})


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", ""])
def test_without_a_key_the_server_has_the_names_of_this_machine_only(host: str) -> None:
    security = make_security("127.0.0.1", (), ())
    for name in ("127.0.0.1:80", "localhost", "[::1]:8080"):
        security.check("/v1/models", {"host": name})
    with pytest.raises(ApiError, match="name"):
        security.check("/v1/models", {"host": host})


def test_pages_of_other_sites() -> None:
    security = make_security("127.0.0.1", (), ["https://friend.example"])
    security.check("/", {**LOCAL, "origin": "http://127.0.0.1:8080"})
    friend = {**LOCAL, "origin": "https://friend.example"}
    security.check("/", friend)
    assert security.cors_headers(friend)["Access-Control-Allow-Origin"] == "https://friend.example"
    for origin in ("https://evil.example", "null", "http://127.0.0.1:9000"):
        with pytest.raises(ApiError, match="origin"):
            security.check("/", {**LOCAL, "origin": origin})
        assert security.cors_headers({**LOCAL, "origin": origin}) == {}


def test_keys_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHTIDE_API_KEY", "one")
    assert read_keys(None) == (b"one",)
    (tmp_path / "keys").write_text("\n two \nthree\n")
    assert read_keys(tmp_path / "keys") == (b"two", b"three")
    (tmp_path / "keys").write_text("\n")
    with pytest.raises(InputError, match="no API key"):
        read_keys(tmp_path / "keys")


def test_errors_name_no_folder() -> None:
    text = as_api_error(HightideError("/home/someone/models/a.gguf is damaged; see C:\\x\\y\\b.pte and 1/2")).message
    assert text == "a.gguf is damaged; see b.pte and 1/2"


# ---- thoughts

THOUGHTS = [
    ("<think>\nhm\n</think>\n\nYes", None, "hm", "Yes"),
    ("  <think>a < b</think>c <think>", None, "a < b", "c <think>"),
    ("hm\n\nmore</think>\nYes", "<think>", "hm\n\nmore", "Yes"),
    ("never ends\n", "<think>", "never ends\n", ""),
    ("<thin", None, "", "<thin"),
    (" no tags </think>", None, "", " no tags </think>"),
    ("[THINK]x[/THINK]y", None, "x", "y"),
    ("", None, "", ""),
]


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(("text", "opened", "thoughts", "answer"), THOUGHTS)
def test_thoughts(text: str, opened: str | None, thoughts: str, answer: str, size: int) -> None:
    splitter = ReasoningSplitter(opened)
    pieces = [splitter.feed(text[at : at + size]) for at in range(0, len(text), size)] + [splitter.flush()]
    assert ("".join(piece[0] for piece in pieces), "".join(piece[1] for piece in pieces)) == (thoughts, answer)


@given(some.lists(some.sampled_from(["<think>", "</think>", "<", "</", "a", "\n", " "]), max_size=8), some.booleans())
def test_pieces_of_thoughts_do_not_matter(fragments: list[str], opened: bool) -> None:
    text = "".join(fragments)

    def split(size: int) -> tuple[str, str]:
        splitter = ReasoningSplitter("<think>" if opened else None)
        pieces = [splitter.feed(text[at : at + size]) for at in range(0, len(text), size)] + [splitter.flush()]
        return "".join(piece[0] for piece in pieces), "".join(piece[1] for piece in pieces)

    assert split(1) == split(2) == split(3) == split(100)


def test_a_prompt_that_opens_thoughts() -> None:
    assert opened_by("user: hi\nassistant: <think>\n") == "<think>"
    assert opened_by("<think>\n\n</think>\n\n") is None


# ---- tools in words


def test_tools_for_a_template_that_knows_none() -> None:
    assert knows_tools("{% if tools %}") and not knows_tools(None) and not knows_tools("{{ mytools_x }}")
    use = ToolUse((Tool("add", "Add.", {"properties": {"a": {}, "b": {}}}),))
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "2"},
    ]
    system, _, example, question, called, result = with_tools_in_words(messages, use)
    assert system["content"].startswith("Be kind.\n\nYou can call") and '"name": "add"' in system["content"]
    assert example["content"] == '<tool_call>{"name": "add", "arguments": {"a": "...", "b": "..."}}</tool_call>'
    assert question == messages[1]
    assert called == {"role": "assistant", "content": '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'}
    assert result == {"role": "user", "content": "<tool_response>2</tool_response>"}
    assert with_tools_in_words(messages[:2], ToolUse()) == messages[:2]
    several = with_tools_in_words([*messages, {"role": "tool", "content": "3"}], use)[-1]
    assert several["content"] == "<tool_response>2</tool_response>\n<tool_response>3</tool_response>"


@pytest.mark.parametrize(
    "schema, closed",
    [
        ({"properties": {"a": {}}, "required": ["a"]}, True),
        ({"properties": {}}, True),
        ({"properties": {"a": {}}, "additionalProperties": True}, False),
        ({"properties": {"a": {}}, "required": ["b"]}, False),
        ({"properties": {"a": {}}, "anyOf": [{"required": ["b"]}]}, False),
        ({"properties": {"a": {}}, "required": [[]]}, False),
        ({"type": "object"}, False),
    ],
)
def test_a_required_call_has_the_arguments_that_the_tool_names(schema: dict[str, Any], closed: bool) -> None:
    inside = {"properties": {"inner": schema, "list": {"items": schema}}}
    fields = ToolUse((Tool("add", "Add.", inside),), required=True, parallel=False).grammar()
    assert fields is not None
    arguments = fields["source"]["properties"]["arguments"]
    expected = schema | {"additionalProperties": False} if closed else schema
    assert arguments["additionalProperties"] is False
    assert arguments["properties"] == {"inner": expected, "list": {"items": expected}}


def test_ids_of_calls_for_templates_that_want_nine_characters() -> None:
    template = "{% if tool_call.id|length != 9 %}{{ raise_exception('...') }}{% endif %}"
    call = {"id": "call_123", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    turns: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "call_123"},
    ]
    called, result = check_messages(turns, template)
    assert called["tool_calls"][0]["id"] == result["tool_call_id"] and len(result["tool_call_id"]) == 9
    assert check_messages(turns, "other")[1]["tool_call_id"] == "call_123"


# ---- streams and messages


def test_comments_keep_a_stream_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "KEEP_ALIVE_SECONDS", 0.01)
    sent: list[dict[str, Any]] = []
    ends: list[bool] = []

    async def events() -> AsyncIterator[ServerEvent]:
        await asyncio.sleep(0.1)
        yield ServerEvent({"a": "é"}, "named")
        yield DONE

    async def receive_nothing() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(EventStream(events(), ends.append, {})({"type": "http"}, receive_nothing, send))
    bodies = [message["body"] for message in sent[1:]]
    assert bodies.count(b": still at work\n\n") >= 2
    assert bodies[-3:] == ['event: named\ndata: {"a":"é"}\n\n'.encode(), b"data: [DONE]\n\n", b""]
    assert (sent[-1]["more_body"], ends) == (False, [True])


def test_a_client_that_leaves_ends_the_stream() -> None:
    closed: list[bool] = []

    async def events() -> AsyncIterator[ServerEvent]:
        try:
            await asyncio.sleep(60)
            yield DONE
        finally:
            closed.append(True)

    async def leave() -> Any:
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        pass

    ends: list[bool] = []
    asyncio.run(EventStream(events(), ends.append, {})({"type": "http"}, leave, send))
    assert (ends, closed) == ([False], [True])


MESSAGES: list[Message] = [
    Submit(1, [1, 2], {"stop": ["\ud800 é"]}, None, [(0, 5, [])]),
    Cancel(1),
    News([(1, 0, 7, -0.5, [(7, -0.5)])], [(1, 0, "stop", "", 3)]),
]


def test_messages_that_are_cut_short_are_none() -> None:
    data = b"".join(map(pack, MESSAGES))
    pipe = io.BytesIO(data)
    assert [vars(receive(pipe)) == plain(message) for message in MESSAGES] == [True] * 3 and receive(pipe) is None
    whole = len(pack(MESSAGES[0]))

    async def read(part: bytes) -> list[Message | None]:
        reader = asyncio.StreamReader()
        reader.feed_data(part)
        reader.feed_eof()
        return [await receive_async(reader), await receive_async(reader)]

    for cut in (0, 3, 8, whole - 1):
        assert asyncio.run(read(data[:cut])) == [None, None]
        assert receive(io.BytesIO(data[:cut])) is None
    first, second = asyncio.run(read(data[: whole + 5]))
    assert first is not None and second is None


def plain(message: Message) -> dict[str, Any]:
    """As JSON has it: lists for tuples."""

    def listed(value: Any) -> Any:
        return [listed(item) for item in value] if isinstance(value, list | tuple) else value

    return {name: listed(value) for name, value in vars(message).items()}


# ---- the command


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.gguf"], "none.gguf is not a file"),
        (["--host", "0.0.0.0"], "API key"),
        (["--model", "a"], "NAME=FILE"),
        (["--model", "a=x", "--model", "a=y"], "two models"),
        (["x.gguf", "--model", "a=x"], "one model"),
        (["--timeout", "soon"], "--timeout must be a time"),
        (["--max-body", "big"], "--max-body"),
    ],
)
def test_bad_arguments(hightide: Any, arguments: list[str], says: str) -> None:
    code, _, err = hightide("serve", *arguments)
    assert code == 1 and says in err and err.count("\n") == 1


def test_without_the_extra() -> None:
    program = "import sys, hightide.cli; sys.modules['starlette'] = None; sys.argv[1:] = ['serve']; hightide.cli.main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and "pip install 'hightide[serve]'" in done.stderr and done.stderr.count("\n") == 1


def test_repr_of_security_shows_no_key() -> None:
    assert "secret" not in repr(Security((b"secret",)))


def test_parts_of_messages_are_text_unless_the_model_takes_more() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
    text = [{"type": "text", "text": "What "}, {"type": "text", "text": "is it?"}]
    assert check_messages([{"role": "user", "content": text}], None)[0]["content"] == "What is it?"
    (message,) = check_messages([{"role": "user", "content": [*text, image]}], None, ["image"])
    *words, seen = message["content"]
    assert words == ["What ", "is it?"] and isinstance(seen, Image) and seen.data == b"hello"
    for kinds, part, said in [
        ([], image, "messages[0].content[0] is of type 'image_url'; this model takes text only"),
        (["audio"], image, "this model takes text and audio only"),
        (["image"], {"type": "image_url", "image_url": {"url": "http://example.com"}}, "nothing is fetched"),
        (["image"], {"type": "video"}, "is of type 'video'; only text is supported"),
    ]:
        with pytest.raises(ApiError) as raised:
            check_messages([{"role": "user", "content": [part]}], None, kinds)
        assert said in raised.value.message and raised.value.status == 400


def test_a_prompt_with_an_image_survives_the_pipe() -> None:
    prompt: list[int | tuple[str, str]] = [1, ("image", "aGVsbG8="), 2]
    sent = Submit(1, prompt, {}, None, [])
    got = receive(io.BytesIO(pack(sent)))
    assert isinstance(got, Submit)
    first, seen, last = map(unpacked, got.prompt)
    assert (first, last) == (1, 2) and isinstance(seen, Image) and seen.data == b"hello"
