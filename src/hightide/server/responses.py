"""`/v1/responses`: text and calls of functions, whole or as a stream of named events. Nothing is kept."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from hightide.option_checks import shown
from hightide.server.answers import Answers
from hightide.server.api_errors import ApiError, bad_request
from hightide.server.chat import read_no_ops
from hightide.server.deltas import CallArguments, CallBegun, Delta, Reasoning, Text
from hightide.server.grammars import GrammarFields
from hightide.server.models import ServedModel
from hightide.server.parameters import Parameters, checked_grammar, read_sampling, read_schema_format
from hightide.server.prompts import check_room, read_chat_prompt
from hightide.server.records import MAX_USER, Record
from hightide.server.replies import ServerEvent
from hightide.server.reply_parts import new_id, usage
from hightide.server.service import Reply, Service, StreamedReply
from hightide.server.tools import read_tool_use

Item = dict[str, Any]


@dataclass
class _Form:
    """The response object, as far as it does not depend on the answer."""

    model: ServedModel
    record: Record
    asked: dict[str, Any]  # parameters that the response repeats
    id: str = field(default_factory=lambda: new_id("resp_"))
    created: int = field(default_factory=lambda: int(time.time()))

    def body(self, status: str, output: list[Item], **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self.model.name,
            "output": output,
            "previous_response_id": None,
            "store": False,
            "truncation": "disabled",
            "usage": None,
            **self.asked,
            **more,
        }


async def responses(service: Service, body: dict[str, Any], record: Record) -> Reply:
    parameters = Parameters(body)
    model, facts = await service.model(parameters, record)
    record.user = (parameters.text("user") or "")[:MAX_USER]
    stream = parameters.boolean("stream")
    tools = read_tool_use(parameters, nested=False)
    max_tokens = parameters.integer("max_output_tokens", 1, 2**31 - 1)
    text_format = _read_format(parameters)
    if text_format is not None and tools.required:
        raise bad_request("an answer that must call a tool cannot have another format", "tool_choice")
    sampling = read_sampling(parameters, model, max_tokens, None, 1, text_format or tools.grammar())
    variables = _read_reasoning(parameters)
    metadata = parameters.take("metadata", {})
    if not isinstance(metadata, dict):
        raise parameters.wrong("metadata", "an object", metadata)
    instructions = parameters.text("instructions")
    messages = _messages(parameters.take("input"), instructions)
    parameters.one_of("truncation", ("disabled",), "disabled")
    if parameters.array("include"):
        raise bad_request("include is not supported", "include")
    if parameters.boolean("background"):
        raise bad_request("background is not supported", "background")
    read_no_ops(parameters)
    parameters.end()
    prompt = await read_chat_prompt(model.tokenizer, facts, messages, tools, variables)
    check_room(prompt, facts, max_tokens, "input")
    asked = {
        "instructions": instructions,
        "max_output_tokens": max_tokens,
        "metadata": metadata,
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "temperature": sampling.options["temperature"],
        "top_p": body.get("top_p", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "user": body.get("user"),
    }
    answers = Answers(model, [prompt], sampling, record, tools)
    form = _Form(model, record, asked)
    async with answers.begun(service.request_seconds):
        events = _events(form, answers)
        if stream:
            return StreamedReply(_numbered(events), answers)
        *_, last = [event async for event in events]
    if last["type"] == "response.failed":
        raise ApiError(500, last["response"]["error"]["message"])
    response: dict[str, Any] = last["response"]
    return response


# ---- what was asked


def _read_format(parameters: Parameters) -> GrammarFields | None:
    text = parameters.object("text")
    if text is None:
        return None
    given = text.object("format")
    text.end()
    if given is None:
        return None
    kind = given.one_of("type", ("text", "json_object", "json_schema"), "text")
    if kind == "json_schema":
        return read_schema_format(given, "text.format.schema")
    given.end()
    return checked_grammar("text.format", kind) if kind == "json_object" else None


def _read_reasoning(parameters: Parameters) -> dict[str, Any]:
    """The effort goes to the chat template."""
    reasoning = parameters.object("reasoning")
    if reasoning is None:
        return {}
    effort = reasoning.text("effort")
    reasoning.end()
    return {} if effort is None else {"reasoning_effort": effort}


def _messages(given: Any, instructions: str | None) -> list[Item]:
    """`input` as chat messages."""
    messages: list[Item] = [] if instructions is None else [{"role": "system", "content": instructions}]
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise bad_request("input must be text or an array of at least one item", "input")
    thoughts = ""
    for n, item in enumerate(given):
        place = f"input[{n}]"
        if not isinstance(item, dict):
            raise bad_request(f"{place} must be an object", place)
        kind = item.get("type", "message")
        if kind == "reasoning":
            thoughts = "".join(
                part["text"] for part in item.get("content") or [] if isinstance(part, dict) and "text" in part
            )
            continue
        message = _message(item, kind, place, messages)
        if message is not None:
            messages.append(message | ({"reasoning_content": thoughts} if thoughts else {}))
        thoughts = ""
    return messages


def _message(item: Item, kind: Any, place: str, before: list[Item]) -> Item | None:
    """None if the item is one more call of the message before."""
    if kind == "message":
        return {"role": item.get("role"), "content": item.get("content")}
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
    if kind != "function_call":
        raise bad_request(f"{place} is of type {shown(kind)}, which is not supported", place)
    function = {"name": item.get("name"), "arguments": item.get("arguments", "{}")}
    call = {"id": item.get("call_id"), "type": "function", "function": function}
    if before and before[-1]["role"] == "assistant":
        before[-1].setdefault("tool_calls", []).append(call)
        return None
    return {"role": "assistant", "content": "", "tool_calls": [call]}


# ---- the answer


async def _numbered(events: AsyncIterator[dict[str, Any]]) -> AsyncIterator[ServerEvent]:
    number = 0
    async for event in events:
        yield ServerEvent(event | {"sequence_number": number}, event["type"])
        number += 1


async def _events(form: _Form, answers: Answers) -> AsyncIterator[dict[str, Any]]:
    """Every event of a response; the last one has the whole of it."""
    output = _Output()
    yield {"type": "response.created", "response": form.body("in_progress", [])}
    yield {"type": "response.in_progress", "response": form.body("in_progress", [])}
    reason = "stop"
    try:
        async for update in answers:
            for delta in update.deltas:
                for event in output.add(delta):
                    yield event
            reason = update.finish_reason or reason
    except ApiError as error:
        form.record.outcome, form.record.error = "error", error.message
        failure = {"code": error.code or "server_error", "message": error.message}
        yield {"type": "response.failed", "response": form.body("failed", output.items, error=failure)}
        return
    form.record.outcome = reason
    status = "incomplete" if reason == "length" else "completed"
    for event in output.close(status):
        yield event
    more: dict[str, Any] = {"usage": _usage(form.record, answers.reasoning_tokens)}
    if status == "incomplete":
        more["incomplete_details"] = {"reason": "max_output_tokens"}
    yield {"type": f"response.{status}", "response": form.body(status, output.items, **more)}


def _usage(record: Record, reasoning_tokens: int) -> dict[str, Any]:
    used = usage(record, reasoning_tokens)
    return {
        "input_tokens": used["prompt_tokens"],
        "input_tokens_details": used["prompt_tokens_details"],
        "output_tokens": used["completion_tokens"],
        "output_tokens_details": used["completion_tokens_details"],
        "total_tokens": used["total_tokens"],
    }


class _Output:
    """The items of a response, and the events that tell how they grow. The last item is the open one."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._open = ""  # the type of the open item

    def add(self, delta: Delta) -> Iterator[dict[str, Any]]:
        if isinstance(delta, CallBegun):
            yield from self._begin("function_call", {"call_id": new_id("call_"), "name": delta.name, "arguments": ""})
        elif isinstance(delta, CallArguments):
            self.items[-1]["arguments"] += delta.text
            yield self._event("response.function_call_arguments.delta", delta=delta.text)
        elif isinstance(delta, Text):
            if self._open != "message":
                yield from self._begin("message", {"role": "assistant", "content": []})
                yield self._add_part({"type": "output_text", "text": "", "annotations": [], "logprobs": []})
            self._part["text"] += delta.text
            yield self._event("response.output_text.delta", content_index=0, delta=delta.text, logprobs=[])
        else:
            assert isinstance(delta, Reasoning)
            if self._open != "reasoning":
                yield from self._begin("reasoning", {"summary": [], "content": []})
                yield self._add_part({"type": "reasoning_text", "text": ""})
            self._part["text"] += delta.text
            yield self._event("response.reasoning_text.delta", content_index=0, delta=delta.text)

    def close(self, status: str) -> Iterator[dict[str, Any]]:
        """The open item is complete, or as far as it will ever be."""
        if not self._open:
            return
        item, kind, self._open = self.items[-1], self._open, ""
        item["status"] = status
        if kind == "function_call":
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield self._event("response.function_call_arguments.done", **done)
        else:
            text = self._part["text"]
            if kind == "message":
                yield self._event("response.output_text.done", content_index=0, text=text, logprobs=[])
            else:
                yield self._event("response.reasoning_text.done", content_index=0, text=text)
            yield self._event("response.content_part.done", content_index=0, part=dict(self._part))
        yield {"type": "response.output_item.done", "output_index": len(self.items) - 1, "item": item}

    def _begin(self, kind: str, fields: Item) -> Iterator[dict[str, Any]]:
        yield from self.close("completed")
        prefix = {"message": "msg_", "function_call": "fc_", "reasoning": "rs_"}[kind]
        self.items.append({"id": new_id(prefix), "type": kind, "status": "in_progress", **fields})
        self._open = kind
        begun = {name: list(value) if isinstance(value, list) else value for name, value in self.items[-1].items()}
        yield {"type": "response.output_item.added", "output_index": len(self.items) - 1, "item": begun}

    def _add_part(self, part: Item) -> dict[str, Any]:
        self.items[-1]["content"].append(part)
        return self._event("response.content_part.added", content_index=0, part=dict(part))

    @property
    def _part(self) -> Item:
        part: Item = self.items[-1]["content"][0]
        return part

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "item_id": self.items[-1]["id"], "output_index": len(self.items) - 1, **fields}
