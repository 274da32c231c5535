"""LangChain's `ChatOpenAI` on a real server: it needs no more than another base URL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from running_server import Running, running
from scripted_models import scripted_model

pytestmark = pytest.mark.slow  # needs langchain-openai, which `make test-all` installs
langchain_openai = pytest.importorskip("langchain_openai")

SCRIPTS = {
    "hello": ["Hello", ", ", "wor", "ld", "!"],
    "tool": ["<tool_call>", '{"name": "add", "argu', 'ments": {"a"', ': 1, "b": 2}}', "</tool_call>"],
    "think": ["<think>", "\nhm\n", "</think>", "\n\n", "Yes", "."],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("langchain")
    model = scripted_model(folder / "scripted.gguf", SCRIPTS, 256)
    with running(folder, model, "--device", "cpu", "--name", "scripted") as server:
        yield server


@pytest.fixture(params=[False, True], ids=["chat", "responses"])
def chat(server: Running, request: pytest.FixtureRequest) -> Any:
    return langchain_openai.ChatOpenAI(
        base_url=f"{server.url}/v1",
        api_key="none",
        model="scripted",
        temperature=0,
        max_retries=0,
        use_responses_api=request.param,
    )


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def paint(colour: Literal["red", "blue"]) -> None:
    """Paint it."""


def test_an_answer(chat: Any) -> None:
    answer = chat.invoke([("system", "Be kind."), ("human", "Hi <|hello|>")])
    assert answer.text == "Hello, world!"
    assert answer.usage_metadata["output_tokens"] == 5


def test_a_stream(chat: Any) -> None:
    pieces = [piece.text for piece in chat.stream("Hi <|hello|>")]
    assert "".join(pieces) == "Hello, world!" and len(list(filter(None, pieces))) > 1


def test_tools(chat: Any) -> None:
    (call,) = chat.bind_tools([add]).invoke("Hi <|tool|>").tool_calls
    assert (call["name"], call["args"]) == ("add", {"a": 1, "b": 2})


def test_a_tool_that_must_be_called(chat: Any) -> None:
    """The model would say hello; the constraint makes it call."""
    bound = chat.bind_tools([add, paint], tool_choice="paint", parallel_tool_calls=False)
    (call,) = bound.invoke("<|hello|>").tool_calls
    assert call["name"] == "paint" and call["args"]["colour"] in ("red", "blue")


def test_structured_output(chat: Any) -> None:
    schema = {"title": "colour", "type": "object", "properties": {"name": {"enum": ["red", "blue"]}}}
    schema |= {"required": ["name"], "additionalProperties": False}
    assert chat.with_structured_output(schema, method="json_schema").invoke("Hi <|hello|>")["name"] in ("red", "blue")


def test_a_batch(chat: Any) -> None:
    assert [answer.text for answer in chat.batch(["<|hello|>"] * 5)] == ["Hello, world!"] * 5
