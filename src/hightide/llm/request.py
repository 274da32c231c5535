"""An answer that was asked of an engine: read it piece by piece, from any thread or from asyncio."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from hightide.errors import HightideError
from hightide.llm.answer import Completion, Piece, Stats
from hightide.llm.generation import Generation


class Request:
    """Iterate over it for the pieces as they arrive (`for` or `async for`), or wait for `result()`.

    With several samples (`n`) a piece says of which it is, and `results()` has them all.
    """

    def __init__(self, generations: Sequence[Generation], cancel: Callable[[Request], None]) -> None:
        self.generations = list(generations)
        self._cancel = cancel
        self._lock = threading.RLock()
        self._unread: deque[Piece] = deque()
        self._made: list[list[Piece]] = [[] for _ in generations]
        self._reasons: list[str] = ["" for _ in generations]
        self._error: BaseException | None = None
        self._wakes: list[Callable[[], None]] = []  # each is called once, when something is delivered
        self.deliver()  # what has ended already

    def __repr__(self) -> str:
        state = self.finish_reason or "going on"
        return f"<Request: {self.stats.prompt_tokens} prompt tokens, {self.stats.new_tokens} new ones, {state}>"

    @property
    def stats(self) -> Stats:
        return self.generations[0].stats

    @property
    def finish_reason(self) -> str:
        """Of the first sample: "stop", "length", "context", "closed" (cancelled) or "error" once it has ended."""
        return self._reasons[0]

    @property
    def ended(self) -> bool:
        return all(self._reasons)

    def __iter__(self) -> Request:
        return self

    def __next__(self) -> Piece:
        while True:
            with self._lock:
                if self._unread:
                    return self._unread.popleft()
                self._raise()
                if self.ended:
                    raise StopIteration
                sleeper = self._sleeper()
            sleeper.acquire()

    def __aiter__(self) -> Request:
        return self

    async def __anext__(self) -> Piece:
        while True:
            with self._lock:
                if self._unread:
                    return self._unread.popleft()
                self._raise()
                if self.ended:
                    raise StopAsyncIteration
                waiter = asyncio.get_running_loop().create_future()
                self._wakes.append(partial(_wake, waiter))
            await waiter

    def result(self, timeout: float | None = None) -> Completion:
        """The whole answer, of the first sample; TimeoutError after `timeout` seconds."""
        return self.results(timeout)[0]

    def results(self, timeout: float | None = None) -> list[Completion]:
        """The whole answers of all samples."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                if self.ended:
                    break
                sleeper = self._sleeper()
            if not sleeper.acquire(timeout=min(max(end - time.monotonic(), 0), threading.TIMEOUT_MAX)):
                raise TimeoutError(f"the answer is not complete after {timeout} s")
        self._raise()
        return [
            Completion(
                "".join(piece.text for piece in pieces),
                [piece.token for piece in pieces if piece.token >= 0],
                generation.stats,
                reason,
                list(pieces),
                generation.vector,
            )
            for pieces, generation, reason in zip(self._made, self.generations, self._reasons, strict=True)
        ]

    async def result_async(self) -> Completion:
        """`result` for asyncio."""
        async for _ in self:
            pass
        return self.result(0)

    def cancel(self) -> None:
        """End it at the next step; what was made so far can be read."""
        self._cancel(self)

    def deliver(self) -> None:
        """Hand over what the generations have made. Called by the step loop."""
        with self._lock:
            for n, generation in enumerate(self.generations):
                while generation.pieces:
                    piece = generation.pieces.popleft()
                    piece = piece if n == 0 else replace(piece, sample=n)
                    self._made[n].append(piece)
                    self._unread.append(piece)
                self._reasons[n] = generation.finish_reason
                self._error = self._error or generation.error
            wakes, self._wakes = self._wakes, []
        for wake in wakes:
            wake()

    def _sleeper(self) -> threading.Lock:
        """A lock that can be taken once there is something new. (A signal's handler that raises can break a
        `threading.Condition`: who waits for it is never told.)"""
        sleeper = threading.Lock()
        sleeper.acquire()
        self._wakes.append(sleeper.release)
        return sleeper

    def _raise(self) -> None:
        if self._error is not None and self.ended:
            raise _again(self._error)


def _again(error: BaseException) -> BaseException:
    """An error that may be raised in several threads: a new one each time."""
    if isinstance(error, HightideError):
        return type(error)(*error.args)
    return error


def _wake(waiter: asyncio.Future[None]) -> None:
    with suppress(RuntimeError):  # its loop was closed
        waiter.get_loop().call_soon_threadsafe(lambda: None if waiter.done() else waiter.set_result(None))
