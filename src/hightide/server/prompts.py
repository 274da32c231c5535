"""Prompts of requests as token ids: chat messages through the model's template, text, or ids as they are."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from hightide.errors import HightideError
from hightide.llm.chat_prompt import chat_prompt, check_length
from hightide.llm.media_marks import MediaMark
from hightide.llm.tokenizer import Tokenizer
from hightide.media.parts import TEXTS, read_part
from hightide.option_checks import shown
from hightide.server.api_errors import ApiError, bad_request
from hightide.server.messages import PackedPrompt, Ready
from hightide.server.reasoning import opened_by
from hightide.server.tools import Message, ToolUse, knows_tools, read_arguments, with_tools_in_words

ROLES = ("system", "developer", "user", "assistant", "tool")
_WANTS_SHORT_IDS = re.compile(r"length\s*!=\s*9\b")  # Mistral's templates refuse ids of calls that are not 9 long
MEDIA_PARTS = {"image_url": "image", "input_image": "image", "input_audio": "audio"}
_MESSAGE_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "refusal")


@dataclass(frozen=True)
class Prompt:
    ids: PackedPrompt
    text: str | None = None  # of a prompt that was text
    thinks: str | None = None  # the think tag that it ends with


async def read_chat_prompt(
    tokenizer: Tokenizer, facts: Ready, messages: Any, tools: ToolUse, variables: Mapping[str, Any]
) -> Prompt:
    """In a thread: a template may take two seconds."""
    checked = check_messages(messages, tokenizer.chat_template, facts.marks)
    forms = [tool.chat_form() for tool in tools.tools]
    if not knows_tools(tokenizer.chat_template):
        checked, forms = with_tools_in_words(checked, tools), []
    try:
        marks = {kind: None if mark is None else MediaMark(*mark) for kind, mark in facts.marks.items()}
        prompt = await asyncio.to_thread(
            chat_prompt, tokenizer, checked, facts.context, marks=marks, tools=forms or None, **variables
        )
    except HightideError as error:
        raise bad_request(str(error), "messages") from None
    files = [(part.kind, b64encode(part.data).decode()) for part in prompt.media]
    return Prompt([files[-1 - id] if id < 0 else id for id in prompt.ids], thinks=opened_by(prompt.text))


async def read_text_prompt(
    tokenizer: Tokenizer, facts: Ready, prompt: Any, name: str = "prompt", truncate: bool = False
) -> Prompt:
    """Text, or an array of token ids: the parameter of this name. A text to be embedded is whole, others go on.

    `truncate`: what the context does not hold is left out.
    """
    if isinstance(prompt, list):
        bad = next((i for i in prompt if not isinstance(i, int) or isinstance(i, bool)), None)
        if bad is not None or not all(0 <= i < facts.vocabulary for i in prompt):
            raise bad_request(f"{name} must be text, or token ids below {facts.vocabulary}", name)
        return Prompt(prompt[: facts.context] if truncate else prompt)
    if not isinstance(prompt, str):
        raise bad_request(f"{name} must be text or an array of token ids, not {shown(prompt)}", name)
    encode = tokenizer.encode_whole if facts.embeds else tokenizer.encode
    try:
        check_length(prompt, facts.context)
        ids = await asyncio.to_thread(encode, prompt)
        return Prompt(tokenizer.cut(ids, facts.context) if truncate else ids, prompt)
    except HightideError as error:
        raise bad_request(str(error), name) from None


async def read_pair(tokenizer: Tokenizer, facts: Ready, query: str, document: str, name: str, truncate: bool) -> Prompt:
    """A query and a document, the parameter of this name, to be read together."""
    try:
        check_length(query + document, facts.context)
        ids = await asyncio.to_thread(tokenizer.encode_pair, query, document)
    except HightideError as error:
        raise bad_request(str(error), name) from None
    return Prompt(tokenizer.cut(ids, facts.context) if truncate else ids, document)


def check_room(prompt: Prompt, facts: Ready, max_tokens: int | None, parameter: str) -> None:
    """A prompt must leave room for its answer, if there is to be one."""
    length = len(prompt.ids)
    if not length:
        raise bad_request("the prompt is empty", parameter)
    if length + (0 if facts.embeds else max(max_tokens or 0, 1)) > facts.context:
        asked = f" and asks for {max_tokens} more" if max_tokens else ""
        message = f"the prompt has {length} tokens{asked}; the context holds {facts.context}"
        raise ApiError(400, message, parameter=parameter, code="context_length_exceeded")


def check_messages(messages: Any, template: str | None, kinds: Collection[str] = ()) -> list[Message]:
    """Chat messages as templates want them; `kinds` of media may be in them."""
    if not isinstance(messages, list) or not messages:
        raise bad_request("messages must be an array of at least one message", "messages")
    checked = [_message(message, f"messages[{n}]", template, kinds) for n, message in enumerate(messages)]
    if template is not None and _WANTS_SHORT_IDS.search(template):
        for message in checked:
            for holder, name in [(message, "tool_call_id"), *((call, "id") for call in message.get("tool_calls", ()))]:
                if name in holder:
                    holder[name] = blake2b(str(holder[name]).encode("utf-8", "replace")).hexdigest()[:9]
    return checked


def _message(given: Any, place: str, template: str | None, kinds: Collection[str]) -> Message:
    if not isinstance(given, dict) or given.get("role") not in ROLES:
        raise bad_request(f"{place} must be an object with one of the roles {', '.join(ROLES)}", place)
    message = {name: value for name, value in given.items() if value is not None}
    if unknown := next((name for name in message if name not in _MESSAGE_FIELDS), None):
        raise bad_request(f"{place} has a field {shown(unknown)}, which is not supported", f"{place}.{unknown}")
    if message["role"] == "developer" and "developer" not in (template or ""):
        message["role"] = "system"
    message["content"] = _content(message.get("content", message.pop("refusal", "")), f"{place}.content", kinds)
    if "tool_calls" in message:
        message["tool_calls"] = _calls(message["tool_calls"], f"{place}.tool_calls")
        if not message["tool_calls"]:
            del message["tool_calls"]
    elif "content" not in given:
        raise bad_request(f"{place} has no content", f"{place}.content")
    return message


def _content(content: Any, place: str, kinds: Collection[str]) -> str | list[Any]:
    """Text; parts of text are joined, and stay apart where there are images or audio among them."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad_request(f"{place} must be text or an array of text parts, not {shown(content)}", place)
    parts: list[Any] = []
    for n, part in enumerate(content):
        where = f"{place}[{n}]"
        if not isinstance(part, dict) or part.get("type") not in (*TEXTS, *MEDIA_PARTS):
            kind = part.get("type") if isinstance(part, dict) else None
            raise bad_request(f"{where} is of type {shown(kind)}; only text is supported", where)
        kind = MEDIA_PARTS.get(part["type"])
        if kind is not None and kind not in kinds:
            takes = " and ".join(["text", *kinds])
            raise bad_request(f"{where} is of type {shown(part['type'])}; this model takes {takes} only", where)
        try:
            parts.append(read_part(part, where))
        except HightideError as error:
            raise bad_request(str(error), where) from None
    return parts if any(not isinstance(part, str) for part in parts) else "".join(parts)


def _calls(calls: Any, place: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise bad_request(f"{place} must be an array", place)
    read = []
    for n, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise bad_request(f"{place}[{n}] must have a function with a name", f"{place}[{n}]")
        arguments = function.get("arguments", "{}")
        arguments = read_arguments(arguments) if isinstance(arguments, str) else arguments
        form = {"name": function["name"], "arguments": arguments}
        read.append({"id": str(call.get("id", "")), "type": "function", "function": form})
    return read
