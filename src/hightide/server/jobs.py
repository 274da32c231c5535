"""A job: a prompt, the answers to it as they are made, and what can go wrong with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hightide.errors import HightideError
from hightide.server.messages import PackedPrompt


@dataclass(frozen=True)
class Token:
    """A token of a sample."""

    sample: int
    id: int
    logprob: float | None
    alternatives: Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Ended:
    """A sample is complete."""

    sample: int
    reason: str  # "stop", "length", "context" or "closed"
    reused_tokens: int  # of the prompt, found in the KV cache
    vector: str = ""  # of a model that gives embeddings: float32 numbers, the lowest byte first, in base64


class JobRefused(HightideError):
    """The engine does not take the job: what it asks for cannot be."""


class JobFailed(HightideError):
    """The job was begun and cannot be finished."""


class ModelNotOpened(JobFailed):
    """The model that the job needs cannot be opened."""


class JobTimedOut(HightideError):
    """The job took longer than a request may."""


class QueueFull(HightideError):
    """More requests wait than may."""


Event: TypeAlias = Token | Ended


@dataclass(eq=False)
class Job:
    """A prompt and the answers to it, as they are made."""

    number: int
    prompt: PackedPrompt
    options: dict[str, Any]
    grammar: dict[str, Any] | None
    seeds: list[int]  # one per sample
    tell: Callable[[Event | HightideError], None]  # of each token and end; of an error last
    made: list[list[int]] = field(default_factory=list)  # the tokens of each sample so far
    running: set[int] = field(default_factory=set)  # samples that have not ended
    prompt_tokens: int = 0  # of a prompt with images or audio, once the engine has counted them
    deaths: int = 0
    submitted: bool = False  # to the worker that runs now
    accepted: asyncio.Event = field(default_factory=asyncio.Event)  # or over already
    error: HightideError | None = None  # why it is over

    def fail(self, error: HightideError) -> None:
        self.error = error
        self.tell(error)
        self.accepted.set()
