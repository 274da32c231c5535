"""A worker process, from the outside: started, told, killed, closed."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress
from typing import Any

from hightide.server.messages import Close, Message, Open, pack
from hightide.server.security import KEY_VARIABLE

CLOSE_SECONDS = 35.0  # a worker ends itself after 30


class WorkerProcess:
    """A worker process, from the outside."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process, self._commands, self.answers = process, process.stdin, process.stdout
        self.heard = self.since = time.monotonic()
        self.ready = self.unloaded = False
        self.stats: dict[str, Any] | None = None
        self.refusal = self.killed_for = ""

    @classmethod
    async def start(cls, opening: Open) -> WorkerProcess:
        command = [sys.executable, "-m", "hightide.server.worker"]
        pipe = asyncio.subprocess.PIPE
        variables = {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}
        worker = cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=variables))
        worker.tell(opening)
        return worker

    @property
    def steps(self) -> int:
        return -1 if self.stats is None else int(self.stats["steps"])

    def tell(self, message: Message) -> None:
        if not self._commands.is_closing():
            self._commands.write(pack(message))  # what is too much for the pipe is buffered

    def kill(self, reason: str) -> None:
        self.killed_for = reason
        with suppress(ProcessLookupError):
            self._process.kill()

    async def ended(self) -> str:
        """How it ended, in words."""
        self._commands.close()
        code = await self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    async def close(self) -> None:
        self.tell(Close())
        self._commands.close()
        try:
            await asyncio.wait_for(self._process.wait(), CLOSE_SECONDS)
        except asyncio.TimeoutError:
            self.kill("it did not end")
            await self._process.wait()
