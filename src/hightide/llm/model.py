"""A model as it is opened: its decoder, its tokenizer, and the tokens that end an answer."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from hightide.errors import InputError, TooLargeError, UnsupportedError, reading
from hightide.formats.gguf import GgufFile
from hightide.formats.lora import checked_adapters, merged, named_adapters, read_adapter
from hightide.formats.model_file import is_model, read_model
from hightide.formats.quantizers import checked_kind, quantized
from hightide.fuse.ragged import NotRaggedError
from hightide.llm.chat_prompt import chat_prompt
from hightide.llm.context_room import what_fits
from hightide.llm.decoder import Decoder, RaggedDecoder
from hightide.llm.default_model import DEFAULT, default_model
from hightide.llm.encoder import open_encoder
from hightide.llm.generation import Generation
from hightide.llm.grammar import GrammarVocabulary
from hightide.llm.media import ENCODERS, Media
from hightide.llm.media_marks import Marks, MediaMark, find_mark, no_encoder
from hightide.llm.models import build_graph, is_encoder
from hightide.llm.models.model_builder import choose_context
from hightide.llm.multimodal import is_multimodal, open_multimodal
from hightide.llm.options import GenerationOptions
from hightide.llm.page_pool import PagedSequence, PagePool
from hightide.llm.ragged_model import PAGE, Placement, ragged_decoder
from hightide.llm.rank_head import RankHead, rank_head
from hightide.llm.state_file import fingerprint
from hightide.llm.taking_turns import MethodPlace, RereadPlace, TurnsDecoder, graph_in_turns
from hightide.llm.text_stream import TextStream
from hightide.llm.text_vector import Pooled, PrivateSequence, TextVector, pooling_of
from hightide.llm.tokenizer import Tokenizer, find_tokenizer
from hightide.media.parts import Audio, Image, MediaPart
from hightide.ops.choices import check_routes
from hightide.option_checks import check_callable, check_int, check_path, shown
from hightide.pte.program import Program, load
from hightide.runtime.build import SessionOptions, build_session, check_kv, choose_device, named_device
from hightide.runtime.room import NoRoomError
from hightide.runtime.session import Session
from hightide.traits import Traits

Message = Mapping[str, Any]
Prompt = str | Sequence[int | MediaPart] | Sequence[Message]
PROMPTS = "a prompt is text, token ids, or messages with a role and content; ids and messages may have images and audio"
NO_TOKENS: Mapping[str, str] = MappingProxyType({})
AnyPath = str | os.PathLike[str]
Merging = AnyPath | Sequence[AnyPath] | Mapping[str, float] | None
Adapters = AnyPath | Sequence[AnyPath] | Mapping[str, AnyPath] | None


@dataclass
class Model:
    """A decoder with what turns prompts into tokens."""

    path: Path
    decoder: Decoder
    tokenizer: Tokenizer | None
    ends: frozenset[int]  # tokens that end an answer
    fingerprint: list[int] = field(default_factory=list)
    pooling: str = ""  # of rows to the vector of a text; "" for a model that gives answers
    adapters: tuple[str, ...] = ()  # the names of those that answers may have
    head: RankHead | None = None  # of a model that ranks
    media: Media | None = None  # what it sees and hears
    marks: Marks = field(default_factory=dict)  # that stand for images and audio in its prompts
    _vocabulary: GrammarVocabulary | None = None  # made for the first grammar
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of text, of chat messages (through the model's template), or of ids.

        An image or audio becomes ids above the vocabulary, one for each row that its encoder makes of it.
        """
        if isinstance(prompt, str):
            return self._tokenizer().encode(prompt)
        if not isinstance(prompt, Sequence | np.ndarray) or isinstance(prompt, bytes | bytearray | memoryview):
            raise InputError(PROMPTS)
        messages = [item for item in prompt if isinstance(item, Mapping)]
        if messages and len(messages) == len(prompt):
            made = chat_prompt(
                self._tokenizer(), messages, self.decoder.context, marks=self.marks, model=self.path.name
            )
            return self.with_media(made.ids, made.media)
        ids: list[int] = []
        for item in prompt:
            if isinstance(item, Image | Audio):
                ids += self._rows_of(item)
            elif isinstance(item, int | np.integer) and not isinstance(item, bool):
                ids.append(int(item))
            else:
                raise InputError(PROMPTS)
        return ids

    def with_media(self, ids: Sequence[int], media: Sequence[MediaPart]) -> list[int]:
        """The ids of a prompt, with those of an image or audio in place of -1 - n, its number."""
        if not media:
            return list(ids)
        rows = [self._rows_of(part) for part in media]
        return [each for id in ids for each in (rows[-1 - id] if id < 0 else (id,))]

    def _rows_of(self, part: MediaPart) -> Sequence[int]:
        if self.media is None:
            raise InputError(no_encoder(self.path.name, part.kind, ()))
        return self.media.take(part).ids

    def text_vector(self, pool: PagePool, ids: Sequence[int], normalize: bool = True) -> TextVector:
        """The vector to be made of token ids, or the score of a pair; InputError if it cannot be."""
        self.check_prompt(ids)
        mean = self.pooling == "mean" or (self.head is not None and self.head.mean)
        types = self.tokenizer.text_types(ids) if self.tokenizer is not None and self.decoder.whole else ()
        private = mean or self.decoder.whole
        how = Pooled(mean, self.head, normalize, types)
        return TextVector(self.decoder, (PrivateSequence if private else PagedSequence)(pool), ids, how)

    def whole_text(self, text: str | Sequence[int], truncate: bool = False) -> list[int]:
        """Token ids of a text to be embedded; with `truncate`, as many as the context holds."""
        if not isinstance(text, str) and any(isinstance(item, Mapping) for item in text):
            raise InputError("messages have no vector; text and token ids have")
        if not isinstance(text, str):
            ids = self.encode(text)
            return ids[: self.decoder.context] if truncate else ids
        tokenizer = self._tokenizer()
        ids = tokenizer.encode_whole(text)
        return tokenizer.cut(ids, self.decoder.context) if truncate else ids

    def text_pair(self, query: str, document: str, truncate: bool = False) -> list[int]:
        """Token ids of a query with a document; with `truncate`, of as much of the document as there is room for."""
        for name, text in (("query", query), ("document", document)):
            if not isinstance(text, str):
                raise InputError(f"a {name} is text, not {shown(text)}")
        tokenizer = self._tokenizer()
        ids = tokenizer.encode_pair(query, document)
        return tokenizer.cut(ids, self.decoder.context) if truncate else ids

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(f"{self.path.name} has no tokenizer; give one with tokenizer=, or prompts as token ids")
        return self.tokenizer

    def generation(
        self,
        sequence: PagedSequence,
        ids: list[int],
        options: GenerationOptions,
        continues: bool = False,
        made: Sequence[int] = (),
    ) -> Generation:
        """An answer to be made in this sequence; InputError for a prompt or options that cannot be.

        `continues`: its text goes on where that of the prompt ends. `made` are its first tokens, made before.
        """
        options.sampling.check_tokens(self.decoder.vocab_size)
        self.check_prompt(ids)
        self._check_ids(made)
        if options.stop and self.tokenizer is None:
            raise InputError("stop strings need a tokenizer; without one, use stop_ids")
        text = None
        if self.tokenizer is not None:
            # A grammar says what the text is, a space at its beginning too.
            text = TextStream(self.tokenizer, options.stop, continues=continues or options.grammar is not None)
        ends = frozenset(options.stop_ids).union(() if options.ignore_eos else self.ends)
        constraint = None if options.grammar is None else self._grammar_vocabulary().constraint(options.grammar)
        strengths = self._strengths(options.adapters or {})
        generation = Generation(self.decoder, sequence, ids, options, ends, text, constraint, made, strengths)
        generation.media = () if self.media is None else self.media.of(ids)
        return generation

    def _strengths(self, wanted: Mapping[str, float]) -> np.ndarray | None:
        """How much of each adapter; None if there is nothing of any."""
        if unknown := next((name for name in wanted if name not in self.adapters), None):
            known = ", ".join(self.adapters) or "none"
            raise InputError(f"{self.path.name} has no adapter {unknown!r}; it was opened with {known}")
        strengths = np.array([wanted.get(name, 0.0) for name in self.adapters], np.float32)
        return strengths if strengths.any() else None

    def _grammar_vocabulary(self) -> GrammarVocabulary:
        if self.tokenizer is None:
            raise InputError(f"a grammar needs a tokenizer, and {self.path.name} has none; give one with tokenizer=")
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = GrammarVocabulary(self.tokenizer, self.decoder.vocab_size)
            return self._vocabulary

    def check_prompt(self, ids: Sequence[int]) -> None:
        if not ids:
            raise InputError("the prompt is empty")
        known = () if self.media is None else self.media.of(ids)
        self._check_ids([id for id in ids if not any(id in medium.ids for medium in known)] if known else ids)
        if len(ids) > self.decoder.context:
            raise InputError(f"the prompt has {len(ids)} tokens; the context holds {self.decoder.context}")

    def _check_ids(self, ids: Sequence[int]) -> None:
        vocabulary = self.decoder.vocab_size
        bad = next((i for i in ids if not 0 <= i < vocabulary), None)
        if bad is not None:
            raise InputError(f"token id {bad} is outside the vocabulary of {vocabulary}")


