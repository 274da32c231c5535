"""The tools of a request: their definitions, which of them may or must be called, and how a model is told of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hightide.llm.chat_template import CHATML
from hightide.server.api_errors import bad_request
from hightide.server.grammars import GrammarFields
from hightide.server.parameters import Parameters, checked_grammar
from hightide.server.xml_calls import schema_properties

MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_OPEN = {  # what lets a schema have more properties than it names
    *("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"),
    *("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames", "minProperties"),
}
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}

Message = dict[str, Any]


@dataclass(frozen=True)
class Tool:
    name: str
    description: str
    schema: dict[str, Any]  # of the arguments

    def chat_form(self) -> dict[str, Any]:
        """As chat templates and Chat Completions have it."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolUse:
    """The tools that an answer may call."""

    tools: tuple[Tool, ...] = ()
    required: bool = False  # the answer must call one of them
    parallel: bool = True  # it may call several

    @property
    def schemas(self) -> dict[str, Any]:
        return {tool.name: tool.schema for tool in self.tools}

    def grammar(self) -> GrammarFields | None:
        """What a required call has to look like: JSON, which every model can write."""
        if not self.required:
            return None
        calls = [
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "arguments": _closed(tool.schema)},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for tool in self.tools
        ]
        one = calls[0] if len(calls) == 1 else {"anyOf": calls}
        several = {"type": "array", "items": one, "minItems": 1}
        return checked_grammar("tool_choice", "json_schema", several if self.parallel else one)


def _closed(schema: Any) -> Any:
    """A schema of arguments without those that it does not name, as a function cannot take them.

    Where a schema speaks of others, or is one of several that hold together, it stays as it is.
    """
    if not isinstance(schema, dict) or schema.keys() & _OPEN:
        return schema
    closed = dict(schema)
    properties, required = schema.get("properties"), schema.get("required", [])
    if isinstance(properties, dict) and isinstance(required, list):
        known = list(properties)  # not a set: `required` is not checked yet, and may have anything in it
        if not all(name in known for name in required):
            return schema
        closed["properties"] = {name: _closed(inner) for name, inner in properties.items()}
        closed["additionalProperties"] = False
    if "items" in schema:
        closed["items"] = _closed(schema["items"])
    return closed


def read_tool_use(parameters: Parameters, nested: bool) -> ToolUse:
    """`tools`, `tool_choice` and `parallel_tool_calls`; `nested`: as Chat Completions has them, else as Responses."""
    tools = tuple(_read_tool(tool, f"tools[{n}].", nested) for n, tool in enumerate(parameters.array("tools") or []))
    choice = parameters.take("tool_choice", "auto" if tools else "none")
    parallel = parameters.boolean("parallel_tool_calls", True)
    names = [tool.name for tool in tools]
    if len(tools) > MAX_TOOLS:
        raise bad_request(f"a request can have {MAX_TOOLS} tools, not {len(tools)}", "tools")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise bad_request(f"two tools are called {twice}", "tools")
    if choice == "none":
        return ToolUse()
    if choice in ("auto", "required"):
        if not tools and choice == "required":
            raise bad_request("tool_choice is required, but there are no tools", "tool_choice")
        return ToolUse(tools, choice == "required", parallel)
    name = _chosen_name(choice, nested)
    if name is None:
        raise parameters.wrong("tool_choice", '"none", "auto", "required" or a function of tools', choice)
    if name not in names:
        raise bad_request(f"tool_choice names {name}, which is not among the tools", "tool_choice")
    return ToolUse(tuple(tool for tool in tools if tool.name == name), True, False)


def _chosen_name(choice: Any, nested: bool) -> str | None:
    if not isinstance(choice, dict) or choice.get("type") != "function":
        return None
    chosen = choice.get("function") if nested else choice
    name = chosen.get("name") if isinstance(chosen, dict) else None
    return name if isinstance(name, str) else None


def _read_tool(given: Any, place: str, nested: bool) -> Tool:
    if not isinstance(given, dict):
        raise bad_request(f"{place[:-1]} must be an object", place[:-1])
    fields = Parameters(given, place)
    fields.one_of("type", ("function",), "")
    function = fields
    if nested:
        inner = fields.object("function")
        if inner is None:
            raise bad_request(f"{place}function is missing", f"{place}function")
        fields.end()
        function = inner
    name = function.text("name") or ""
    if not _NAME.fullmatch(name):
        raise function.wrong("name", "a name of letters, digits, _, -, . and :", name)
    description = function.text("description") or ""
    schema = function.take("parameters", _NO_ARGUMENTS)
    if not isinstance(schema, dict):
        raise function.wrong("parameters", "a JSON schema", schema)
    function.boolean("strict")  # a required call keeps to the schema in any case
    function.end()
    return Tool(name, description, schema)


def knows_tools(template: str | None) -> bool:
    """Whether a chat template writes the tools into the prompt."""
    return re.search(r"\btools\b", template or CHATML) is not None


def with_tools_in_words(messages: Sequence[Message], use: ToolUse) -> list[Message]:
    """Messages for a template that knows nothing of tools: they are explained in the system message, an example
    of a call follows (without one, small models do not call), and earlier calls and results are text."""
    plain: list[Message] = []
    for message in messages:
        if (
            message["role"] == "tool" and plain and plain[-1]["role"] == "user"
        ):  # many templates want turns to alternate
            plain[-1] = {"role": "user", "content": f"{plain[-1]['content']}\n{_plain_message(message)['content']}"}
        else:
            plain.append(_plain_message(message))
    if not use.tools:
        return plain
    definitions = "\n".join(json.dumps(tool.chat_form()["function"], ensure_ascii=False) for tool in use.tools)
    system = (
        f"You can call these tools:\n{definitions}\n\n"
        'To call a tool, answer with nothing but\n<tool_call>{"name": "the tool", "arguments": {...}}</tool_call>\n'
        "Otherwise answer in words."
    )
    if plain and plain[0]["role"] == "system":
        system = f"{plain[0]['content']}\n\n{system}"
        plain = plain[1:]
    first = use.tools[0]
    example = _call_text(first.name, dict.fromkeys(schema_properties(first.schema), "..."))
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": f"Please call {first.name}."},
        {"role": "assistant", "content": example},
        *plain,
    ]


def _plain_message(message: Message) -> Message:
    """Without roles and fields that only templates for tools have."""
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>{message['content']}</tool_response>"}
    if not message.get("tool_calls"):
        return message
    calls = [_call_text(call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]
    return {"role": message["role"], "content": "\n".join([*filter(None, [message["content"]]), *calls])}


def _call_text(name: str, arguments: Any) -> str:
    call = {"name": name, "arguments": arguments}
    return f"<tool_call>{json.dumps(call, ensure_ascii=False)}</tool_call>"


def read_arguments(text: str) -> Mapping[str, Any] | str:
    """The arguments of an earlier call as templates want them: an object, if they are one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text
