"""The KV cache of one conversation: which tokens are in it, the decoder behind it, the calls under way."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from hightide.errors import DeviceLostError, InputError
from hightide.llm.decoder import GREEDY, Decoder, StepResult, Tokens


class Closable(Protocol):
    def close(self) -> None: ...


class Engine:
    """Launches calls of a decoder and collects them in order.

    `tokens` are those whose keys and values are in the cache, or are being written to it. One user at a time: who
    claims the engine closes who had it before. Threads take turns by holding the `lock`.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.tokens: list[int] = []
        self.lock = threading.RLock()
        self.turn = 0  # goes up with each user
        self._under_way: deque[Any] = deque()  # tickets, the oldest first
        self._user: weakref.ref[Closable] | None = None

    def launch(
        self, tokens: Tokens, position: int, keep: int = 1, settings: np.ndarray = GREEDY, logits: bool = False
    ) -> None:
        """Start a call; see `Decoder.launch`."""
        self._under_way.append(self.decoder.launch(tokens, position, keep, settings, logits=logits))

    def collect(self) -> StepResult:
        """What the oldest call under way gave."""
        return self.decoder.collect(self._under_way.popleft())

    def abandon(self) -> None:
        """Forget the calls under way: what they write to the cache is as `tokens` says, or beyond it."""
        self._under_way.clear()
        self.decoder.abandon()

    def recover(self) -> None:
        """Go on after the device was lost, with an empty cache."""
        self.tokens = []
        self._under_way.clear()
        self.decoder.recover()

    def read_again(self) -> None:
        """The same, with the keys and values of the tokens that were in it."""
        tokens, most = self.tokens, self.decoder.max_tokens
        self.recover()
        for first in range(0, len(tokens), most):
            self.decoder.collect(self.decoder.launch(tokens[first : first + most], first, keep=0))
        self.tokens = tokens

    def save(self) -> list[np.ndarray]:
        """The keys and values of the tokens."""
        try:
            return self.decoder.save(len(self.tokens))
        except DeviceLostError:
            self.read_again()
            return self.decoder.save(len(self.tokens))

    def restore(self, saved: Sequence[np.ndarray], tokens: list[int]) -> None:
        """Put back what `save` gave; what does not fit changes nothing."""
        held, self.tokens = self.tokens, []  # while the cache is part one, part the other
        try:
            self.decoder.restore(saved, len(tokens))
        except InputError:  # before anything was written
            self.tokens = held
            raise
        except DeviceLostError:
            self.recover()
            self.decoder.restore(saved, len(tokens))
        self.tokens = tokens

    def claim(self, user: Closable) -> None:
        """Close the one who used the engine before; from here on it is `user`, for as long as somebody holds it."""
        self.release()
        self.turn += 1
        self._user = weakref.ref(user)
        self.abandon()

    def release(self) -> None:
        """Close whoever uses the engine."""
        before, self._user = self._user, None
        if before is not None and (user := before()) is not None:
            user.close()

    def close(self) -> None:
        """Free what the decoder holds on its device."""
        with self.lock:
            self.release()
            self.tokens = []
            self.decoder.close()
