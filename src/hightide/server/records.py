"""What is known of one request when it is over: for the log and the metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

MAX_USER = 256  # characters of a user's name in the log


@dataclass(eq=False)
class Record:
    path: str
    id: str
    began: float = field(default_factory=time.monotonic)
    model: str = ""
    user: str = ""
    status: int = 0
    outcome: str = ""  # "stop", "length", "error", "disconnected", ...; "" for what makes no answer
    prompt_tokens: int = 0
    cached_tokens: int = 0
    new_tokens: int = 0
    first_token: float | None = None  # when it came
    last_token: float | None = None
    error: str = ""

    def count_token(self) -> None:
        self.new_tokens += 1
        self.last_token = time.monotonic()
        if self.first_token is None:
            self.first_token = self.last_token

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def seconds_to_first_token(self) -> float | None:
        return None if self.first_token is None else self.first_token - self.began