def check_opening(
    model: Any, tokenizer: Any, context: Any, chunk: Any, device: Any, kv: Any, routes: Any, progress: Any
) -> Placement:
    """The options that `LLM` and `Engine` have in common, checked before anything is opened."""
    check_path("model", model)
    if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
        check_path("tokenizer", tokenizer)
    if context is not None:
        check_int("context", context, 1)
    if chunk is not None:
        check_int("chunk", chunk, 1)
    check_callable("progress", progress)
    check_kv(kv)
    return Placement(named_device(device), kv, check_routes({} if routes is None else routes), progress)


def with_weights(placement: Placement, quantize: Any, merge: Any, adapters: Any) -> Placement:
    """The same, with what is to be done to the weights as they are read."""
    kind, merging = checked_kind(quantize), checked_adapters(merge)
    return replace(placement, quantize=kind, merge=merging, adapters=named_adapters(adapters))


def check_media_tokens(tokens: Any) -> Mapping[str, str]:
    """The tokens that stand for images and audio in prompts, as far as the caller names them."""
    given = {} if tokens is None else tokens
    known = isinstance(given, Mapping) and all(kind in ENCODERS for kind in given)
    if not known or not all(isinstance(token, str) and token for token in given.values()):
        raise InputError(
            f'media_tokens must be the tokens by kind, such as {{"image": "<image>"}}, not {shown(tokens)}'
        )
    return given


