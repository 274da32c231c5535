"""What the process that renders chat templates and the one that asks it agree on: bounds, and messages over a pipe."""

from __future__ import annotations

import json
from typing import IO, Any

MAX_BYTES = 128 << 20  # of memory, beside what an idle process takes (20 MB)
MAX_SECONDS = 2.0  # of one rendering: real ones take milliseconds
OUT_OF_MEMORY = 12  # the exit code

Message = dict[str, Any]


def send(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "little"))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Message | None:
    """The next message; None if the pipe ends before it does."""
    size = int.from_bytes(pipe.read(8), "little")
    data = pipe.read(size)
    return json.loads(data.decode("utf-8", "surrogatepass")) if size and len(data) == size else None


def pack(message: Message) -> bytes:
    """As JSON; lone surrogates go through."""
    return json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
