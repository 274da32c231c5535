"""What the front and a replica say to each other, besides what the front and a worker do.

Each message goes with the name of the model that it is about; "" is the replica itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from hightide.server import messages

# ---- to the replica


@dataclass(frozen=True)
class Load:
    """Open the model; the answer is `Ready` or `NotOpened`."""


# ---- from the replica


@dataclass(frozen=True)
class Hello:
    """The first message."""

    machine: str
    version: str  # of hightide


@dataclass(frozen=True)
class Status:
    """Of a model, once a second."""

    loaded: bool = False
    starting: bool = False
    stats: Mapping[str, Any] | None = None  # of the engine
    restarts: int = 0  # of the worker


@dataclass(frozen=True)
class Note:
    """For the log."""

    text: str


Message: TypeAlias = messages.Message | Load | Hello | Status | Note
Named: TypeAlias = tuple[str, Message]
