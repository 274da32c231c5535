"""What an endpoint gives back: JSON, or a stream of server-sent events; and a client that goes away meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

KEEP_ALIVE_SECONDS = 10.0  # between comments while there is nothing to send

Result = TypeVar("Result")


class Disconnected(Exception):
    """The client is gone."""


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class JsonReply(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content).encode("utf-8", "replace")  # of half characters in what a client sent


@dataclass(frozen=True)
class ServerEvent:
    """One event of a stream; Responses names its events."""

    data: Any  # text as it is, other values as JSON
    name: str | None = None

    def __bytes__(self) -> bytes:
        data = self.data if isinstance(self.data, str) else to_json(self.data)
        name = f"event: {self.name}\n" if self.name else ""
        return f"{name}data: {data}\n\n".encode("utf-8", "replace")


DONE = ServerEvent("[DONE]")


class EventStream(Response):
    """Server-sent events, with comments while there are none. `over` is called at its end, however that comes."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncIterator[ServerEvent], over: Callable[[bool], None], headers: Mapping[str, str]
    ) -> None:
        """`over` is told whether the client was there until the end."""
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **headers})
        del self.headers["content-length"]
        self._events, self._over = events, over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        complete = False
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await unless_disconnected(receive, self._send_all(send))
            complete = True
        except (Disconnected, OSError):
            pass
        finally:
            self._over(complete)

    async def _send_all(self, send: Send) -> None:
        async def send_body(data: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        events = aiter(self._events)
        coming: asyncio.Future[ServerEvent] = asyncio.ensure_future(anext(events))
        try:
            while True:
                await asyncio.wait([coming], timeout=KEEP_ALIVE_SECONDS)
                if not coming.done():
                    await send_body(b": still at work\n\n")
                    continue
                try:
                    event = coming.result()
                except StopAsyncIteration:
                    break
                await send_body(bytes(event))
                coming = asyncio.ensure_future(anext(events))
        finally:
            coming.cancel()
        await send_body(b"", more=False)


async def unless_disconnected(receive: Receive, work: Awaitable[Result]) -> Result:
    """The result of the work, which is cancelled when the client goes away; then Disconnected."""
    working: asyncio.Future[Result] = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnect(receive))
    both: list[asyncio.Future[Any]] = [working, leaving]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise Disconnected
    finally:
        for task in both:
            task.cancel()
        await asyncio.wait(both)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
