"""`hightide chat`: a conversation in the terminal, or line by line in a pipe."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hightide.cli.generate import describe
from hightide.cli.lines import is_interactive, piped_lines, typed_lines
from hightide.cli.options import (
    MODEL_HELP,
    WITHOUT_MODEL,
    Context,
    Device,
    Full,
    Kv,
    MinP,
    OnFull,
    RepetitionPenalty,
    Seed,
    Speculate,
    Tokenizer,
    TopK,
    TopP,
    note,
    open_timed,
    require_tokenizer,
    write_answer,
)
from hightide.errors import HightideError, InputError

if TYPE_CHECKING:
    from hightide.cli.conversation import Conversation

COMMANDS = {
    "/reset": "forget the conversation, but not the system message",
    "/save": "PATH  save the conversation as PATH.json and its keys and values as PATH.npz",
    "/load": "PATH  go on with a saved conversation",
    "/system": "TEXT  set the system message; without TEXT show it",
    "/stats": "times of the last answer, and device memory",
    "/help": "show this",
    "/quit": "end; so does Ctrl-D",
}
ENDS = {
    "interrupted": "stopped",
    "length": "stopped at --max-tokens",
    "context": "the context is full: /reset begins a new conversation",
}


def chat(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help=f"{MODEL_HELP} {WITHOUT_MODEL}")] = None,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest token; 0.7 is usual for variety.")] = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.05,
    repetition_penalty: RepetitionPenalty = 1.0,
    seed: Seed = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of an answer at most.")] = 512,
    speculate: Speculate = False,
    on_full: Full = OnFull.stop,
    tokenizer: Tokenizer = None,
    context: Context = None,
    device: Device = None,
    kv: Kv = None,
) -> None:
    """Talk to a model: answers stream to stdout, everything else goes to stderr.

    In a pipe every line is a message. Ctrl-C stops an answer; /help lists the commands.
    """
    from hightide.cli.conversation import Conversation
    from hightide.llm.default_model import remember

    llm, loading = open_timed(model, tokenizer, context, device, kv)
    require_tokenizer(llm)
    sampling = dict(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    options: dict[str, Any] = sampling | dict(repetition_penalty=repetition_penalty, seed=seed)
    options |= dict(max_tokens=max_tokens, speculate=speculate, on_full=on_full.value)
    conversation = Conversation(llm, options)
    conversation.system = system
    interactive = is_interactive()
    if interactive:
        note(f"{llm.path.name} on {llm.decoder.device}, context {llm.context}, loaded in {loading:.1f} s; /help")
    with _interrupts(interactive) as pressed:
        for line in typed_lines(list(COMMANDS)) if interactive else piped_lines():
            try:
                if command := re.match(r"/[a-z]+(?=\s|$)", line):
                    if command[0] == "/quit":
                        return
                    _obey(conversation, command[0], line[command.end() :].strip(), loading)
                elif line.strip():
                    _answer(conversation, line, pressed)
                    if model is not None:  # it works: the model of the next chat
                        remember(llm.path, tokenizer)
                        model = None
            except (HightideError, OSError) as error:
                if not interactive:
                    raise
                note(f"hightide: {error}")


def _answer(conversation: Conversation, text: str, pressed: list[int]) -> None:
    pressed.clear()
    pieces = conversation.answer(text, stopped=lambda: bool(pressed))
    reason, told = "", False
    while not reason:
        try:
            piece = next(pieces)
            if conversation.forgotten and not told:
                note(f"the context is full: the {conversation.forgotten} oldest messages are forgotten")
            told = True
            write_answer(piece)
        except StopIteration as stop:
            reason = stop.value
    write_answer("\n")
    stats, parts = conversation.last, []
    if stats and stats.new_tokens:
        parts.append(f"{stats.new_tokens} tokens at {stats.decode_rate:.1f} tok/s")
        parts.append(f"the first after {stats.time_to_first_token:.2f} s")
    if reason in ENDS:
        parts.append(ENDS[reason])
    note(f"[{', '.join(parts)}]")


def _obey(conversation: Conversation, command: str, rest: str, loading: float) -> None:
    match command:
        case "/reset":
            conversation.reset()
            note("forgotten")
        case "/save":
            note(f"saved {', '.join(map(str, conversation.save(_path(command, rest))))}")
        case "/load":
            reason = conversation.load(_path(command, rest))
            again = f"; it will be read again, since {reason}" if reason else ""
            note(f"loaded {len(conversation.messages)} messages{again}")
        case "/system":
            if rest:
                conversation.system = rest
            note(f"system message: {conversation.system or 'the one of the template, if it has one'}")
        case "/stats":
            if conversation.last is None:
                raise InputError("there is no answer yet")
            used = len(conversation.llm.tokens)
            note("\n".join(describe(conversation.llm, conversation.last, loading)))
            note(f"context        {used} of {conversation.llm.context} tokens used")
        case "/help":
            note("\n".join(f"{name:8} {meaning}" for name, meaning in COMMANDS.items()))
            note("Ctrl-C stops an answer, Alt-Enter begins a new line; a space before / makes it a message")
        case _:
            raise InputError(f"there is no command {command}; there are {' '.join(COMMANDS)}")


def _path(command: str, rest: str) -> Path:
    if not rest:
        raise InputError(f"{command} needs a path")
    return Path(rest)


@contextmanager
def _interrupts(caught: bool) -> Iterator[list[int]]:
    """Ctrl-C is only noted in this list: raised, it could be in the middle of a call. (While a line is typed
    it is prompt_toolkit's.)"""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number)) if caught else None
    try:
        yield pressed
    finally:
        if caught:
            signal.signal(signal.SIGINT, before)
