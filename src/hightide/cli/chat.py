"""`hightide chat`: a conversation in the terminal, or line by line in a pipe."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hightide.cli.conversation import Conversation
from hightide.cli.groups import grouped
from hightide.cli.lines import is_interactive, piped_lines, typed_lines
from hightide.cli.model import describe, open_model, require_tokenizer
from hightide.cli.options import (
    MODEL_HELP,
    WITHOUT_MODEL,
    MediaFiles,
    MinP,
    ModelOptions,
    SamplingOptions,
    note,
    write_answer,
)
from hightide.errors import HightideError, InputError, error_text
from hightide.llm.chat_template import prepare
from hightide.llm.default_model import remember
from hightide.llm.options import GenerationOptions
from hightide.media.parts import Audio, Image
from hightide.units import counted

COMMANDS = {
    "/reset": "forget the conversation, but keep the system message",
    "/save": "PATH  save the conversation to PATH.json, and its KV cache to PATH.npz",
    "/load": "PATH  continue a saved conversation",
    "/image": "PATH  show an image with the next message",
    "/audio": "PATH  play a WAV file with the next message",
    "/system": "TEXT  set the system message; without TEXT, show it",
    "/stats": "show the times of the last answer, and device memory",
    "/help": "show this list",
    "/quit": "quit; so does Ctrl-D",
}
ENDS = {
    "interrupted": "stopped",
    "length": "stopped at --max-tokens",
    "context": "the context is full; /reset starts a new conversation",
}


@dataclass(frozen=True)
class ChatSampling(SamplingOptions):
    """As elsewhere, but very unlikely tokens are left out."""

    min_p: MinP = 0.05


@grouped
def chat(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help=f"{MODEL_HELP} {WITHOUT_MODEL}")] = None,
    *,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens in one answer.")] = 512,
    media: MediaFiles,
    sampling: ChatSampling,
    opening: ModelOptions,
) -> None:
    """Chat with a model.

    Answers stream to stdout; everything else goes to stderr.
    In a pipe, every line is a message.
    Ctrl-C stops an answer; /help lists the commands.
    """
    options = sampling.by_name() | {"max_tokens": max_tokens}
    GenerationOptions().changed(options)  # what is wrong is said before the model is loaded
    prepare()
    llm, seconds = open_model(model, opening)
    with llm:
        require_tokenizer(llm)
        conversation = Conversation(llm, options)
        conversation.system = system
        conversation.shown = media.parts()
        interactive = is_interactive()
        if interactive:
            note(f"{llm.path.name} on {llm.decoder.device}, context {llm.context}, loaded in {seconds:.1f} s; /help")
        for _ in _answers(conversation, interactive, seconds):
            if model is not None:  # it works: the model of the next chat
                remember(llm.path, opening.tokenizer)


def _answers(conversation: Conversation, interactive: bool, seconds: float) -> Iterator[None]:
    """Answers every message and obeys every command; yields after each answer."""
    with noted_interrupts(interactive) as pressed:
        for line in typed_lines(list(COMMANDS)) if interactive else piped_lines():
            try:
                if command := re.match(r"/[a-z]+(?=\s|$)", line):
                    if command[0] == "/quit":
                        return
                    _obey(conversation, command[0], line[command.end() :].strip(), seconds)
                elif line.strip():
                    _answer(conversation, line, pressed)
                    yield
            except (HightideError, OSError) as error:
                if not interactive:
                    raise
                note(f"hightide: {error_text(error)}")


def _answer(conversation: Conversation, text: str, pressed: list[int]) -> None:
    pressed.clear()
    pieces = conversation.answer(text, stopped=lambda: bool(pressed))
    reason, told = "", False
    while not reason:
        try:
            piece = next(pieces)
            if conversation.forgotten and not told:
                note(f"the context is full; the {conversation.forgotten} oldest messages were dropped")
            told = True
            write_answer(piece)
        except StopIteration as stop:
            reason = stop.value
    write_answer("\n")
    stats, parts = conversation.last, []
    if stats and stats.new_tokens:
        parts.append(f"{counted(stats.new_tokens, 'token')} at {stats.decode_rate:.1f} tok/s")
        parts.append(f"the first after {stats.time_to_first_token:.2f} s")
    if reason in ENDS:
        parts.append(ENDS[reason])
    note(f"[{', '.join(parts)}]")


def _obey(conversation: Conversation, command: str, rest: str, seconds: float) -> None:
    match command:
        case "/reset":
            conversation.reset()
            note("started a new conversation")
        case "/save":
            note(f"saved {', '.join(map(str, conversation.save(_path(command, rest))))}")
        case "/load":
            reason = conversation.load(_path(command, rest))
            again = f"; they will be read again, because {reason}" if reason else ""
            note(f"loaded {counted(len(conversation.messages), 'message')}{again}")
        case "/system":
            if rest:
                conversation.system = rest
            note(f"system message: {conversation.system or 'that of the chat template, if any'}")
        case "/image" | "/audio":
            part = (Image if command == "/image" else Audio)(_path(command, rest).expanduser())
            part.load()  # what is wrong with it is said now
            conversation.shown.append(part)
            note(f"{rest} goes with the next message")
        case "/stats":
            if conversation.last is None:
                raise InputError("there is no answer yet to show the times of")
            used = len(conversation.llm.tokens)
            note("\n".join(describe(conversation.llm, conversation.last, seconds)))
            note(f"context        {used} of {conversation.llm.context} tokens used")
        case "/help":
            note("\n".join(f"{name:8} {meaning}" for name, meaning in COMMANDS.items()))
            note("Ctrl-C stops an answer; Alt-Enter starts a new line; a message may begin with / after a space")
        case _:
            raise InputError(f"there is no command {command}; the commands are {' '.join(COMMANDS)}")


def _path(command: str, rest: str) -> Path:
    if not rest:
        raise InputError(f"{command} needs a path")
    return Path(rest)


@contextmanager
def noted_interrupts(caught: bool) -> Iterator[list[int]]:
    """Ctrl-C only adds to this list: as an exception it could tear a call apart. (While a line is typed, it goes to
    prompt_toolkit.)"""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number)) if caught else None
    try:
        yield pressed
    finally:
        if caught:
            signal.signal(signal.SIGINT, before)