def open_model(
    path: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str] | Tokenizer | None,
    context: int | None,
    chunk: int | None,
    placement: Placement,
    tokens: Mapping[str, str] = NO_TOKENS,
) -> Model:
    """A GGUF model, a folder, a `.pte` program or "default". `chunk`: rows of a step of what is no program, at most.

    `tokens` stand for an image or audio in prompts, by kind, where the caller names them.
    """
    path = default_model() if path == DEFAULT else Path(path)
    path = path.resolve() if path.is_dir() else path  # "." has no name
    metadata: Mapping[str, Any] | None = None
    ends: set[int] = set()
    pooling, head = "", None
    media: Media | None = None
    constants: Mapping[str, Any] = {}
    if is_model(path):
        with reading(path):
            file = _read_weights(path, placement)
            pooling = pooling_of(file, placement.pooling)
            head = rank_head(file) if pooling == "rank" else None
        if pooling and placement.pooling == "":
            raise UnsupportedError(f"{path} gives embeddings, not answers: open it with hightide.Embedder")
        metadata = file.metadata
        opened = _open_encoder if is_encoder(file) else _open_gguf
        decoder = opened(file, context, chunk, replace(placement, pooling=pooling), head)
    elif placement.quantize is not None or placement.merge or placement.adapters:
        raise InputError(f"{path.name} is a program; quantize and adapters are for GGUF models and folders")
    elif placement.pooling:
        raise UnsupportedError(f"{path.name} is not a GGUF model; only those give embeddings")
    else:
        program = load(path, device=placement.device, routes=placement.routes)
        if is_multimodal(program):
            decoder, media = open_multimodal(program, context, placement)
        else:
            decoder = _open_pte(program, context, placement)
        ends, constants = program_ends(program), program.metadata
    try:
        found = find_tokenizer(path, tokenizer, metadata)
        known = ends | set(found.eos_ids if found is not None else ())
        marks: dict[str, MediaMark | None] = {}
        if media is not None and found is not None:
            marks = {kind: find_mark(found, kind, tokens.get(kind), constants) for kind in media.encoders}
        return Model(
            path,
            decoder,
            found,
            frozenset(known),
            _fingerprint(path, placement),
            pooling,
            tuple(placement.adapters),
            head,
            media,
            marks,
        )
    except BaseException:
        decoder.close()
        raise


def _read_weights(path: Path, placement: Placement) -> GgufFile:
    """The model's file, as its weights are to be held."""
    file = read_model(path)
    if placement.merge:
        file = merged(file, [(read_adapter(name, file), weight) for name, weight in placement.merge.items()])
    return file if placement.quantize is None else quantized(file, placement.quantize)


def _fingerprint(path: Path, placement: Placement) -> list[int]:
    """Of the weights as they are held."""
    own = [*fingerprint(path), *(placement.quantize or "").encode()]
    for adapter, weight in placement.merge.items():
        own += fingerprint(Path(adapter)) + list(np.float64(weight).tobytes())
    for path in placement.adapters.values():
        own += fingerprint(path)
    return own


def _open_encoder(
    file: GgufFile, context: int | None, chunk: int | None, placement: Placement, head: RankHead | None
) -> Decoder:
    if placement.adapters:
        raise UnsupportedError(f"{file.path.name} is an encoder; its adapters must be merged into its weights")
    gpu = choose_device(placement.device)
    with reading(file.path):
        context = choose_context(file, context)
        return open_encoder(
            file,
            gpu,
            context=context,
            rows=_chunk(gpu) if chunk is None else chunk,
            sequences=placement.sequences,
            first=placement.pooling == "cls" or head is not None,
            routes=placement.session_routes,
            progress=placement.progress,
        )


