"""Many answers at once from one model: continuous batching over a paged KV cache.

with hightide.Engine("model.gguf", max_sequences=16) as engine:
    request = engine.submit("Once upon a time", max_tokens=64)
    for piece in request:
        print(piece.text, end="")
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from hightide.errors import DeviceError, HightideError, InputError
from hightide.llm.answer import Completion
from hightide.llm.batcher import Batcher
from hightide.llm.decoder import Decoder, Progress, RaggedDecoder
from hightide.llm.drafting import Drafter
from hightide.llm.encoder import Encoder
from hightide.llm.generation import Generation
from hightide.llm.media_marks import Marks
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
from hightide.llm.prefix_store import PrefixStore
from hightide.llm.ragged_model import Placement
from hightide.llm.request import Request
from hightide.llm.text_vector import POOLINGS
from hightide.llm.tokenizer import Tokenizer
from hightide.option_checks import check_bool, check_int, check_path, checked_bytes, checked_list, shown
from hightide.runtime.closing import Closing

RATE_SECONDS = 10.0  # over which tokens per second are counted
MAX_SAMPLES = 64


@dataclass(frozen=True)
class EngineStats:
    """What an engine is doing."""

    running: int  # sequences that have rows in steps
    waiting: int  # sequences that wait for a place or for pages
    pages: int  # in all
    pages_used: int
    pages_shared: int  # of these, by several sequences
    page_tokens: int  # tokens of a page
    steps: int
    rows: int  # of all steps: tokens that were read or made
    new_tokens: int
    tokens_per_second: float  # new ones, over the last ten seconds
    prefix_tokens: int  # of prompts, found in pages that others had read
    disk_tokens: int  # of these, in pages that were read from disk
    set_aside: int  # how often a sequence gave up its pages, to be read again later


class Engine(Closing):
    """A model that answers many requests at once. Every method may be called from any thread.

    `close()`, or leaving a `with` block, ends all requests and frees what the model holds on its device.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        max_sequences: int = 16,
        kv_memory: int | str | None = None,
        reproducible: bool = False,
        draft: str | os.PathLike[str] | None = None,
        prefix_cache: str | os.PathLike[str] | None = None,
        prefix_cache_size: int | str = "1 GiB",
        pooling: str | None = None,
        max_waiting: int = 1024,
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
        """Opens a GGUF model, a Hugging Face folder or a `.pte` program, as `LLM` does.

        `max_sequences` run at a time; up to `max_waiting` more wait. `kv_memory` ("2 GiB", or bytes) is what all keys
        and values may take: by default a context for each of four sequences, which more can share. `chunk` is how many
        tokens a step has at most, those of prompts included: by default 512 on a GPU, 128 on a software adapter. With
        `reproducible`, the tokens of an answer do not depend on what else is in its batches. `draft` is a smaller model
        with the same vocabulary: it guesses tokens of every answer without penalties and logprobs, and the model checks
        several of them in one step. `prefix_cache` is a folder of at most `prefix_cache_size` bytes, where what was
        read is kept for engines to come. With a `pooling`, "last" or "mean", a GGUF model gives embeddings instead of
        answers; by default if its file says so. Encoders always do, and also pool by "cls". Models with a head for it
        "rank" documents.
        `media_tokens` are as in `LLM`.
        """
        placement = check_opening(model, tokenizer, context, chunk, device, kv, routes, progress)
        placement = with_weights(placement, quantize, merge, adapters)
        for name, value in (("max_sequences", max_sequences), ("max_waiting", max_waiting)):
            check_int(name, value, 1)
        check_bool("reproducible", reproducible)
        for name, path in (("draft", draft), ("prefix_cache", prefix_cache)):
            if path is not None:
                check_path(name, path)
        if pooling is not None and pooling not in POOLINGS:
            raise InputError(f"pooling must be one of {', '.join(POOLINGS)}, not {shown(pooling)}")
        cache_bytes = checked_bytes("prefix_cache_size", prefix_cache_size)
        kv_bytes = None if kv_memory is None else checked_bytes("kv_memory", kv_memory)
        placement = replace(placement, sequences=max_sequences, kv_bytes=kv_bytes, alike=reproducible, pooling=pooling)
        self._model = open_model(model, tokenizer, context, chunk, placement, check_media_tokens(media_tokens))
        self.path, self.max_waiting = self._model.path, max_waiting
        self.tokenizer, self.context = self._model.tokenizer, self._model.decoder.context
        self.pooling = self._model.pooling  # how a text becomes a vector; "" for a model that gives answers
        try:
            store = None if prefix_cache is None else self._store(prefix_cache, cache_bytes)
            drafter = None if draft is None else self._drafter(draft, chunk, placement)
        except BaseException:
            self._model.decoder.close()
            raise
        self._loop = _StepLoop(self._model, max_sequences, drafter, store)
        self._close = weakref.finalize(self, self._loop.close)

    def _drafter(self, path: str | os.PathLike[str], chunk: int | None, placement: Placement) -> Drafter:
        if self.pooling:
            raise InputError("a draft model guesses tokens; embeddings have none")
        if self._model.media is not None:
            raise InputError(f"a draft model cannot see what is shown to {self.path.name}")
        guessing = replace(placement, kv_bytes=None, pooling="", merge={}, adapters={})
        model = open_model(path, self.tokenizer, None, chunk, guessing)
        ours, its = self._model.decoder.vocab_size, model.decoder.vocab_size
        if ours != its:
            model.decoder.close()
            raise InputError(f"{model.path.name} has a vocabulary of {its} tokens, and {self.path.name} one of {ours}")
        return Drafter(model.decoder)

    def _store(self, folder: str | os.PathLike[str], size: int) -> PrefixStore | None:
        """None for a model whose sequences take turns: it has no pages. Ids of images are this process's own."""
        decoder = self._model.decoder
        if not isinstance(decoder, RaggedDecoder) or self._model.media is not None:
            return None
        return PrefixStore(folder, size, decoder, self._model.fingerprint)

    def __repr__(self) -> str:
        if not self._close.alive:
            return f"<Engine {self.path.name} (closed)>"
        stats = self.stats()
        on = f"on {self._model.decoder.device}, context {self.context}"
        return f"<Engine {self.path.name} {on}: {stats.running} running, {stats.waiting} waiting>"

    @property
    def decoder(self) -> Decoder:
        return self._model.decoder

    @property
    def marks(self) -> Marks:
        """The marks that stand for images and audio in prompts, of the kinds that the model takes."""
        return self._model.marks

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of text, of chat messages (through the model's template), or of ids."""
        return self._model.encode(prompt)

    def submit(
        self,
        prompt: Prompt,
        options: GenerationOptions | None = None,
        n: int = 1,
        made: Sequence[int] = (),
        **changes: Any,
    ) -> Request:
        """Ask for an answer to text, token ids or chat messages, or for `n` of them; returns at once.

        Options are those of `LLM.stream`. Samples of one request have the seeds seed, seed + 1 and so on. `made` are
        the first tokens of an answer that another engine of the same model began: this one goes on behind them, as the
        other would have with the same seed and options. `max_tokens` counts them, and only what follows them is given.
        """
        self._check_open()
        if self.pooling:
            raise InputError(f"{self.path.name} gives embeddings, not answers; use embed")
        check_int("n", n, 1)
        if n > MAX_SAMPLES:
            raise InputError(f"n must be at most {MAX_SAMPLES}, not {n}")
        begun = checked_list("made", made, "token ids")
        for token in begun:
            check_int("a token id in made", token, 0)
        if begun and n > 1:
            raise InputError("made is the beginning of one answer; ask for each of several by itself")
        given = read_options(options, changes)
        seeds = [None if given.seed is None else given.seed + sample for sample in range(n)]
        ids = self._model.encode(prompt)
        spelled = isinstance(prompt, str)
        generations = [self._generation(ids, replace(given, seed=seed), spelled, begun) for seed in seeds]
        for follower in generations[1:]:
            follower.leader = generations[0]
        request = Request(generations, self._loop.cancel)
        self._loop.add(request, self.max_waiting)
        return request

    def _generation(self, ids: list[int], options: GenerationOptions, spelled: bool, made: Sequence[int]) -> Generation:
        sequence = PagedSequence(self._loop.batcher.pool)
        if self._loop.batcher.drafter is not None and options.sampling.on_device:
            options = replace(options, speculate=True)
        return self._model.generation(sequence, ids, options, spelled, made)

    def generate(
        self, prompts: Sequence[Prompt], options: GenerationOptions | None = None, **changes: Any
    ) -> list[Completion]:
        """The answers to a list of prompts, in their order."""
        if isinstance(prompts, str) or not isinstance(prompts, Sequence):
            raise InputError("generate takes a list of prompts; submit takes one")
        return self._in_turn(prompts, lambda prompt: self.submit(prompt, options, **changes))

    def submit_text(self, text: str | Sequence[int], *, truncate: bool = False, normalize: bool = True) -> Request:
        """Ask for the vector of a text or of token ids; returns at once. It is `result().vector`.

        A text that is longer than the context is refused, or cut with `truncate`. The vector has length 1, or that
        of the model without `normalize`. Of a model that ranks it is a score, and the ids are those of a pair.
        """
        self._check_open()
        if not self.pooling:
            known = " or ".join(map(repr, POOLINGS))
            raise InputError(f"{self.path.name} gives answers; for embeddings, open it with pooling={known}")
        return self._submit_ids(self._model.whole_text(text, truncate), normalize)

    def _submit_ids(self, ids: list[int], normalize: bool = True) -> Request:
        vector = self._model.text_vector(self._loop.batcher.pool, ids, normalize)
        request = Request([vector], self._loop.cancel)
        self._loop.add(request, self.max_waiting)
        return request

    def embed(
        self, texts: Sequence[str | Sequence[int]], *, truncate: bool = False, normalize: bool = True
    ) -> np.ndarray:
        """The vectors [texts, width] of texts, each of length 1; their products are cosines. See `submit_text`."""
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise InputError("embed takes a list of texts")
        if self._model.head is not None:
            raise InputError(f"{self.path.name} ranks documents, and gives no vectors; use rank")

        def submit(text: str | Sequence[int]) -> Request:
            return self.submit_text(text, truncate=truncate, normalize=normalize)

        vectors = [done.vector for done in self._in_turn(texts, submit)]
        return np.array(vectors, np.float32).reshape(len(vectors), self._width)

    @property
    def _width(self) -> int:
        decoder = self.decoder
        assert isinstance(decoder, RaggedDecoder | Encoder)
        return decoder.width

    def rank(self, query: str, documents: Sequence[str], *, truncate: bool = False) -> np.ndarray:
        """How well each document goes with the query [documents]; the higher the better.

        The score that a reranker gives for both together, or else the cosine of their vectors.
        """
        if isinstance(documents, str) or not isinstance(documents, Sequence):
            raise InputError("rank takes a list of documents")
        if self._model.head is None:
            vectors = self.embed([query, *documents], truncate=truncate)
            return vectors[1:] @ vectors[0]
        self._check_open()

        def submit(document: str) -> Request:
            return self._submit_ids(self._model.text_pair(query, document, truncate))

        return np.array([done.vector for done in self._in_turn(documents, submit)], np.float32).reshape(-1)

    def _in_turn(self, given: Sequence[Any], submit: Callable[[Any], Request]) -> list[Completion]:
        """The results of requests for all that is given, no more of them waiting than may."""
        requests: list[Request] = []
        try:
            for one in given:
                while len(requests) - sum(request.ended for request in requests) >= self.max_waiting:
                    next(request for request in requests if not request.ended).result()
                requests.append(submit(one))
            return [request.result() for request in requests]
        except BaseException:
            for request in requests:
                request.cancel()
            raise

    def stats(self) -> EngineStats:
        """What it is doing now."""
        self._check_open()
        return self._loop.stats()

    def device_bytes(self) -> dict[str, int]:
        """Memory on the device by kind."""
        self._check_open()
        return self._model.decoder.device_bytes()

    def close(self) -> None:
        """End all requests and free the device's memory; closing twice is fine."""
        self._close()

    def _check_open(self) -> None:
        if not self._close.alive:
            raise HightideError(f"the engine of {self.path.name} is closed; open it again with hightide.Engine")
        self._loop.check_process()


class _StepLoop:
    """The thread that runs steps. What others want of it waits in a queue until the step under way has ended."""

    def __init__(self, model: Model, max_sequences: int, drafter: Drafter | None, store: PrefixStore | None) -> None:
        self.model = model
        self.batcher = Batcher(model.decoder, max_sequences, share_prefixes=True, drafter=drafter, store=store)
        self._lock = threading.RLock()
        self._wanted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._requests: dict[Generation, Request] = {}
        self._arriving: set[Request] = set()  # in the queue
        self._closing = False
        self._pace: deque[tuple[float, int]] = deque()  # (time, new tokens so far)
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="hightide engine", daemon=True)
        self._thread.start()

    def check_process(self) -> None:
        if os.getpid() != self._process:
            raise DeviceError("this engine belongs to the process that opened it; open another one after a fork")

    def add(self, request: Request, max_waiting: int) -> None:
        def begin() -> None:
            self._arriving.discard(request)
            for generation in request.generations:
                self._requests[generation] = request
                self.batcher.add(generation)
            request.deliver()

        with self._lock:
            if self._waiting() >= max_waiting:
                raise HightideError(f"{max_waiting} requests are waiting already; ask again later")
            try:
                self._arriving.add(request)
                self._ask(begin)
            except BaseException:
                self._arriving.discard(request)
                raise

    def cancel(self, request: Request) -> None:
        def end() -> None:
            for generation in request.generations:
                self.batcher.remove(generation)
            request.deliver()

        with self._lock:
            if not self._closing:
                self._ask(end)

    def _ask(self, what: Callable[[], None]) -> None:
        if self._closing:
            raise HightideError("the engine is closed")
        self._wanted.put(what)

    def _waiting(self) -> int:
        return len(self.batcher.waiting) + len(self._arriving)

    def stats(self) -> EngineStats:
        batcher, pool, counters = self.batcher, self.batcher.pool, self.batcher.counters
        now = time.monotonic()
        pace = [(at, made) for at, made in tuple(self._pace) if now - at <= RATE_SECONDS]
        rate = (counters.new_tokens - pace[0][1]) / max(now - pace[0][0], 1e-9) if pace else 0.0
        return EngineStats(
            running=len(batcher.running),
            waiting=self._waiting(),
            pages=pool.count,
            pages_used=pool.used,
            pages_shared=pool.shared,
            page_tokens=pool.size,
            steps=counters.steps,
            rows=counters.rows,
            new_tokens=counters.new_tokens,
            tokens_per_second=rate,
            prefix_tokens=counters.found,
            disk_tokens=counters.from_disk,
            set_aside=counters.set_aside,
        )

    def close(self) -> None:
        self.check_process()
        with self._lock:
            self._closing = True
            self._wanted.put(lambda: None)  # wakes the loop
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            if not (self.batcher.busy or self.batcher.unsaved):
                self._wanted.get()()
            closing = self._closing  # what was wanted before that is in the queue by now
            with suppress(Empty):
                while True:
                    self._wanted.get_nowait()()
            if closing:
                break
            self._step()
        self._end()

    def _step(self) -> None:
        batcher = self.batcher
        try:
            heard = set(batcher.step())
        except BaseException as error:  # the loop goes on for those who ask next
            for generation in self._requests:
                if not generation.ended:
                    generation.fail(error)
            batcher.abandon()
            heard = set(self._requests)
        heard |= {generation for generation in self._requests if generation.ended}
        for request in {id(r): r for g in heard if (r := self._requests.get(g))}.values():
            request.deliver()
        for generation in [g for g in heard if g.ended]:
            self._requests.pop(generation, None)
        now = time.monotonic()
        self._pace.append((now, batcher.counters.new_tokens))
        while now - self._pace[0][0] > RATE_SECONDS:
            self._pace.popleft()

    def _end(self) -> None:
        for generation, request in self._requests.items():
            if not generation.ended:
                generation.fail(HightideError("the engine was closed"))
                self.batcher.remove(generation)
            request.deliver()
        self._requests.clear()
        if self.batcher.store is not None:
            while self.batcher.busy or self.batcher.unsaved:
                self._step()
        self.batcher.abandon()
        if self.batcher.drafter is not None:
            self.batcher.drafter.decoder.close()
        self.model.decoder.close()
