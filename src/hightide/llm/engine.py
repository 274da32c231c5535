"""The KV cache of one conversation: which tokens are in it, the decoder behind it, the calls under way."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Protocol

import numpy as np

from hightide.llm.decoder import GREEDY, Decoder, StepResult, Tokens
from hightide.llm.interrupts import uninterrupted


class Closable(Protocol):
    def close(self) -> None: ...


class Engine:
    """Launches calls of a decoder and collects them in order.

    `tokens` are those whose keys and values are in the cache, or are being written to it. One user at a time: who
    claims the engine closes who had it before.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.tokens: list[int] = []
        self._under_way: deque[Any] = deque()  # tickets, the oldest first
        self._user: weakref.ref[Closable] | None = None

    def launch(
        self, tokens: Tokens, position: int, keep: int = 1, settings: np.ndarray = GREEDY, logits: bool = False
    ) -> None:
        """Start a call; see `Decoder.launch`. Ctrl-C waits until it is made."""
        with uninterrupted():
            self._under_way.append(self.decoder.launch(tokens, position, keep, settings, logits=logits))

    def collect(self) -> StepResult:
        """What the oldest call under way gave."""
        with uninterrupted():
            return self.decoder.collect(self._under_way.popleft())

    def drain(self) -> None:
        """Wait for the calls under way, whatever they give."""
        with uninterrupted():
            while self._under_way:
                self.decoder.collect(self._under_way.popleft())

    def claim(self, user: Closable) -> None:
        """Close the one who used the engine before; from here on it is `user`, for as long as somebody holds it."""
        self.release()
        self._user = weakref.ref(user)

    def release(self) -> None:
        """Close whoever uses the engine."""
        before, self._user = self._user, None
        if before is not None and (user := before()) is not None:
            user.close()

    def close(self) -> None:
        """Free what the decoder holds on its device."""
        self.release()
        self.tokens = []
        self.decoder.close()
