"""Chat messages to token ids: the model's template writes the text, its tokenizer reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from hightide.errors import InputError
from hightide.llm.chat_template import Message, render
from hightide.llm.media_marks import Marks, place_media, take_media, with_rows
from hightide.llm.tokenizer import Tokenizer
from hightide.media.parts import MediaPart

MAX_TOKEN_CHARACTERS = 256  # the longest tokens of real vocabularies are runs of 128 spaces
NO_MARKS: Marks = MappingProxyType({})  # of a model that takes text only


@dataclass(frozen=True)
class ChatPrompt:
    text: str  # as the template wrote it
    ids: list[int]  # -1 - n where the n-th of the media goes
    media: list[MediaPart] = field(default_factory=list)


def chat_prompt(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    context: int,
    *,
    marks: Marks = NO_MARKS,
    model: str = "the model",
    tools: Sequence[Mapping[str, Any]] | None = None,
    **variables: Any,
) -> ChatPrompt:
    """The prompt of a conversation; InputError if a context of so many tokens cannot hold it by any means.

    `marks` are of the kinds of media that the model takes; `model` is its name, for messages.
    """
    messages, media = take_media(messages, tokenizer.chat_template, marks, model)
    bos = tokenizer.token(tokenizer.bos_id) if tokenizer.bos_id is not None else ""
    eos = tokenizer.token(tokenizer.eos_ids[0]) if tokenizer.eos_ids else ""
    text = render(tokenizer.chat_template, messages, bos_token=bos, eos_token=eos, tools=tools, **variables)
    check_length(text, context)
    # A template that writes the BOS token itself must not get a second one.
    begun = False if bos and text.startswith(bos) else None
    ids = tokenizer.encode(with_rows(text, media, marks), special=True, bos=begun)
    return ChatPrompt(text, place_media(ids, media, marks, tokenizer), media)


def check_length(text: str, context: int) -> None:
    """Before it takes the tokenizer minutes."""
    if len(text) > context * MAX_TOKEN_CHARACTERS:
        raise InputError(f"the prompt has {len(text)} characters, too many for a context of {context} tokens")
