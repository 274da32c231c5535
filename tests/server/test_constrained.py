"""Answers that must look like something: schemas, grammars, and tools that must be called."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from running_server import Running, running
from scripted_models import scripted_model

DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}
SCHEMA = {
    "type": "object",
    "properties": {"a": DIGIT, "b": {"enum": ["x", "y"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("first", "second")
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("constrained")
    model = scripted_model(folder / "scripted.gguf", {"hello": ["Hello", "!"]})
    with running(folder, model, "--device", "cpu", "--max-sequences", 4) as server:
        yield server


def ask(server: Running, **options: Any) -> Any:
    messages: Any = [{"role": "user", "content": "<|hello|>"}]
    given = {"model": "scripted", "messages": messages, "temperature": 0, "max_tokens": 200} | options
    return server.client().chat.completions.create(**given)


def test_formats(server: Running) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    value = json.loads(ask(server, response_format=schema).choices[0].message.content)
    assert set(value) == {"a", "b"} and value["a"] in range(10) and value["b"] in "xy"
    object_start = ask(server, response_format={"type": "json_object"}, max_tokens=3).choices[0].message.content
    assert object_start.startswith("{")
    assert ask(server, response_format={"type": "text"}).choices[0].message.content == "Hello!"


@pytest.mark.parametrize(
    ("body", "pattern"),
    [
        ({"guided_choice": ["red", "blue"]}, "red|blue"),
        ({"guided_regex": "[ab]{3}"}, "[ab]{3}"),
        ({"guided_json": DIGIT}, "[0-9]"),
        ({"json_schema": DIGIT}, "[0-9]"),
        ({"grammar": 'start: "yes" | "no"'}, "yes|no"),
        ({"guided_grammar": 'start: "yes" | "no"'}, "yes|no"),
    ],
)
def test_names_of_other_servers(server: Running, body: dict[str, Any], pattern: str) -> None:
    assert re.fullmatch(pattern, ask(server, extra_body=body).choices[0].message.content)


def test_responses(server: Running) -> None:
    text: Any = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}
    reply = server.client().responses.create(model="scripted", input="<|hello|>", text=text, temperature=0)
    assert set(json.loads(reply.output_text)) == {"a", "b"}


@pytest.mark.parametrize("stream", [False, True])
def test_required_tools(server: Running, stream: bool) -> None:
    options: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    name, arguments, reason = called(ask(server, **options, stream=stream), stream)
    assert name in ("first", "second") and set(json.loads(arguments)) == {"a", "b"} and reason == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
def test_a_named_tool(server: Running, stream: bool) -> None:
    choice: Any = {"type": "function", "function": {"name": "second"}}
    name, arguments, reason = called(ask(server, tools=TOOLS, tool_choice=choice, stream=stream), stream)
    assert (name, set(json.loads(arguments)), reason) == ("second", {"a", "b"}, "tool_calls")


def called(reply: Any, stream: bool) -> tuple[str, str, str]:
    if not stream:
        (call,) = reply.choices[0].message.tool_calls
        assert reply.choices[0].message.content is None
        return call.function.name, call.function.arguments, reply.choices[0].finish_reason
    chunks = [chunk.choices[0] for chunk in reply]
    calls = [call.function for chunk in chunks for call in chunk.delta.tool_calls or []]
    return calls[0].name, "".join(call.arguments for call in calls), chunks[-1].finish_reason


def test_grammars_that_cannot_be(server: Running) -> None:
    for body in ({"guided_regex": "("}, {"grammar": "start: nothing"}, {"guided_json": {"type": "planet"}}):
        with pytest.raises(openai.BadRequestError):
            ask(server, extra_body=body)
    with pytest.raises(openai.BadRequestError, match="one grammar"):
        ask(server, extra_body={"guided_regex": "a", "guided_choice": ["a"]})
    with pytest.raises(openai.BadRequestError, match="another format"):
        ask(server, tools=TOOLS, tool_choice="required", response_format={"type": "json_object"})
    assert ask(server).choices[0].message.content == "Hello!"
