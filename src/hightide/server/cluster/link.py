"""The front's connection to one replica: messages there and back, and how it is noticed that the replica is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import hightide
from hightide.errors import HightideError, describe, error_text
from hightide.server.cluster.replica_messages import Hello, Message, Named
from hightide.server.jobs import Job

SILENCE_SECONDS = 30.0  # without a message of the replica, before it is given up
SIGN_SECONDS = 10.0  # between signs of life to the replica
RETRY_SECONDS = 0.5

Hear = Callable[["ReplicaLink", str, Message], None]


class ReplicaLink:
    """One replica, as the front sees it, for as long as the server runs: Ray starts it again when it dies."""

    def __init__(
        self,
        name: str,
        handle: Any,
        hear: Hear,
        came: Callable[[ReplicaLink], None],
        lost: Callable[[ReplicaLink], None],
        log: Callable[[str], None],
    ) -> None:
        """`handle` is that of a deployment of `Replica`. `came` and `lost` are told of each connection."""
        self.name, self.machine, self.connected = name, "", False
        self.jobs: set[Job] = set()  # that it has under way, of all models
        self._handle, self._stream = handle, handle.options(stream=True)
        self._hear, self._came, self._lost, self._log = hear, came, lost, log
        self._outbox: asyncio.Queue[Named] = asyncio.Queue()

    def __str__(self) -> str:
        return f"replica {self.name} on {self.machine}"

    @property
    def load(self) -> int:
        """Answers that it has under way."""
        return sum(len(job.running) for job in self.jobs)

    def tell(self, model: str, message: Message) -> None:
        self._outbox.put_nowait((model, message))

    async def run(self) -> None:
        """Connect, and connect again."""
        complaint = ""
        while True:
            ending = await self._session()
            if self.connected:
                self.connected, complaint = False, ""
                self._log(f"{self} is gone ({ending}); others go on with its answers")
                self._lost(self)
            elif ending != complaint:
                complaint = ending
                self._log(f"replica {self.name} is not there: {ending}")
            await asyncio.sleep(RETRY_SECONDS)

    async def close(self) -> None:
        """Let the replica end its workers in good order."""
        await self._handle.close.remote()

    async def _session(self) -> str:
        """A connection, until it breaks; gives why."""
        session = uuid4().hex
        self._outbox = asyncio.Queue()
        sending: asyncio.Future[None] | None = None
        stream = self._stream.listen.remote(session)
        try:
            first = await anext(stream)  # Ray may first have to find a machine for it
            self._greet(first[0][1])
            sending = asyncio.ensure_future(self._send(session))
            sending.add_done_callback(lambda _: stream.cancel())
            self._came(self)
            messages = first[1:]
            while True:
                for model, message in messages:
                    self._hear(self, model, message)
                messages = await asyncio.wait_for(anext(stream), SILENCE_SECONDS)
        except StopAsyncIteration:
            return "it ended the connection"
        except asyncio.TimeoutError:
            return f"no sign of life for {SILENCE_SECONDS:g} s"
        except Exception as error:
            cause = sending.exception() if sending is not None and sending.done() and not sending.cancelled() else None
            return _reason(cause or error)
        finally:
            if sending is not None:
                sending.cancel()
            stream.cancel()

    def _greet(self, message: Message) -> None:
        assert isinstance(message, Hello)
        self.machine = message.machine
        if message.version != hightide.__version__:
            raise HightideError(
                f"{self.machine} has hightide {message.version}; install {hightide.__version__}, as here"
            )
        self.connected = True

    async def _send(self, session: str) -> None:
        while True:
            messages: list[Named] = []
            with suppress(asyncio.TimeoutError):
                messages.append(await asyncio.wait_for(self._outbox.get(), SIGN_SECONDS))
            while not self._outbox.empty():
                messages.append(self._outbox.get_nowait())
            await self._handle.tell.remote(session, messages)


def _reason(error: BaseException) -> str:
    return error_text(error) if isinstance(error, HightideError) else describe(error)[:160]  # Ray says a lot
