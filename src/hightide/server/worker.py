"""The worker: a process with one engine and its device, which hears from the front on stdin and tells it on stdout.

Run as `python -m hightide.server.worker` by the supervisor. It ends when stdin does, so also when the front is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Coroutine, Sequence
from dataclasses import asdict, astuple
from typing import IO, Any

import hightide
from hightide.errors import DeviceError, HightideError, describe, error_text
from hightide.llm.answer import Piece
from hightide.llm.generation import Generation
from hightide.llm.request import Request
from hightide.media.parts import Audio, Image, MediaPart
from hightide.server.grammars import make_grammar
from hightide.server.messages import (
    Accepted,
    Beat,
    Cancel,
    Close,
    Message,
    News,
    NotOpened,
    Open,
    Ready,
    Refused,
    Submit,
    pack,
    receive,
)

BEAT_SECONDS = 1.0
CLOSE_SECONDS = 30.0  # an engine saves its prefix cache


class Worker:
    """The engine, and the requests that are under way by the number of their job."""

    def __init__(self, commands: IO[bytes], answers: IO[bytes]) -> None:
        self._commands, self._answers = commands, answers
        self._writing = threading.Lock()
        self._engine: hightide.Engine | None = None
        self._jobs: dict[int, list[Request]] = {}
        self._cancelled: set[int] = set()  # of the jobs, before they were begun
        self._news = News()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = threading.Event()

    def run(self) -> None:
        opening = receive(self._commands)
        if not isinstance(opening, Open):
            return
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        loop, done = asyncio.new_event_loop(), asyncio.Event()
        threading.Thread(target=self._listen, args=(loop, done), name="commands", daemon=True).start()
        try:
            self._engine = hightide.Engine(opening.model, **opening.options)
        except (HightideError, OSError) as error:
            self._tell(NotOpened(error_text(error)))
            return
        decoder = self._engine.decoder
        marks = {kind: None if mark is None else list(astuple(mark)) for kind, mark in self._engine.marks.items()}
        embeds, ranks = bool(self._engine.pooling), self._engine.pooling == "rank"
        self._tell(Ready(self._engine.context, decoder.vocab_size, str(decoder.device), embeds, ranks, marks))
        loop.run_until_complete(done.wait())
        self._closed.set()
        self._engine.close()

    # ---- threads

    def _listen(self, loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
        while (message := receive(self._commands)) is not None:
            if isinstance(message, Close):
                loop.call_soon_threadsafe(done.set)
                time.sleep(CLOSE_SECONDS)
                os._exit(1)  # a device that hangs
            loop.call_soon_threadsafe(self._do, message)
        os._exit(0)  # the front is gone, and with it all who wait for answers

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            try:
                stats = None if self._engine is None else asdict(self._engine.stats())
            except HightideError:  # closed just now
                return
            self._tell(Beat(stats))

    def _tell(self, message: Message) -> None:
        try:
            with self._writing:
                self._answers.write(pack(message))
                self._answers.flush()
        except OSError:
            os._exit(0)  # the front is gone

    # ---- requests; all of this in the event loop's thread

    def _do(self, message: Message) -> None:
        if isinstance(message, Cancel):
            if message.job in self._jobs and not self._jobs[message.job]:
                self._cancelled.add(message.job)
            for request in self._jobs.get(message.job, ()):
                request.cancel()
        elif isinstance(message, Submit):
            self._jobs[message.job] = []
            self._start(self._begin(message))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, message: Submit) -> None:
        assert self._engine is not None
        try:
            if message.grammar is None and all(isinstance(item, int) for item in message.prompt):
                begun = submit(self._engine, message, None)
            else:  # others get their tokens while a grammar is compiled, or an image is read
                made = None if message.grammar is None else await asyncio.to_thread(make_grammar, message.grammar)
                begun = await asyncio.to_thread(submit, self._engine, message, made)
        except HightideError as error:
            del self._jobs[message.job]
            self._cancelled.discard(message.job)
            self._tell(Refused(message.job, error_text(error)))
            return
        except Exception as error:
            del self._jobs[message.job]
            for number, _, _ in message.samples:
                self._report_end(message.job, number, "error", describe(error))
            return
        self._jobs[message.job] = [request for _, request in begun]
        self._tell(Accepted(message.job, begun[0][1].stats.prompt_tokens))
        for numbers, request in begun:
            self._start(self._follow(message.job, numbers, request))
            if message.job in self._cancelled:
                request.cancel()
        self._cancelled.discard(message.job)

    async def _follow(self, job: int, numbers: list[int], request: Request) -> None:
        """Tell of each token, and of each sample's end as soon as all its tokens were told."""
        told = [0] * len(numbers)
        running = set(range(len(numbers)))

        def tell_ends() -> None:
            for n in sorted(running):
                generation = request.generations[n]
                if generation.ended and told[n] == generation.stats.new_tokens and generation.error is None:
                    running.discard(n)
                    self._report_end(job, numbers[n], generation.finish_reason, "", generation)

        try:
            async for piece in request:
                if piece.token >= 0:
                    told[piece.sample] += 1
                    self._report(job, numbers[piece.sample], piece)
                tell_ends()
            tell_ends()
        except DeviceError as error:
            # What is left of this process cannot be trusted; a new one reads the tokens again.
            print(f"hightide worker: {error_text(error)}", file=sys.stderr, flush=True)
            os._exit(1)
        except Exception as error:
            text = error_text(error) if isinstance(error, HightideError) else describe(error)
            for n in sorted(running):
                self._report_end(job, numbers[n], "error", text)
        if not any(not other.ended for other in self._jobs.get(job, ())):
            self._jobs.pop(job, None)

    def _report(self, job: int, sample: int, piece: Piece) -> None:
        self._wake()
        self._news.tokens.append((job, sample, piece.token, piece.logprob, list(piece.alternatives)))

    def _report_end(self, job: int, sample: int, reason: str, error: str, of: Generation | None = None) -> None:
        self._wake()
        reused = 0 if of is None else of.stats.reused_tokens
        vector = "" if of is None or of.vector is None else b64encode(of.vector.astype("<f4").tobytes()).decode()
        self._news.ended.append((job, sample, reason, error, reused, vector))

    def _wake(self) -> None:
        if not self._news.tokens and not self._news.ended:  # all that a step made goes into one message
            asyncio.get_running_loop().call_soon(self._send_news)

    def _send_news(self) -> None:
        news, self._news = self._news, News()
        self._tell(news)


