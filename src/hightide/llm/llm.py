"""The engine: prompts in, text out, with the KV cache kept between calls.

llm = hightide.LLM("model.gguf")
llm.generate("Once upon a time", max_tokens=64).text
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hightide.errors import InputError, ProgramError
from hightide.formats.gguf import is_gguf
from hightide.llm.decoder import Decoder, Progress, Step, open_gguf, open_pte
from hightide.llm.sampling import Choice, Sampling, find_draft
from hightide.llm.template import render
from hightide.llm.text import TextStream
from hightide.llm.tokenizer import Tokenizer
from hightide.program import load

Message = Mapping[str, Any]
Prompt = str | Sequence[int] | Sequence[Message]
MAX_DRAFT = 7  # tokens guessed at once by prompt lookup


@dataclass(frozen=True)
class Piece:
    """A part of the answer as it arrives; `text` may be empty while a character is incomplete."""

    text: str
    token: int
    logprob: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()


@dataclass
class Stats:
    prompt_tokens: int = 0
    reused_tokens: int = 0  # of the prompt, already in the KV cache
    new_tokens: int = 0
    calls: int = 0  # decode calls; fewer than new tokens when guesses were right
    prefill_seconds: float = 0.0  # until the first token was there
    decode_seconds: float = 0.0
    device_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def time_to_first_token(self) -> float:
        return self.prefill_seconds

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens per second, those reused not counted."""
        return (self.prompt_tokens - self.reused_tokens) / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        return (self.new_tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0

    def __str__(self) -> str:
        reused = f" ({self.reused_tokens} reused)" if self.reused_tokens else ""
        memory = f", {sum(self.device_bytes.values()) / 1e6:.0f} MB on the device" if self.device_bytes else ""
        return (
            f"{self.prompt_tokens} prompt tokens{reused}, first token after {self.time_to_first_token:.2f} s"
            f" ({self.prefill_rate:.1f} tok/s), {self.new_tokens} new tokens at {self.decode_rate:.1f} tok/s{memory}"
        )


@dataclass(frozen=True)
class Completion:
    text: str
    tokens: list[int]
    stats: Stats
    finish_reason: str  # "stop", "length" (max_tokens) or "context" (full)
    pieces: list[Piece]


class Stream(Iterator[Piece]):
    """Pieces of an answer as they arrive. `close()` (or leaving a `with` block) stops it at once."""

    def __init__(self, pieces: Generator[Piece, None, str], stats: Stats) -> None:
        self._pieces, self.stats = pieces, stats
        self.finish_reason = ""

    def __next__(self) -> Piece:
        try:
            return next(self._pieces)
        except StopIteration as stop:
            self.finish_reason = self.finish_reason or stop.value or "stop"
            raise StopIteration from None

    def close(self) -> None:
        self._pieces.close()
        self.finish_reason = self.finish_reason or "closed"

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LLM:
    """A language model with its tokenizer and one KV cache.

    `tokens` are those whose keys and values are in the cache; a prompt that begins with them reuses them.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        tokenizer: str | os.PathLike[str] | Tokenizer | None = None,
        context: int | None = None,
        device: str | int | None = None,
        chunk: int = 128,
        progress: Progress | None = None,
    ) -> None:
        self.path = Path(model)
        self.decoder: Decoder
        metadata: Mapping[str, Any] | None = None
        ends: Any = []
        if is_gguf(model):
            self.decoder, metadata = open_gguf(model, context, chunk, device, progress)
        else:
            program = load(model, device=device)
            self.decoder = open_pte(program, progress)
            ends = program.metadata.get("get_eos_ids", program.metadata.get("get_eos_id", []))
        self.tokenizer = _find_tokenizer(self.path, tokenizer, metadata)
        self._ends = {int(end) for end in (ends if isinstance(ends, list) else [ends])}
        if self.tokenizer is not None:
            self._ends |= set(self.tokenizer.eos_ids)
        self.tokens: list[int] = []

    @property
    def context(self) -> int:
        return self.decoder.context

    # ---- generating

    def generate(self, prompt: Prompt, **options: Any) -> Completion:
        """The whole answer; the options are those of `stream`."""
        stream = self.stream(prompt, **options)
        pieces = list(stream)
        tokens = [piece.token for piece in pieces if piece.token >= 0]
        text = "".join(piece.text for piece in pieces)
        return Completion(text, tokens, stream.stats, stream.finish_reason, pieces)

    def stream(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        stop_ids: Sequence[int] = (),
        seed: int | None = None,
        speculate: bool = False,
        on_full: str = "stop",
        progress: Progress | None = None,
        **sampling: Any,
    ) -> Stream:
        """Start an answer to text, token ids or chat messages.

        `sampling` are the fields of `Sampling` (temperature, top_k, top_p, min_p, penalties, logit_bias,
        logprobs). `speculate` guesses tokens from the context and checks them in one call; it needs
        temperature 0. `on_full`: "stop" at a full context, or "shift" out its oldest half.
        """
        ids = self.encode(prompt)
        settings = Sampling(**sampling)
        if not ids:
            raise InputError("the prompt is empty")
        bad = next((i for i in ids if not 0 <= i < self.decoder.vocab_size), None)
        if bad is not None:
            raise InputError(f"token id {bad} is outside the vocabulary of {self.decoder.vocab_size}")
        if len(ids) > self.context:
            raise InputError(f"the prompt has {len(ids)} tokens; the context holds {self.context}")
        if on_full not in ("stop", "shift"):
            raise InputError(f"on_full is 'stop' or 'shift', not {on_full!r}")
        if speculate and (settings.temperature > 0 or not settings.on_device):
            raise InputError("speculation needs temperature 0, no penalties and no logprobs")
        stats = Stats(prompt_tokens=len(ids), device_bytes=self.decoder.device_bytes())
        run = _Run(self, ids, settings, stats, np.random.default_rng(seed), progress)
        ends = self._ends | set(stop_ids)
        limit = max_tokens if max_tokens is not None else self.context
        choices = run.speculating() if speculate and self.decoder.max_keep > 1 else run.decoding()
        text = TextStream(self.tokenizer, list(stop), continues=isinstance(prompt, str)) if self.tokenizer else None
        return Stream(self._pieces(choices, run, ends, text, limit, on_full), stats)

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of text, of chat messages (through the model's template), or of ids."""
        if isinstance(prompt, str):
            return self._tokenizer().encode(prompt)
        ids = [int(item) for item in prompt if isinstance(item, int | np.integer)]
        messages = [item for item in prompt if isinstance(item, Mapping)]
        if len(ids) == len(prompt):
            return ids
        if len(messages) != len(prompt):
            raise InputError("a prompt is text, token ids, or messages with a role and content")
        tokenizer = self._tokenizer()
        bos = tokenizer.token(tokenizer.bos_id) if tokenizer.bos_id is not None else ""
        eos = tokenizer.token(tokenizer.eos_ids[0]) if tokenizer.eos_ids else ""
        text = render(tokenizer.chat_template, messages, bos_token=bos, eos_token=eos)
        # A template that writes the BOS token itself must not get a second one.
        return tokenizer.encode(text, special=True, bos=False if bos and text.startswith(bos) else None)

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(f"{self.path.name} has no tokenizer; give one with tokenizer=, or prompts as token ids")
        return self.tokenizer

    def _pieces(
        self,
        choices: Generator[Choice, None, None],
        run: _Run,
        ends: set[int],
        text: TextStream | None,
        limit: int,
        on_full: str,
    ) -> Generator[Piece, None, str]:
        """Choices as text, up to an end; the generator's value is why it ended."""
        reason = "length" if limit <= 0 else ""
        try:
            while not reason:
                choice = next(choices, None)
                if choice is None:
                    if on_full == "shift":
                        choices = run.shifted()
                        continue
                    reason = "context"
                    break
                if choice.token in ends:
                    reason = "stop"
                    break
                run.stats.new_tokens += 1
                piece = text.feed(choice.token) if text else ""
                yield Piece(piece, choice.token, choice.logprob, choice.alternatives)
                if text and text.stopped:
                    return "stop"
                if run.stats.new_tokens >= limit:
                    reason = "length"
            if text and (rest := text.flush()):
                yield Piece(rest, -1)
            return reason
        finally:
            choices.close()

    # ---- state

    def reset(self) -> None:
        """Forget the conversation."""
        self.tokens = []

    def truncate(self, length: int) -> None:
        """Step back: keep the first `length` tokens."""
        if not 0 <= length <= len(self.tokens):
            raise InputError(f"there are {len(self.tokens)} tokens to keep, not {length}")
        self.tokens = self.tokens[:length]

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """The tokens of the conversation with their keys and values."""
        arrays = {f"state{n}": array for n, array in enumerate(self.decoder.save(len(self.tokens)))}
        with open(path, "wb") as file:
            np.savez(file, tokens=np.array(self.tokens, np.int64), **arrays)  # type: ignore[arg-type]

    def load_state(self, path: str | os.PathLike[str]) -> None:
        try:
            with np.load(path, allow_pickle=False) as saved:
                tokens = saved["tokens"].tolist()
                arrays = [saved[f"state{n}"] for n in range(len(saved.files) - 1)]
        except (OSError, ValueError, KeyError) as error:
            raise ProgramError(f"{path} is not a saved state: {error}") from None
        self.decoder.restore(arrays)
        self.tokens = tokens


class _Run:
    """One answer being made: where it is, and what the cache holds."""

    def __init__(
        self,
        llm: LLM,
        ids: list[int],
        sampling: Sampling,
        stats: Stats,
        rng: np.random.Generator,
        progress: Progress | None,
    ) -> None:
        self.llm, self.ids, self.sampling, self.stats, self.rng = llm, ids, sampling, stats, rng
        self.progress = progress
        self.decoder = llm.decoder
        self.sequence = list(ids)  # the prompt and what was made so far

    def decoding(self) -> Generator[Choice, None, None]:
        """Token after token; on the device, step n + 1 is launched before token n is handed out."""
        ticket, ahead = self._prefill(), None
        try:
            while True:
                position = len(self.sequence)
                if self.sampling.on_device and position < self.decoder.context:
                    ahead = self._launch(None, position)
                choice = self._choice(self._collect(ticket))
                ticket = None
                self.sequence.append(choice.token)
                if ahead is not None:  # its keys and values are being written
                    self.llm.tokens = list(self.sequence)
                yield choice
                if position >= self.decoder.context:
                    return
                if ahead is None:
                    ahead = self._launch([choice.token], position)
                    self.llm.tokens = list(self.sequence)
                ticket, ahead = ahead, None
        finally:
            for open_ticket in (ticket, ahead):
                if open_ticket is not None:
                    self.decoder.collect(open_ticket)

    def speculating(self) -> Generator[Choice, None, None]:
        """Greedy, several tokens a call: a draft from the context is kept as far as it agrees."""
        step = self._collect(self._prefill())
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
            step = self._collect(self._launch(checked, position, keep=len(checked)))
            agreed = 0
            while agreed < len(draft) and draft[agreed] == int(step.ids[agreed]):
                agreed += 1
            self.llm.tokens = [*self.sequence, *draft[:agreed]]
            step = Step(step.ids[: agreed + 1], None)

    def shifted(self) -> Generator[Choice, None, None]:
        """Go on with a full context: its first eighth and its newest half are read again, from the start."""
        context = self.decoder.context
        self.sequence = self.sequence[: context // 8] + self.sequence[-(context // 2) :]
        self.ids, self.llm.tokens = list(self.sequence), []
        return self.decoding()

    def _prefill(self) -> Any:
        """Read the prompt in chunks, but for what the cache holds; the ticket of its last call."""
        start = time.perf_counter()
        ids, held = self.ids, self.llm.tokens
        shared = 0
        while shared < min(len(ids) - 1, len(held)) and ids[shared] == held[shared]:
            shared += 1
        self.llm.tokens = held[:shared]
        self.stats.reused_tokens = shared
        self._started, self._first = start, 0.0
        chunk = self.decoder.max_tokens
        for first in range(shared, len(ids), chunk):
            part = ids[first : first + chunk]
            last = first + len(part) == len(ids)
            ticket = self._launch(part, first, keep=1 if last else 0)
            self.llm.tokens = ids[: first + len(part)]
            if last:
                return ticket
            self.decoder.collect(ticket)
            if self.progress:
                self.progress(first + len(part), len(ids))

    def _launch(self, tokens: list[int] | None, position: int, keep: int = 1) -> Any:
        on_device = self.sampling.on_device
        settings = self.sampling.settings(self.rng.uniform() if on_device and self.sampling.temperature else 0.0)
        return self.decoder.launch(
            tokens, position, keep, settings if on_device else np.zeros_like(settings), not on_device
        )

    def _collect(self, ticket: Any) -> Step:
        step = self.decoder.collect(ticket)
        now = time.perf_counter()
        if not self._first:
            self._first = now
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


def _find_tokenizer(
    model: Path, given: str | os.PathLike[str] | Tokenizer | None, metadata: Mapping[str, Any] | None
) -> Tokenizer | None:
    """The one given, the one in a GGUF model, or a tokenizer file beside the model."""
    if isinstance(given, Tokenizer):
        return given
    if given is not None:
        return Tokenizer.from_file(given)
    if metadata is not None:
        return Tokenizer.from_gguf(metadata) if "tokenizer.ggml.model" in metadata else None
    exported = model.with_suffix(".tokenizer.gguf")  # as `hightide export` names it
    for path in (exported, model.parent / "tokenizer.json", model.parent / "tokenizer.model"):
        if path.is_file():
            return Tokenizer.from_file(path)
    return None
