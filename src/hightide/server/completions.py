"""`/v1/completions`: text that goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from hightide.server.answers import Answers
from hightide.server.api_errors import bad_request
from hightide.server.chat import read_no_ops, read_stream
from hightide.server.deltas import Text
from hightide.server.jobs import Token
from hightide.server.models import ServedModel
from hightide.server.parameters import MAX_SAMPLES, MAX_TOP_LOGPROBS, Parameters, read_sampling
from hightide.server.prompts import Prompt, check_room, read_text_prompt
from hightide.server.records import MAX_USER, Record
from hightide.server.replies import DONE, ServerEvent
from hightide.server.reply_parts import CompletionForm, WholeAnswer, finite, new_id, token_text, usage
from hightide.server.service import Reply, Service, StreamedReply

MAX_PROMPTS = 64
DEFAULT_MAX_TOKENS = 16  # as the API has it


@dataclass(frozen=True, kw_only=True)
class _Form(CompletionForm):
    prompts: list[str]  # to be repeated before each answer
    wanted: int  # answers to each prompt in the reply


async def completions(service: Service, body: dict[str, Any], record: Record) -> Reply:
    parameters = Parameters(body)
    model, facts = await service.model(parameters, record)
    record.user = (parameters.text("user") or "")[:MAX_USER]
    stream, usage_chunk = read_stream(parameters)
    wanted = parameters.integer("n", 1, MAX_SAMPLES, 1) or 1
    samples = parameters.integer("best_of", wanted, MAX_SAMPLES, wanted) or wanted
    logprobs = parameters.integer("logprobs", 0, MAX_TOP_LOGPROBS)
    echo = parameters.boolean("echo")
    max_tokens = parameters.integer("max_tokens", 0, 2**31 - 1, DEFAULT_MAX_TOKENS)
    if stream and samples > wanted:
        raise bad_request("best_of cannot be streamed: the best answer is known at the end", "best_of")
    if echo and logprobs is not None:
        raise bad_request("echo with logprobs is not supported: prompts have no log probabilities", "echo")
    compared = logprobs if samples == wanted else logprobs or 0
    sampling = read_sampling(parameters, model, max_tokens, compared, samples)
    given = parameters.take("prompt")
    read_no_ops(parameters)
    parameters.end()
    prompts = [await read_text_prompt(model.tokenizer, facts, prompt) for prompt in _prompts(given)]
    for prompt in prompts:
        check_room(prompt, facts, max_tokens, "prompt")
    answers = Answers(model, prompts, sampling, record)
    echoed = [_echo(model, prompt) if echo else "" for prompt in prompts]
    form = _Form(new_id("cmpl-"), model, record, samples, logprobs, usage_chunk, prompts=echoed, wanted=wanted)
    async with answers.begun(service.request_seconds):
        return StreamedReply(_chunks(form, answers), answers) if stream else await _whole(form, answers)


def _prompts(given: Any) -> list[Any]:
    """One prompt or several, each text or token ids."""
    if given is None:
        raise bad_request("prompt is missing", "prompt")
    several = isinstance(given, list) and bool(given) and all(isinstance(item, str | list) for item in given)
    prompts = given if several else [given]
    if len(prompts) > MAX_PROMPTS:
        raise bad_request(f"a request can have {MAX_PROMPTS} prompts, not {len(prompts)}", "prompt")
    return list(prompts)


def _echo(model: ServedModel, prompt: Prompt) -> str:
    return (
        model.tokenizer.decode(id for id in prompt.ids if isinstance(id, int)) if prompt.text is None else prompt.text
    )


async def _whole(form: _Form, answers: Answers) -> dict[str, Any]:
    whole = [WholeAnswer(text=prompt) for prompt in form.prompts for _ in range(form.samples)]
    async for update in answers:
        whole[update.choice].add(update)
    form.record.outcome = whole[0].finish_reason
    kept: list[WholeAnswer] = []
    for first in range(0, len(whole), form.samples):
        ranked = sorted(whole[first : first + form.samples], key=lambda answer: -answer.mean_logprob)
        kept += ranked[: form.wanted] if form.samples > form.wanted else whole[first : first + form.samples]
    choices = [
        {
            "index": index,
            "text": answer.text,
            "logprobs": _logprobs(form, answer.tokens, 0),
            "finish_reason": answer.finish_reason,
        }
        for index, answer in enumerate(kept)
    ]
    return form.body("text_completion", choices) | {"usage": usage(form.record, 0)}


async def _chunks(form: _Form, answers: Answers) -> AsyncIterator[ServerEvent]:
    unreported: dict[int, list[Token]] = {}
    offsets: dict[int, int] = {}
    for choice in range(len(form.prompts) * form.samples):
        if text := form.prompts[choice // form.samples]:
            yield _chunk(form, choice, text, None, None)
    async for update in answers:
        choice = update.choice
        tokens = unreported.setdefault(choice, [])
        if update.token is not None:
            tokens.append(update.token)
        text = "".join(delta.text for delta in update.deltas if isinstance(delta, Text))
        if text:
            logprobs = _logprobs(form, tokens, offsets.get(choice, 0))
            offsets[choice] = offsets.get(choice, 0) + sum(_length(form, token) for token in tokens)
            unreported[choice] = []
            yield _chunk(form, choice, text, logprobs, None)
        if update.finish_reason is not None:
            form.record.outcome = update.finish_reason
            logprobs = _logprobs(form, unreported[choice], offsets.get(choice, 0))
            yield _chunk(form, choice, "", logprobs, update.finish_reason)
    if form.usage_chunk:
        yield ServerEvent(form.body("text_completion", []) | {"usage": usage(form.record, 0)})
    yield DONE


def _chunk(form: _Form, index: int, text: str, logprobs: dict[str, Any] | None, reason: str | None) -> ServerEvent:
    choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
    return ServerEvent(form.body("text_completion", [choice]) | ({"usage": None} if form.usage_chunk else {}))


def _length(form: _Form, token: Token) -> int:
    return len(token_text(form.model.tokenizer, token.id))


def _logprobs(form: _Form, tokens: list[Token], offset: int) -> dict[str, Any] | None:
    """As Completions reports them: lists beside each other."""
    if form.logprobs is None:
        return None
    tokenizer = form.model.tokenizer
    texts = [token_text(tokenizer, token.id) for token in tokens]
    return {
        "tokens": texts,
        "token_logprobs": [finite(token.logprob) for token in tokens],
        "top_logprobs": [
            {token_text(tokenizer, other): finite(logprob) for other, logprob in token.alternatives[: form.logprobs]}
            for token in tokens
        ],
        "text_offset": [offset + sum(map(len, texts[:n])) for n in range(len(texts))],
    }
