"""The engine: prompts in, text out, with the KV cache kept between calls.

llm = hightide.LLM("model.gguf")
llm.generate("Once upon a time", max_tokens=64).text
"""

from __future__ import annotations

import os
import weakref
import zipfile
import zlib
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hightide.errors import InputError, ProgramError
from hightide.formats.gguf import is_gguf
from hightide.llm.answer import Completion, Piece, Stats, Stream
from hightide.llm.decoder import Decoder, Progress, open_gguf, open_pte
from hightide.llm.generation import Run
from hightide.llm.sampling import Choice, Sampling
from hightide.llm.template import render
from hightide.llm.text_stream import TextStream
from hightide.llm.tokenizer import Tokenizer
from hightide.pte.program import load

Message = Mapping[str, Any]
Prompt = str | Sequence[int] | Sequence[Message]


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
        kv: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """`kv` is how keys and values are held: "f16", "f32", or None for halves on a GPU that has them."""
        self.path = Path(model)
        self.decoder: Decoder
        metadata: Mapping[str, Any] | None = None
        ends: Any = []
        if is_gguf(model):
            self.decoder, metadata = open_gguf(model, context, chunk, device, progress, kv)
        else:
            program = load(model, device=device)
            self.decoder = open_pte(program, context, progress, kv)
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
        run = Run(self, ids, settings, stats, np.random.default_rng(seed), limit, progress)
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
        run: Run,
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