def _open_gguf(
    file: GgufFile, context: int | None, chunk: int | None, placement: Placement, head: RankHead | None
) -> Decoder:
    path, pooling = file.path, placement.pooling
    if pooling and placement.adapters:
        raise UnsupportedError(f"{path.name} gives embeddings; its adapters must be merged into its weights")
    with reading(path):
        context = choose_context(file, context)
        adapters = [read_adapter(name, file) for name in placement.adapters.values()]
    gpu = choose_device(placement.device)
    chunk = _chunk(gpu) if chunk is None else chunk

    def built(most: int, placement: Placement) -> RaggedDecoder:
        with reading(path):
            graph = build_graph(file, context, min(most, context), headless=bool(pooling), adapters=adapters)
        vocabulary = file.tensors["token_embd.weight"].dims[0] if pooling else None
        return ragged_decoder(graph, gpu, placement, context, most, vocabulary)

    try:
        return built(chunk, placement)
    except NoRoomError as error:
        fewer = max(1, chunk // 4)  # at a time: smaller activations
        try:
            decoder = built(fewer, replace(placement, pages=-(-context // PAGE)))
        except NoRoomError:
            halves = gpu is not None and gpu.traits.f16 and not (placement.kv == "f16" or gpu.traits.half_caches)
            fits = what_fits(error, context, halves)
            raise TooLargeError(f"{file.path.name} with a context of {context}: {error}; {fits}") from error
        warnings.warn(f"{error}; prompts are read in chunks of {fewer} tokens, not {chunk}", stacklevel=4)
        return decoder


def _chunk(gpu: Any) -> int:
    return default_chunk(None if gpu is None else gpu.traits)


def default_chunk(traits: Traits | None) -> int:
    """How many rows a step has at most, unless somebody says so: enough to fill a GPU; fewer where a row takes long."""
    return 128 if traits is None or traits.software else 512


def program_ends(program: Program) -> set[int]:
    """The tokens that end an answer, as far as a program says."""
    ends = program.metadata.get("get_eos_ids", program.metadata.get("get_eos_id", []))
    return {int(end) for end in (ends if isinstance(ends, list) else [ends])}


def program_sizes(program: Program, context: int | None) -> tuple[int, int, bool]:
    """(context, most tokens of a call, whether there is a KV cache) of a program that is a language model.

    Its method `forward` takes tokens, and a position if it has a cache. A `context` uses that much of its own.
    """
    name, info = program.file.path.name, program.methods.get("forward")
    if info is None or not info.inputs or len(info.inputs) > 2 or len(info.inputs[0].dims) != 2:
        raise UnsupportedError(f"{name} is not a language model: it has no method forward(tokens, input_pos)")
    cached = len(info.inputs) == 2
    longest = info.inputs[0].dims[1]
    most = int(program.metadata.get("get_max_context_len", program.metadata.get("get_max_seq_len", longest)))
    most = most if cached else longest
    context = most if context is None else context
    if not 1 <= context <= most:
        raise InputError(f"{name} has a context of {most} tokens; it cannot use {context}")
    return context, longest, cached


def _open_pte(program: Program, context: int | None, placement: Placement) -> Decoder:
    """A program that is a language model; its device and routes are the program's."""
    name, info = program.file.path.name, program.methods.get("forward")
    context, longest, cached = program_sizes(program, context)
    assert info is not None
    graph = program.single_graph("forward")
    if graph is not None and cached:
        try:
            return ragged_decoder(graph, program.gpu, placement, context, longest)
        except NotRaggedError as error:
            if placement.sequences > 1:
                warnings.warn(f"{name} serves its sequences in turns: {error}", stacklevel=5)
    dims = info.outputs[0].dims
    every = len(dims) == 3  # logits of every token, not of the last one only
    turns: dict[str, Any] = {"context": context, "sequences": placement.sequences, "rows": longest, "vocab": dims[-1]}
    if graph is None or not cached:
        if placement.kv == "f16":
            raise UnsupportedError("KV caches in f16 need a program that is one graph with a cache")
        method = program.method("forward")
        device = method.sessions[0].name if method.sessions else "NumPy"
        place = MethodPlace(method, cached, method.sibling)
        return TurnsDecoder(RereadPlace(place, longest) if cached else place, keep=1, device=device, **turns)
    session: Session = build_session(
        graph,
        program.gpu,
        [spec.dynamic for spec in info.inputs],
        ["tokens", "input_pos"],
        SessionOptions(placement.kv, program.routes),
        placement.progress,
    )
    return graph_in_turns(graph, session, keep=longest if every else 1, **turns)
