"""`/v1/chat/completions`"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from hightide.server.answers import Answers, Update
from hightide.server.api_errors import bad_request
from hightide.server.deltas import CallArguments, CallBegun, Reasoning, Text
from hightide.server.jobs import Token
from hightide.server.parameters import MAX_SAMPLES, MAX_TOP_LOGPROBS, Parameters, read_sampling
from hightide.server.prompts import check_room, read_chat_prompt
from hightide.server.records import MAX_USER, Record
from hightide.server.replies import DONE, ServerEvent
from hightide.server.reply_parts import Call, CompletionForm, WholeAnswer, chat_logprobs, new_id, usage
from hightide.server.service import Reply, Service, StreamedReply
from hightide.server.tools import read_tool_use

# Names that a template is given by the server itself.
_OWN_VARIABLES = ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "tokenizer", "context")


async def chat_completions(service: Service, body: dict[str, Any], record: Record) -> Reply:
    parameters = Parameters(body)
    model, facts = await service.model(parameters, record)
    record.user = (parameters.text("user") or "")[:MAX_USER]
    stream, usage_chunk = read_stream(parameters)
    tools = read_tool_use(parameters, nested=True)
    samples = parameters.integer("n", 1, MAX_SAMPLES, 1) or 1
    logprobs = _read_logprobs(parameters)
    max_tokens = _read_max_tokens(parameters)
    sampling = read_sampling(parameters, model, max_tokens, logprobs, samples, tools.grammar())
    variables = _read_variables(parameters)
    messages = parameters.array("messages")
    read_no_ops(parameters)
    parameters.end()
    prompt = await read_chat_prompt(model.tokenizer, facts, messages, tools, variables)
    check_room(prompt, facts, max_tokens, "messages")
    answers = Answers(model, [prompt], sampling, record, tools)
    form = CompletionForm(new_id("chatcmpl-"), model, record, samples, logprobs, usage_chunk)
    async with answers.begun(service.request_seconds):
        return StreamedReply(_chunks(form, answers), answers) if stream else await _whole(form, answers)


def read_stream(parameters: Parameters) -> tuple[bool, bool]:
    """Whether to stream, and whether the stream ends with the usage."""
    stream = parameters.boolean("stream")
    options = parameters.object("stream_options")
    if options is None:
        return stream, False
    if not stream:
        raise bad_request("stream_options needs stream", "stream_options")
    usage_chunk = options.boolean("include_usage")
    options.end()
    return stream, usage_chunk


def read_no_ops(parameters: Parameters) -> None:
    """Values that ask for what is done anyway."""
    parameters.one_of("service_tier", ("auto", "default"), "auto")
    for name in ("safety_identifier", "prompt_cache_key"):  # of a shared service; prompts are cached in any case
        parameters.text(name)
    if parameters.boolean("store"):
        raise bad_request("store is not supported: nothing is kept", "store")
    if parameters.take("modalities", ["text"]) != ["text"]:
        raise bad_request("modalities can be text only", "modalities")


def _read_max_tokens(parameters: Parameters) -> int | None:
    old = parameters.integer("max_tokens", 1, 2**31 - 1)
    new = parameters.integer("max_completion_tokens", 1, 2**31 - 1)
    if old is not None and new is not None and old != new:
        raise bad_request("max_tokens and max_completion_tokens differ; give one of them", "max_tokens")
    return old if new is None else new


def _read_logprobs(parameters: Parameters) -> int | None:
    wanted = parameters.boolean("logprobs")
    top = parameters.integer("top_logprobs", 0, MAX_TOP_LOGPROBS)
    if top is not None and not wanted:
        raise bad_request("top_logprobs needs logprobs", "top_logprobs")
    return (top or 0) if wanted else None


def _read_variables(parameters: Parameters) -> dict[str, Any]:
    """What the chat template is given besides the messages."""
    variables = parameters.take("chat_template_kwargs", {})
    if not isinstance(variables, dict):
        raise parameters.wrong("chat_template_kwargs", "an object", variables)
    if own := next((name for name in variables if name in _OWN_VARIABLES or not name.isidentifier()), None):
        raise bad_request(f"chat_template_kwargs cannot have {own!r}", "chat_template_kwargs")
    effort = parameters.text("reasoning_effort")
    return dict(variables) if effort is None else {"reasoning_effort": effort, **variables}


async def _whole(form: CompletionForm, answers: Answers) -> dict[str, Any]:
    whole = [WholeAnswer() for _ in range(form.samples)]
    async for update in answers:
        whole[update.choice].add(update)
    choices = [_choice(form, n, answer) for n, answer in enumerate(whole)]
    form.record.outcome = choices[0]["finish_reason"]
    return form.body("chat.completion", choices) | {"usage": usage(form.record, answers.reasoning_tokens)}


def _choice(form: CompletionForm, index: int, answer: WholeAnswer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["content"] = answer.text or None
        message["tool_calls"] = [_call(call) for call in answer.calls]
    logprobs = None if form.logprobs is None else chat_logprobs(form.model.tokenizer, answer.tokens, form.logprobs)
    finish_reason = _finish_reason(answer.finish_reason, bool(answer.calls))
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish_reason}


def _call(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _finish_reason(reason: str, has_calls: bool) -> str:
    return "tool_calls" if has_calls and reason == "stop" else reason


async def _chunks(form: CompletionForm, answers: Answers) -> AsyncIterator[ServerEvent]:
    """The role first, then what is new, then why it ended; usage and [DONE] last."""
    writers = [_ChunkWriter(form, n) for n in range(form.samples)]
    for writer in writers:
        yield writer.chunk({"role": "assistant", "content": ""})
    async for update in answers:
        for event in writers[update.choice].events(update):
            yield event
    if form.usage_chunk:
        yield ServerEvent(_chunk_body(form, [], usage(form.record, answers.reasoning_tokens)))
    yield DONE


class _ChunkWriter:
    """The chunks of one answer."""

    def __init__(self, form: CompletionForm, index: int) -> None:
        self._form, self._index = form, index
        self._tokens: list[Token] = []  # whose log probabilities are to be reported
        self._has_calls = False

    def events(self, update: Update) -> list[ServerEvent]:
        if update.token is not None:
            self._tokens.append(update.token)
        events = [self.chunk(self._delta(delta)) for delta in update.deltas]
        if update.finish_reason is not None:
            reason = _finish_reason(update.finish_reason, self._has_calls)
            self._form.record.outcome = reason
            events.append(self.chunk({}, reason))
        return events

    def _delta(self, delta: Text | Reasoning | CallBegun | CallArguments) -> dict[str, Any]:
        if isinstance(delta, Text):
            return {"content": delta.text}
        if isinstance(delta, Reasoning):
            return {"reasoning_content": delta.text}
        if isinstance(delta, CallBegun):
            self._has_calls = True
            return {"tool_calls": [{"index": delta.index, **_call(Call(delta.name))}]}
        return {"tool_calls": [{"index": delta.index, "function": {"arguments": delta.text}}]}

    def chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> ServerEvent:
        logprobs = None
        if self._form.logprobs is not None and self._tokens:
            logprobs = chat_logprobs(self._form.model.tokenizer, self._tokens, self._form.logprobs)
            self._tokens = []
        choice = {"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return ServerEvent(_chunk_body(self._form, [choice], None))


def _chunk_body(form: CompletionForm, choices: list[dict[str, Any]], used: dict[str, Any] | None) -> dict[str, Any]:
    return form.body("chat.completion.chunk", choices) | ({"usage": used} if form.usage_chunk else {})
