"""One answer being made: token by token, as text, and as the stream that the caller reads."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Collection, Generator, Iterator

import numpy as np

from hightide.errors import DeviceLostError, HightideError
from hightide.llm.answer import Piece, Stats
from hightide.llm.decoder import GREEDY, StepResult
from hightide.llm.engine import Engine
from hightide.llm.odd_logits import odd_logits
from hightide.llm.options import GenerationOptions
from hightide.llm.text_stream import TextStream
from hightide.llm.token_sampling import ChosenToken, find_draft

MAX_DRAFT = 7  # tokens guessed at once by prompt lookup
MAX_LOSSES = 3  # of the device in a row, without a new token: then it is the model's or the driver's fault


class Stream(Iterator[Piece]):
    """Pieces of an answer as they arrive. `close()` (or leaving a `with` block) stops it at once.

    There is one KV cache: when a stream takes its first step, one that was still going on is closed. Threads take
    turns, a piece at a time.
    """

    def __init__(self, generation: Generation) -> None:
        self.stats = generation.stats
        self.finish_reason = ""  # "stop", "length", "context", "closed" or "error" once it has ended
        self._engine = generation.engine
        self._generation = generation
        self._pieces = generation.pieces()
        self._begun = False

    def __next__(self) -> Piece:
        with self._engine.lock:
            if not self._begun:
                self._engine.claim(self)
                self._generation.turn = self._engine.turn
                self._begun = True
            try:
                return next(self._pieces)
            except StopIteration as stop:
                self.finish_reason = self.finish_reason or stop.value or "stop"
                raise StopIteration from None
            except BaseException:
                self.finish_reason = "error"
                raise

    def close(self) -> None:
        with self._engine.lock:
            if inspect.getgeneratorstate(self._pieces) == inspect.GEN_RUNNING:
                raise HightideError("an answer cannot be stopped by what it calls while it is made")
            self._begun = True
            self._pieces.close()
            self.finish_reason = self.finish_reason or "closed"

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Generation:
    """Makes one answer to `ids` on an engine, which must be its alone while it does."""

    def __init__(
        self,
        engine: Engine,
        ids: list[int],
        options: GenerationOptions,
        ends: Collection[int],
        text: TextStream | None,
    ) -> None:
        """`ends` are the tokens that end the answer; `text` spells it, if there is a tokenizer."""
        self.engine, self.decoder = engine, engine.decoder
        self.options, self.sampling = options, options.sampling
        self.ends, self.text = frozenset(ends), text
        self.turn = 0  # the engine's, while it is this answer's
        self.stats = Stats(prompt_tokens=len(ids), device_bytes=engine.decoder.device_bytes())
        self.limit = engine.decoder.context if options.max_tokens is None else options.max_tokens
        self._prompt = ids
        self._sequence = list(ids)  # the prompt and what was made so far
        self._offset = len(ids)  # where in the sequence the answer's first token is, or was
        self._checked: list[tuple[list[int], int]] = []  # what was read at which position to check drafts
        self._rng = np.random.default_rng(options.seed)
        self._draws: list[float] = []  # one per token of the answer
        self._started = self._first = 0.0

    def pieces(self) -> Generator[Piece, None, str]:
        """The answer as text, up to its end; the generator's value is why it ended."""
        choices = self._choices()
        reason = "length" if self.limit == 0 else ""
        try:
            while not reason:
                choice = next(choices, None)
                if choice is None:
                    if self.options.on_full == "shift":
                        self._shift()
                        choices = self._choices()
                        continue
                    reason = "context"
                    break
                if choice.token in self.ends:
                    reason = "stop"
                    break
                self.stats.new_tokens += 1
                piece = self.text.feed(choice.token) if self.text else ""
                yield Piece(piece, choice.token, choice.logprob, choice.alternatives)
                if self.text and self.text.stopped:
                    return "stop"
                if self.stats.new_tokens >= self.limit:
                    reason = "length"
            if self.text and (rest := self.text.flush()):
                yield Piece(rest, -1)
            return reason
        finally:
            choices.close()

    def _choices(self) -> Generator[ChosenToken, None, None]:
        """The tokens of the answer. If the device is lost it is opened again, and they go on where they were."""
        speculate = self.options.speculate and self.decoder.max_keep > 1
        losses, length = 0, 0
        while True:
            try:
                if losses:
                    self.engine.recover()
                yield from self._speculating() if speculate else self._decoding()
                return
            except DeviceLostError as error:
                losses, length = 1 if length < len(self._sequence) else losses + 1, len(self._sequence)
                if losses > MAX_LOSSES:
                    raise
                warnings.warn(f"{error}; the answer goes on with a new one", stacklevel=4)

    def _decoding(self) -> Generator[ChosenToken, None, None]:
        """Token after token; on the device, step n + 1 is launched before token n is handed out."""
        try:
            self._read_answer(self._prefill())
            while True:
                position = len(self._sequence)
                more = position < self.decoder.context and self.stats.new_tokens + 1 < self.limit
                ahead = self.sampling.on_device and more
                if ahead:
                    self._launch(None, position)
                choice = self._choice(self._collect())
                self._sequence.append(choice.token)
                if ahead:  # its keys and values are being written
                    self.engine.tokens = list(self._sequence)
                yield choice
                if position >= self.decoder.context:
                    return
                if not ahead:
                    self._launch([choice.token], position)
                    self.engine.tokens = list(self._sequence)
        finally:
            self._abandon()

    def _read_answer(self, made: list[int]) -> None:
        """What was made before the device was lost, token by token as before, so that the keys and values are the same.

        The last call is left under way.
        """
        for n, token in enumerate(made, 1):
            position = len(self._sequence) - len(made) + n - 1
            self._launch([token], position, keep=1 if n == len(made) else 0)
            self.engine.tokens = self._sequence[: position + 1]
            if n < len(made):
                self.engine.collect()

    def _speculating(self) -> Generator[ChosenToken, None, None]:
        """Greedy, several tokens a call: a draft from the context is kept as far as it agrees."""
        try:
            made = self._prefill()
            for tokens, position in self._checked if made else ():  # as before the device was lost
                self._launch(tokens, position, keep=0)
                self.engine.collect()
            ids = [] if made else self._collect().ids.tolist()
            while True:
                for token in ids:
                    self._check(token)
                    self._sequence.append(token)
                    yield ChosenToken(token)
                position = len(self._sequence) - 1  # of the newest token, which is not in the cache yet
                if position >= self.decoder.context:
                    return
                most = min(MAX_DRAFT, self.decoder.max_keep - 1, self.decoder.max_tokens - 1)
                draft = find_draft(self._sequence, min(most, self.decoder.context - position - 1))
                checked = [self._sequence[-1], *draft]
                self._launch(checked, position, keep=len(checked))
                step = self._collect()
                agreed = 0
                while agreed < len(draft) and draft[agreed] == int(step.ids[agreed]):
                    agreed += 1
                self._checked.append((checked, position))
                self.engine.tokens = [*self._sequence, *draft[:agreed]]
                ids = step.ids[: agreed + 1].tolist()
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """Forget the calls under way, unless they are another answer's already."""
        if self.turn == self.engine.turn:
            self.engine.abandon()

    def _shift(self) -> None:
        """Go on with a full context: its first eighth and its newest half are read again, from the start."""
        context, made = self.decoder.context, len(self._sequence) - self._offset
        self._sequence = self._sequence[: context // 8] + self._sequence[-max(1, context // 2) :]
        self._offset = len(self._sequence) - made
        self._prompt, self._checked, self.engine.tokens = list(self._sequence), [], []

    def _prefill(self) -> list[int]:
        """Read the prompt in chunks, but for what the cache holds; what was made of the answer before a loss.

        If that is nothing, the last call is left under way.
        """
        ids, held, made = self._prompt, self.engine.tokens, self._sequence[len(self._prompt) :]
        shared = 0
        while shared < min(len(ids) - 1, len(held)) and ids[shared] == held[shared]:
            shared += 1
        self.engine.tokens = held[:shared]
        if not self._started:  # else the context was shifted
            self._started = time.perf_counter()
            self.stats.reused_tokens = shared
        chunk = self.decoder.max_tokens
        for first in range(shared, len(ids), chunk):
            part = ids[first : first + chunk]
            wanted = not made and first + len(part) == len(ids)
            self._launch(part, first, keep=1 if wanted else 0)
            self.engine.tokens = ids[: first + len(part)]
            if first > shared:  # the call before: one runs while the next is launched
                self.engine.collect()
                self._tell(first)
        if made:
            self.engine.collect()
        return made

    def _launch(self, tokens: list[int] | None, position: int, keep: int = 1) -> None:
        on_device = self.sampling.on_device
        # One draw per token: the same seed gives the same text however much of the prompt has to be read.
        draw = self._draw(position + len(tokens or [0])) if on_device and keep else 0.0
        settings = self.sampling.settings(draw) if on_device else GREEDY
        self.engine.launch(tokens, position, keep, settings, logits=not on_device)

    def _collect(self) -> StepResult:
        """What the oldest call under way gave, timed."""
        step = self.engine.collect()
        now = time.perf_counter()
        if not self._first:
            self._first = now
            self._tell(len(self._prompt))
            self.stats.prefill_seconds = now - self._started
        else:
            self.stats.calls += 1
            self.stats.decode_seconds = now - self._first
        return step

    def _choice(self, step: StepResult) -> ChosenToken:
        self._check(int(step.ids[-1]))
        if self.sampling.on_device:
            return ChosenToken(int(step.ids[-1]))
        assert step.logits is not None
        return self.sampling.choose(step.logits[-1], self._sequence, self._draw(len(self._sequence)))

    def _draw(self, position: int) -> float:
        """The random number that chooses the token at this position, the same however often it is chosen."""
        if not self.sampling.temperature:
            return 0.0
        index = position - self._offset
        while len(self._draws) <= index:
            self._draws.append(self._rng.uniform())
        return self._draws[index]

    def _check(self, token: int) -> None:
        if token < 0:
            raise odd_logits(self.engine, self._sequence)

    def _tell(self, done: int) -> None:
        if self.options.progress:
            self.options.progress(done, len(self._prompt))
