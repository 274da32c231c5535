"""What the front and a worker say to each other over the worker's stdin and stdout: JSON, each message with its length.

Both ends are the same code, so messages have no version.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Any, TypeAlias

from hightide.llm.template_pipe import pack as pack_json
from hightide.llm.template_pipe import receive as receive_json

PackedPrompt: TypeAlias = Sequence[int | tuple[str, str]]  # token ids, and media: the kind, and a file in base64

# ---- to the worker


@dataclass(frozen=True)
class Open:
    """The first message: the model, and the options of `hightide.Engine`."""

    model: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Submit:
    """Make an answer, or a vector if the model gives those.

    A sample that a worker before this one had begun goes on behind what it `made`.
    """

    job: int
    prompt: PackedPrompt
    options: dict[str, Any]  # of `Engine.submit`
    grammar: dict[str, Any] | None  # see `grammars`
    samples: list[tuple[int, int, list[int]]]  # number, seed, tokens made so far


@dataclass(frozen=True)
class Cancel:
    job: int


@dataclass(frozen=True)
class Close:
    """End in good order."""


# ---- from the worker


@dataclass(frozen=True)
class Ready:
    """The model is open."""

    context: int  # tokens
    vocabulary: int  # tokens
    device: str
    embeds: bool = False  # it gives vectors, not answers
    ranks: bool = False  # these are scores of a query with a document
    marks: dict[str, list[str] | None] = field(default_factory=dict)  # of the media that it takes; see `MediaMark`


@dataclass(frozen=True)
class NotOpened:
    """The model cannot be opened; the worker ends."""

    reason: str


@dataclass(frozen=True)
class Accepted:
    job: int
    prompt_tokens: int = 0  # with the rows of images and audio, if it has any


@dataclass(frozen=True)
class Refused:
    """The job cannot be done, and why."""

    job: int
    reason: str


@dataclass(frozen=True)
class News:
    """Tokens that were made, and samples that ended, in this order."""

    tokens: list[tuple[int, int, int, float | None, list[tuple[int, float]]]] = field(default_factory=list)
    """job, sample, token, log probability, likeliest tokens with theirs"""
    ended: list[tuple[int, int, str, str, int, str]] = field(default_factory=list)
    """job, sample, finish reason, error, prompt tokens that were found in the cache, vector (see `Ended`)"""


@dataclass(frozen=True)
class Beat:
    """Once a second, from a thread that never waits for the device. `stats` are the engine's, once it is open."""

    stats: dict[str, Any] | None


Message: TypeAlias = Open | Submit | Cancel | Close | Ready | NotOpened | Accepted | Refused | News | Beat
_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Open, Submit, Cancel, Close, Ready, NotOpened, Accepted, Refused, News, Beat)
}


def pack(message: Message) -> bytes:
    data = pack_json({"kind": type(message).__name__, **vars(message)})
    return len(data).to_bytes(8, "little") + data


def receive(pipe: IO[bytes]) -> Message | None:
    """The next message; None if the pipe ends before it does."""
    fields = receive_json(pipe)
    return None if fields is None else _message(fields)


async def receive_async(pipe: asyncio.StreamReader) -> Message | None:
    """The same for asyncio."""
    try:
        size = int.from_bytes(await pipe.readexactly(8), "little")
        data = await pipe.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return _message(json.loads(data.decode("utf-8", "surrogatepass")))


def _message(fields: dict[str, Any]) -> Message:
    message: Message = _KINDS[fields.pop("kind")](**fields)
    return message
