"""Chat messages to token ids: the model's template writes the text, its tokenizer reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hightide.errors import InputError
from hightide.llm.chat_template import Message, render
from hightide.llm.tokenizer import Tokenizer

MAX_TOKEN_CHARACTERS = 256  # the longest tokens of real vocabularies are runs of 128 spaces


@dataclass(frozen=True)
class ChatPrompt:
    text: str  # as the template wrote it
    ids: list[int]


def chat_prompt(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    context: int,
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    **variables: Any,
) -> ChatPrompt:
    """The prompt of a conversation; InputError if a context of so many tokens cannot hold it by any means."""
    bos = tokenizer.token(tokenizer.bos_id) if tokenizer.bos_id is not None else ""
    eos = tokenizer.token(tokenizer.eos_ids[0]) if tokenizer.eos_ids else ""
    text = render(tokenizer.chat_template, messages, bos_token=bos, eos_token=eos, tools=tools, **variables)
    check_length(text, context)
    # A template that writes the BOS token itself must not get a second one.
    return ChatPrompt(text, tokenizer.encode(text, special=True, bos=False if bos and text.startswith(bos) else None))


def check_length(text: str, context: int) -> None:
    """Before it takes the tokenizer minutes."""
    if len(text) > context * MAX_TOKEN_CHARACTERS:
        raise InputError(f"the prompt has {len(text)} characters, too many for a context of {context} tokens")