def submit(engine: hightide.Engine, message: Submit, grammar: Any) -> list[tuple[list[int], Request]]:
    """The samples of a job as requests of the engine, with the numbers of the samples in each.

    New ones share one request, which reads the prompt once; those that were begun go on one by one.
    """
    if engine.pooling:
        ids = [item for item in message.prompt if isinstance(item, int)]
        return [([number], engine.submit_text(ids)) for number, _, _ in message.samples]
    options: dict[str, Any] = dict(message.options)
    if grammar is not None:
        options["grammar"] = grammar
    if "logit_bias" in options:  # JSON has made the ids text
        options["logit_bias"] = {int(token): bias for token, bias in options["logit_bias"].items()}
    prompt = engine.encode([unpacked(item) for item in message.prompt])
    if not any(made for _, _, made in message.samples):
        numbers = [number for number, _, _ in message.samples]
        seed = message.samples[0][1]
        return [(numbers, engine.submit(prompt, n=len(numbers), **options | {"seed": seed}))]
    begun: list[tuple[list[int], Request]] = []
    try:
        for number, seed, made in message.samples:
            resumed = engine.submit(prompt, made=made, **options | {"seed": seed})
            begun.append(([number], resumed))
    except BaseException:
        for _, request in begun:
            request.cancel()
        raise
    return begun


def unpacked(item: int | Sequence[str]) -> int | MediaPart:
    """An item of a `PackedPrompt`."""
    if isinstance(item, int):
        return item
    kind, data = item
    return (Image if kind == "image" else Audio)(b64decode(data))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the front, which then ends this process
    commands = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what anything else prints must not get between the messages
    Worker(commands, answers).run()
    sys.stderr.flush()
    os._exit(0)  # no thread of a driver may keep the process


if __name__ == "__main__":
    main()
