"""Answers as they are made: jobs of a worker in, deltas of text, thoughts and calls out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from hightide.errors import HightideError
from hightide.llm.text_stream import TextStream
from hightide.server.api_errors import ApiError
from hightide.server.deltas import CallArguments, CallBegun, Delta, Reasoning, Text
from hightide.server.jobs import Ended, Event, Job, JobRefused, JobTimedOut, QueueFull, Token
from hightide.server.models import ServedModel
from hightide.server.parameters import AnswerOptions
from hightide.server.prompts import Prompt
from hightide.server.reasoning import ReasoningSplitter
from hightide.server.records import Record
from hightide.server.tool_calls import ToolCallParser
from hightide.server.tools import ToolUse

RETRY_SECONDS = 5  # what a client is told that finds the queue full


@dataclass(frozen=True)
class Update:
    """What is new in one of the answers."""

    choice: int
    deltas: list[Delta] = field(default_factory=list)
    token: Token | None = None
    finish_reason: str | None = None  # "stop" or "length", in the last update of an answer
    vector: str = ""  # see `Ended`


class Answers:
    """The answers to the prompts of one request, numbered through: those to the first prompt, to the second, ..."""

    def __init__(
        self,
        model: ServedModel,
        prompts: list[Prompt],
        sampling: AnswerOptions,
        record: Record,
        tools: ToolUse | None = None,
    ) -> None:
        """`tools`: the answers are those of a chat, in which thoughts and calls of these tools are looked for."""
        self._model, self._prompts, self._sampling, self._record = model, prompts, sampling, record
        self._queue: asyncio.Queue[tuple[int, Event | HightideError]] = asyncio.Queue()
        self._jobs: list[Job] = []
        self._readers = [_Reader(model, prompt, sampling, tools) for prompt in prompts for _ in sampling.seeds]
        self._timer: asyncio.TimerHandle | None = None
        record.prompt_tokens = sum(len(prompt.ids) for prompt in prompts)

    @property
    def reasoning_tokens(self) -> int:
        return sum(reader.reasoning_tokens for reader in self._readers)

    @asynccontextmanager
    async def begun(self, seconds: float) -> AsyncIterator[None]:
        """As `begin`; an error inside cancels them."""
        try:
            await self.begin(seconds)
            yield
        except BaseException:
            self.cancel()
            raise

    async def begin(self, seconds: float) -> None:
        """Wait until the engine has taken the prompts; ApiError if it does not. They may take so many seconds."""
        runner, sampling = self._model.runner, self._sampling
        try:
            for n, prompt in enumerate(self._prompts):
                tell = _Teller(self._queue, n * len(sampling.seeds))
                job = runner.submit(prompt.ids, sampling.options, sampling.seeds, sampling.grammar, tell)
                self._jobs.append(job)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._time_out, seconds)
            for job in self._jobs:
                await job.accepted.wait()
                if job.error is not None:
                    raise job.error
            self._record.prompt_tokens = sum(job.prompt_tokens or len(job.prompt) for job in self._jobs)
        except HightideError as error:
            raise as_api_error(error) from None

    def _time_out(self, seconds: float) -> None:
        for job in self._jobs:
            self._model.runner.end(job, JobTimedOut(f"the answer took longer than {seconds:g} s"))

    def cancel(self) -> None:
        """End what has not ended."""
        if self._timer is not None:
            self._timer.cancel()
        for job in self._jobs:
            self._model.runner.cancel(job)

    async def __aiter__(self) -> AsyncIterator[Update]:
        """Until all answers are complete; ApiError if one cannot be."""
        going = set(range(len(self._readers)))
        while going:
            choice, event = await self._queue.get()
            if isinstance(event, HightideError):
                raise as_api_error(event)
            if choice not in going:
                continue
            reader = self._readers[choice]
            if isinstance(event, Token):
                self._record.count_token()
                deltas = reader.feed(event.id)
                if not reader.stopped:
                    yield Update(choice, deltas, event)
                    continue
                yield Update(choice, deltas, event, "stop")
            else:
                self._record.cached_tokens = max(self._record.cached_tokens, event.reused_tokens)
                yield Update(choice, reader.flush(), None, _finish_reason(event), event.vector)
            going.discard(choice)
        self.cancel()


@dataclass(frozen=True)
class _Teller:
    """Puts what a job tells into the queue, under the number of the answer."""

    queue: asyncio.Queue[tuple[int, Event | HightideError]]
    first: int

    def __call__(self, event: Event | HightideError) -> None:
        sample = 0 if isinstance(event, HightideError) else event.sample
        self.queue.put_nowait((self.first + sample, event))


class _Reader:
    """One answer: tokens in, deltas out."""

    def __init__(self, model: ServedModel, prompt: Prompt, sampling: AnswerOptions, tools: ToolUse | None) -> None:
        chat, has_tools = tools is not None, tools is not None and bool(tools.tools)
        shown = (model.thought_ids if chat else frozenset()) | (model.tool_ids if has_tools else frozenset())
        # A grammar says what the text is, a space at its beginning too.
        continues = prompt.text is not None or sampling.grammar is not None
        self._text = TextStream(model.tokenizer, sampling.stops, special=shown, continues=continues)
        self._thoughts = ReasoningSplitter(prompt.thinks) if chat else None
        self._calls = ToolCallParser(tools.schemas) if tools is not None and has_tools else None
        self._one_call = tools is not None and not tools.parallel
        self.stopped = False  # at a stop string, or behind the only call
        self.reasoning_tokens = 0

    def feed(self, token: int) -> list[Delta]:
        deltas = self._deltas(self._text.feed(token))
        if self._thoughts is not None and self._thoughts.thinking:
            self.reasoning_tokens += 1
        if self._text.stopped is not None:
            self.stopped = True
            deltas += self.flush()
        return self._first_call(deltas)

    def flush(self) -> list[Delta]:
        deltas = self._deltas(self._text.flush())
        if self._thoughts is not None:
            deltas += self._split(*self._thoughts.flush())
        if self._calls is not None:
            deltas += self._calls.flush()
        return self._first_call(deltas)

    def _deltas(self, text: str) -> list[Delta]:
        if not text:
            return []
        if self._thoughts is None:
            return [Text(text)]
        return self._split(*self._thoughts.feed(text))

    def _split(self, thoughts: str, text: str) -> list[Delta]:
        deltas: list[Delta] = [Reasoning(thoughts)] if thoughts else []
        if text:
            deltas += [Text(text)] if self._calls is None else self._calls.feed(text)
        return deltas

    def _first_call(self, deltas: list[Delta]) -> list[Delta]:
        """Without parallel calls, an answer ends before its second one."""
        if not self._one_call:
            return deltas
        for n, delta in enumerate(deltas):
            if isinstance(delta, CallBegun | CallArguments) and delta.index > 0:
                self.stopped = True
                return deltas[:n]
        return deltas


def _finish_reason(event: Ended) -> str:
    return "length" if event.reason in ("length", "context") else "stop"


_FOLDERS = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?[/\\](?:[^\s/\\:'\"]+[/\\])+")


def as_api_error(error: HightideError) -> ApiError:
    """An error of the worker or the queue as the client sees it: without folders of this machine."""
    if isinstance(error, ApiError):
        return error
    message = _FOLDERS.sub("", str(error))
    if isinstance(error, JobRefused):
        return ApiError(400, message)
    if isinstance(error, QueueFull):
        return ApiError(429, message, code="queue_full", headers={"Retry-After": str(RETRY_SECONDS)})
    if isinstance(error, JobTimedOut):
        return ApiError(504, message, code="timeout")
    return ApiError(500, message)
