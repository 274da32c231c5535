"""Parts of replies that the endpoints share: usage, log probabilities, calls, and an answer put together."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from hightide.llm.tokenizer import Tokenizer
from hightide.server.answers import Update
from hightide.server.deltas import CallArguments, CallBegun, Reasoning, Text
from hightide.server.jobs import Token
from hightide.server.models import ServedModel
from hightide.server.records import Record

LEAST_LOGPROB = -9999.0  # stands for zero probability, which JSON cannot write


def new_id(prefix: str) -> str:
    return f"{prefix}{uuid.uuid4().hex}"


@dataclass(frozen=True)
class CompletionForm:
    """How a chat completion, or a completion, is to be written."""

    id: str
    model: ServedModel
    record: Record
    samples: int  # that are made of each prompt
    logprobs: int | None  # alternatives to each token; None for no report
    usage_chunk: bool
    created: int = field(default_factory=lambda: int(time.time()))

    def body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model.name,
            "choices": choices,
        }


@dataclass
class Call:
    name: str
    arguments: str = ""
    id: str = field(default_factory=lambda: new_id("call_"))


@dataclass
class WholeAnswer:
    """An answer, put together from its updates."""

    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    finish_reason: str = ""

    def add(self, update: Update) -> None:
        for delta in update.deltas:
            if isinstance(delta, Text):
                self.text += delta.text
            elif isinstance(delta, Reasoning):
                self.reasoning += delta.text
            elif isinstance(delta, CallBegun):
                self.calls.append(Call(delta.name))
            elif isinstance(delta, CallArguments):
                self.calls[delta.index].arguments += delta.text
        if update.token is not None:
            self.tokens.append(update.token)
        if update.finish_reason is not None:
            self.finish_reason = update.finish_reason

    @property
    def mean_logprob(self) -> float:
        return sum(token.logprob or 0.0 for token in self.tokens) / max(1, len(self.tokens))


def usage(record: Record, reasoning_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.new_tokens,
        "total_tokens": record.prompt_tokens + record.new_tokens,
        "prompt_tokens_details": {"cached_tokens": record.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
    }


def token_text(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.piece(token, made=True).decode("utf-8", "replace")


def finite(logprob: float | None) -> float:
    return LEAST_LOGPROB if logprob is None else max(logprob, LEAST_LOGPROB)


def chat_logprobs(tokenizer: Tokenizer, tokens: list[Token], top: int) -> dict[str, Any]:
    """As Chat Completions reports them, with the `top` likeliest tokens at each place."""

    def entry(token: int, logprob: float | None) -> dict[str, Any]:
        piece = tokenizer.piece(token, made=True)
        return {"token": piece.decode("utf-8", "replace"), "logprob": finite(logprob), "bytes": list(piece)}

    content = [
        {**entry(token.id, token.logprob), "top_logprobs": [entry(*other) for other in token.alternatives[:top]]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}
