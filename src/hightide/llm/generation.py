"""One answer being made, token by token."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from hightide.llm.answer import Stats, Stream
from hightide.llm.decoder import GREEDY, Progress, Step
from hightide.llm.interrupts import uninterrupted
from hightide.llm.sampling import Choice, Sampling, find_draft

if TYPE_CHECKING:
    from hightide.llm.llm import LLM

MAX_DRAFT = 7  # tokens guessed at once by prompt lookup


class Run:
    """One answer being made: where it is, and what the cache holds."""

    def __init__(
        self,
        llm: LLM,
        ids: list[int],
        sampling: Sampling,
        stats: Stats,
        rng: np.random.Generator,
        limit: int,
        progress: Progress | None,
    ) -> None:
        self.llm, self.ids, self.sampling, self.stats, self.rng = llm, ids, sampling, stats, rng
        self.limit, self.progress = limit, progress
        self.decoder = llm.decoder
        self.stream: weakref.ref[Stream] | None = None
        self._under_way: deque[Any] = deque()  # tickets, the oldest first
        self._started = self._first = 0.0
        self.sequence = list(ids)  # the prompt and what was made so far

    def decoding(self) -> Generator[Choice, None, None]:
        """Token after token; on the device, step n + 1 is launched before token n is handed out."""
        try:
            self._prefill()
            while True:
                position = len(self.sequence)
                more = position < self.decoder.context and self.stats.new_tokens + 1 < self.limit
                ahead = self.sampling.on_device and more
                if ahead:
                    self._launch(None, position)
                choice = self._choice(self._collect())
                self.sequence.append(choice.token)
                if ahead:  # its keys and values are being written
                    self.llm.tokens = list(self.sequence)
                yield choice
                if position >= self.decoder.context:
                    return
                if not ahead:
                    self._launch([choice.token], position)
                    self.llm.tokens = list(self.sequence)
        finally:
            self._drain()

    def speculating(self) -> Generator[Choice, None, None]:
        """Greedy, several tokens a call: a draft from the context is kept as far as it agrees."""
        try:
            self._prefill()
            step = self._collect()
            while True:
                for token in step.ids.tolist():
                    self.sequence.append(token)
                    yield Choice(token)
                position = len(self.sequence) - 1  # of the newest token, which is not in the cache yet
                if position >= self.decoder.context:
                    return
                most = min(MAX_DRAFT, self.decoder.max_keep - 1, self.decoder.max_tokens - 1)
                draft = find_draft(self.sequence, min(most, self.decoder.context - position - 1))
                checked = [self.sequence[-1], *draft]
                self._launch(checked, position, keep=len(checked))
                step = self._collect()
                agreed = 0
                while agreed < len(draft) and draft[agreed] == int(step.ids[agreed]):
                    agreed += 1
                self.llm.tokens = [*self.sequence, *draft[:agreed]]
                step = Step(step.ids[: agreed + 1], None)
        finally:
            self._drain()

    def shifted(self) -> Generator[Choice, None, None]:
        """Go on with a full context: its first eighth and its newest half are read again, from the start."""
        context = self.decoder.context
        self.sequence = self.sequence[: context // 8] + self.sequence[-max(1, context // 2) :]
        self.ids, self.llm.tokens = list(self.sequence), []
        return self.decoding()

    def _prefill(self) -> None:
        """Read the prompt in chunks, but for what the cache holds; the last call is left under way."""
        ids, held = self.ids, self.llm.tokens
        shared = 0
        while shared < min(len(ids) - 1, len(held)) and ids[shared] == held[shared]:
            shared += 1
        self.llm.tokens = held[:shared]
        if not self._started:  # else the context was shifted
            self._started = time.perf_counter()
            self.stats.reused_tokens = shared
        chunk = self.decoder.max_tokens
        for first in range(shared, len(ids), chunk):
            part = ids[first : first + chunk]
            last = first + len(part) == len(ids)
            self._launch(part, first, keep=1 if last else 0)
            self.llm.tokens = ids[: first + len(part)]
            if not last:
                self._drain()
                if self.progress:
                    self.progress(first + len(part), len(ids))

    def _launch(self, tokens: list[int] | None, position: int, keep: int = 1) -> None:
        on_device = self.sampling.on_device
        # One draw per token: the same seed gives the same text however much of the prompt has to be read.
        draw = self.rng.uniform() if on_device and keep and self.sampling.temperature else 0.0
        settings = self.sampling.settings(draw) if on_device else GREEDY
        with uninterrupted():
            self._under_way.append(self.decoder.launch(tokens, position, keep, settings, logits=not on_device))

    def _drain(self) -> None:
        """Wait for the calls under way, whatever they give."""
        with uninterrupted():
            while self._under_way:
                self.decoder.collect(self._under_way.popleft())

    def _collect(self) -> Step:
        """What the oldest call under way gave."""
        with uninterrupted():
            step = self.decoder.collect(self._under_way.popleft())
        now = time.perf_counter()
        if not self._first:
            self._first = now
            if self.progress:
                self.progress(len(self.ids), len(self.ids))
            self.stats.prefill_seconds = now - self._started
        else:
            self.stats.calls += 1
            self.stats.decode_seconds = now - self._first
        return step

    def _choice(self, step: Step) -> Choice:
        if self.sampling.on_device:
            return Choice(int(step.ids[-1]))
        assert step.logits is not None
        draw = self.rng.uniform() if self.sampling.temperature else 0.0
        return self.sampling.choose(step.logits[-1], self.sequence, draw)
