"""Calls of tools in what models write: whole, in pieces of any size, cut short, and what only looks like them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from hightide.server.deltas import CallArguments, CallBegun, Delta, Text
from hightide.server.tool_calls import ToolCallParser

TOOLS: dict[str, Any] = {
    "get_weather": {"type": "object", "properties": {"city": {"type": "string"}}},
    "add": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    "note": {"type": "object", "properties": {"text": {"type": "string"}, "on": {"type": "boolean"}, "tags": {}}},
}
PARIS = ("get_weather", {"city": "Paris"})
ADD = ("add", {"a": 1, "b": 2})

CALLS: list[tuple[str, str, list[tuple[str, Any]]]] = [
    ('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>', "", [PARIS]),
    ('Let me see.\n<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>', "Let me see.\n", [ADD]),
    (
        '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>\n'
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>\n',
        "",
        [ADD, PARIS],
    ),
    ('<tool_call>[{"name": "add", "arguments": {"a": 1, "b": 2}}]</tool_call> Done.', " Done.", [ADD]),
    ('<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>', "", [PARIS]),
    ('<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>', "", [PARIS]),
    ('<tool_call>{"name": "get_weather", "arguments": null, "parameters": {"city": "Paris"}}</tool_call>', "", [PARIS]),
    (
        '<tool_call>{"name": "note", "arguments": {"text": "a </tool_call> } \\" in it"}}</tool_call>',
        "",
        [("note", {"text": 'a </tool_call> } " in it'})],
    ),
    (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
        "",
        [PARIS],
    ),
    ("Sure. <function=add><parameter=a>1</parameter><parameter=b>2</parameter></function>", "Sure. ", [ADD]),
    (
        "<function=note><parameter=text>007</parameter><parameter=on>True</parameter>"
        "<parameter=tags>[1, 2]</parameter></function>",
        "",
        [("note", {"text": "007", "on": True, "tags": [1, 2]})],
    ),
    (
        "<function=note><parameter=text>a </parameter> b</parameter><parameter=on>1</parameter></function>",
        "",
        [("note", {"text": "a </parameter> b", "on": "1"})],
    ),
    ('{"name": "get_weather", "parameters": {"city": "Paris"}}', "", [PARIS]),
    ('{"type": "function", "name": "add", "parameters": {"a": 1, "b": 2}}', "", [ADD]),
    ('<|python_tag|>{"name": "add", "parameters": {"a": 1, "b": 2}}', "", [ADD]),
    (
        '{"name": "add", "parameters": {"a": 1, "b": 2}}; {"name": "get_weather", "parameters": {"city": "Paris"}}',
        "",
        [ADD, PARIS],
    ),
    ('```json\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n```', "", [ADD]),
    ('[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1, "b": 2}}]', "", [ADD]),
    ('[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]add{"a": 1, "b": 2}', "", [PARIS, ADD]),
    ('<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>', "", [PARIS]),
    (
        'Now <|tool_call>call:note{text:007,on:true,tags:[<|"|>x<|"|>,{<|"|>y<|"|>:5}]}<tool_call|>',
        "Now ",
        [("note", {"text": "007", "on": True, "tags": ["x", {"y": 5}]})],
    ),
    ('[{"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}]', "", [ADD]),
]

TEXTS = [
    "The capital of France is Paris.",
    "",
    "  ",
    "a < b, <tool, [TOOL_ and <|python_",
    '{"city": "Paris"}',
    '[1, 2, {"name": 3}]',
    "[not JSON",
    "{",
    "``` is a fence",
    "```python\nprint(1)\n```",
    '<tool_call>{"name": "delete_everything", "arguments": {"x": 1}}</tool_call>',
    '<tool_call>{"name": "get_weather", "arg',
    "<tool_call>not JSON</tool_call> and more",
    "<tool_call>",
    "<tool_call></tool_call>",
    "<function=delete_everything><parameter=x>1</parameter></function>",
    "<function=get_weather><parameter=city>Par",
    "<|python_tag|>brave_search.call(query='x')",
    "[TOOL_CALLS]unknown{}",
    "[TOOL_CALLS]",
    '<|tool_call>call:get_weather{city:<|"|>Par',
    '<|tool_call>call:get_weather{city:<|"|>Paris}<tool_call|>',
    "<|tool_call>call:unknown{x:1}<tool_call|>",
    '{"name": "get_weather", "arguments": 5}',
]


def parse(text: str, size: int) -> tuple[str, list[tuple[str, str]], list[Delta]]:
    parser = ToolCallParser(TOOLS)
    deltas = [delta for at in range(0, len(text), size) for delta in parser.feed(text[at : at + size])]
    deltas += parser.flush()
    calls: list[tuple[str, str]] = []
    shown = ""
    for delta in deltas:
        if isinstance(delta, Text):
            shown += delta.text
        elif isinstance(delta, CallBegun):
            assert delta.index == len(calls)
            calls.append((delta.name, ""))
        elif isinstance(delta, CallArguments):
            assert delta.index == len(calls) - 1
            calls[-1] = calls[-1][0], calls[-1][1] + delta.text
    return shown, calls, deltas


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize(("text", "shown", "calls"), CALLS, ids=range(len(CALLS)))
def test_calls_are_found_in_pieces_of_any_size(text: str, shown: str, calls: list[tuple[str, Any]], size: int) -> None:
    got, found, _ = parse(text, size)
    assert (got, [(name, json.loads(arguments)) for name, arguments in found]) == (shown, calls)


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("text", TEXTS)
def test_what_is_no_call_of_a_known_tool_is_text(text: str, size: int) -> None:
    assert parse(text, size)[:2] == (text, [])


def test_arguments_are_passed_on_before_they_are_complete() -> None:
    parser = ToolCallParser(TOOLS)
    first = parser.feed('<tool_call>{"name": "get_weather", "arguments": {"city": "Par')
    assert first == [CallBegun(0, "get_weather"), CallArguments(0, '{"city": "Par')]
    assert parser.feed('is"}') == [CallArguments(0, 'is"}')]
    assert parser.feed("}</tool_call>") + parser.flush() == []


def test_arguments_that_are_cut_short_stay_as_they_are() -> None:
    shown, calls, _ = parse('<tool_call>{"name": "get_weather", "arguments": {"city": "Par', 4)
    assert (shown, calls) == ("", [("get_weather", '{"city": "Par')])


FRAGMENTS = [
    *("<tool_call>", "</tool_call>", "<function=add>", "</function>", "<parameter=a>", "</parameter>", "[TOOL_CALLS]"),
    *("<|python_tag|>", "<|tool_call>", "<tool_call|>", "call:add{", '<|"|>', "[ARGS]", "```json\n", "```", "\n", " "),
    *(
        '{"name": "add", "arguments": ',
        '{"name": "other", "arguments": ',
        '{"a": 1}',
        '{"name": "add"',
        "add",
        "}",
        "]",
    ),
    *("[", "{", ",", ";", '"', "\\", "text", "<", "1", ":", "é"),
]


@settings(max_examples=400)
@given(some.lists(some.sampled_from(FRAGMENTS), max_size=12), some.integers(1, 5))
def test_pieces_do_not_matter(fragments: list[str], size: int) -> None:
    """Whatever a model writes, in whatever pieces, is read in the same way; what is no call is not lost."""
    text = "".join(fragments)
    whole = parse(text, max(1, len(text)))
    assert parse(text, size)[:2] == whole[:2]
    if not whole[1]:
        assert whole[0] == text
