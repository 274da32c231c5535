"""The engine: prompts in, text out, with the KV cache kept between calls.

llm = hightide.LLM("model.gguf")
llm.generate("Once upon a time", max_tokens=64).text
"""

from __future__ import annotations

import os
import time
import weakref
import zipfile
import zlib
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hightide.errors import InputError, ProgramError
from hightide.formats.gguf import is_gguf
from hightide.llm.decoder import GREEDY, Decoder, Progress, Step, open_gguf, open_pte
from hightide.llm.interrupts import uninterrupted
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
        if device is None:
            device = os.environ.get("HIGHTIDE_DEVICE") or None
        self.decoder: Decoder
        metadata: Mapping[str, Any] | None = None
        ends: Any = []
        if is_gguf(model):
            self.decoder, metadata = open_gguf(model, context, chunk, device, progress)
        else:
            program = load(model, device=device)
            self.decoder = open_pte(program, context, progress)
            ends = program.metadata.get("get_eos_ids", program.metadata.get("get_eos_id", []))
        self.tokenizer = _find_tokenizer(self.path, tokenizer, metadata)
        self._ends = {int(end) for end in (ends if isinstance(ends, list) else [ends])}
        if self.tokenizer is not None:
            self._ends |= set(self.tokenizer.eos_ids)
        self.tokens: list[int] = []
        self._running: weakref.ref[Stream] | None = None  # the stream that steps may be under way for

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
        temperature 0. `on_full`: "stop" at a full context, or "shift" out its oldest half. There is one KV
        cache: when a stream takes its first step, one that was still going on is closed.
        """
        ids = self.encode(prompt)
        settings = Sampling(**sampling)
        settings.check_tokens(self.decoder.vocab_size)
        if not ids:
            raise InputError("the prompt is empty")
        bad = next((i for i in ids if not 0 <= i < self.decoder.vocab_size), None)
        if bad is not None:
            raise InputError(f"token id {bad} is outside the vocabulary of {self.decoder.vocab_size}")
        if len(ids) > self.context:
            raise InputError(f"the prompt has {len(ids)} tokens; the context holds {self.context}")
        if max_tokens is not None and max_tokens < 0:
            raise InputError(f"max_tokens cannot be {max_tokens}")
        if stop and self.tokenizer is None:
            raise InputError("stop strings need a tokenizer; without one there are stop_ids")
        if on_full not in ("stop", "shift"):
            raise InputError(f"on_full is 'stop' or 'shift', not {on_full!r}")
        if speculate and (settings.temperature > 0 or not settings.on_device):
            raise InputError("speculation needs temperature 0, no penalties and no logprobs")
        stats = Stats(prompt_tokens=len(ids), device_bytes=self.decoder.device_bytes())
        limit = max_tokens if max_tokens is not None else self.context
        run = _Run(self, ids, settings, stats, np.random.default_rng(seed), limit, progress)
        ends = self._ends | set(stop_ids)
        choices = run.speculating() if speculate and self.decoder.max_keep > 1 else run.decoding()
        text = TextStream(self.tokenizer, list(stop), continues=isinstance(prompt, str)) if self.tokenizer else None
        stream = Stream(self._pieces(choices, run, ends, text, on_full), stats)
        run.stream = weakref.ref(stream)
        return stream

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of text, of chat messages (through the model's template), or of ids."""
        if isinstance(prompt, str):
            return self._tokenizer().encode(prompt)
        if not isinstance(prompt, Sequence | np.ndarray):
            raise InputError("a prompt is text, token ids, or messages with a role and content")
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
        on_full: str,
    ) -> Generator[Piece, None, str]:
        """Choices as text, up to an end; the generator's value is why it ended."""
        self._stop_running()
        self._running = run.stream
        reason = "length" if run.limit == 0 else ""
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
                if run.stats.new_tokens >= run.limit:
                    reason = "length"
            if text and (rest := text.flush()):
                yield Piece(rest, -1)
            return reason
        finally:
            choices.close()

    # ---- state; each of these closes a stream that is going on

    def _stop_running(self) -> None:
        running, self._running = self._running, None
        if running is not None and (stream := running()) is not None:
            stream.close()

    def reset(self) -> None:
        """Forget the conversation."""
        self._stop_running()
        self.tokens = []

    def truncate(self, length: int) -> None:
        """Step back: keep the first `length` tokens."""
        self._stop_running()
        if not 0 <= length <= len(self.tokens):
            raise InputError(f"there are {len(self.tokens)} tokens to keep, not {length}")
        self.tokens = self.tokens[:length]

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """The tokens of the conversation with their keys and values."""
        self._stop_running()
        arrays = {f"state{n}": array for n, array in enumerate(self.decoder.save(len(self.tokens)))}
        tokens, model = np.array(self.tokens, np.int64), np.array(_fingerprint(self.path))
        with open(path, "wb") as file:
            np.savez(file, model=model, tokens=tokens, **arrays)  # type: ignore[arg-type]

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Go on from what `save_state` wrote; a state that does not fit leaves the conversation as it was."""
        self._stop_running()
        try:
            with np.load(path, allow_pickle=False) as saved:
                tokens = saved["tokens"].astype(np.int64, casting="safe").reshape(-1).tolist()
                model = saved["model"].tolist()
                arrays = [saved[f"state{n}"] for n in range(len(saved.files) - 2)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
            raise ProgramError(f"{path} is not a saved state: {error}") from None
        if model != _fingerprint(self.path) or not all(0 <= token < self.decoder.vocab_size for token in tokens):
            raise InputError(f"{path} is the state of another model than {self.path.name}")
        self.decoder.restore(arrays, len(tokens))
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


def _fingerprint(model: Path) -> list[int]:
    """Tells models of equal dims apart: the file's size, and a checksum of its first and last megabyte."""
    size, part = model.stat().st_size, 1 << 20
    with model.open("rb") as file:
        head = file.read(part)
        file.seek(max(0, size - part))
        return [size, zlib.crc32(file.read(part), zlib.crc32(head))]


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
