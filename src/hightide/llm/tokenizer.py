"""Text to token ids and back, from the vocabulary that comes with a model.

The merging is done by the `tokenizers` package; what is here reads the vocabulary files, says which ids are
special, and spells tokens as bytes, so that text can be streamed.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tokenizers

from hightide.errors import InputError, ProgramError, UnsupportedError
from hightide.formats.gguf import is_gguf, read_gguf
from hightide.formats.rerankers import TEMPLATE_FIELD
from hightide.llm.pair_template import PairTemplate
from hightide.llm.pretokenizers import (
    BYTE_TOKEN,
    BYTES,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Pieces,
    byte_level,
    read_llama2c,
    read_sentencepiece,
    read_tiktoken,
    sentencepiece,
    token_ids,
)
from hightide.llm.text_cuts import pretokenizer
from hightide.llm.vocabulary_fields import (
    Frame,
    field_list,
    frame_of,
    id_of,
    merges_of,
    read_bytes,
    read_json,
    reported,
    template_beside,
    whole_text_ids,
)
from hightide.llm.word_pieces import marked_words, merged_pieces, unigram, wordpiece

# Tokens that end an answer, whatever their file says of them (after llama.cpp's list) ...
END_NAMES = re.findall(
    r"\S+",
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|endoftext|> <|end_of_text|> <|eom_id|> <end_of_turn> "
    "<end_of_utterance> <turn|> <｜end▁of▁sentence｜> <|fim_pad|> <|repo_name|> <|file_sep|>",
)
# ... and those that may also be plain text, such as markup, and so must not be of type NORMAL.
END_NAMES_IF_SPECIAL = ["</s>", "<eos>", "<EOT>", "[EOT]", "[EOS]"]

# The special tokens of Llama 3.1 and later, in the order of their ids, which its tiktoken file lacks.
LLAMA3_SPECIAL = re.findall(
    r"\S+",
    "<|begin_of_text|> <|end_of_text|> <|reserved_special_token_0|> <|reserved_special_token_1|> "
    "<|finetune_right_pad_id|> <|step_id|> <|start_header_id|> <|end_header_id|> <|eom_id|> <|eot_id|> "
    "<|python_tag|> <|image|>",
) + [f"<|reserved_special_token_{i}|>" for i in range(2, 246)]

MODELS = ("gpt2", "llama", "bert", "t5", "gemma4")  # that `tokenizer.ggml.model` may name

_TIKTOKEN_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")


@dataclass(frozen=True)
class Tokenizer:
    backend: tokenizers.Tokenizer
    byte_level: bool  # tokens are spelled in GPT-2's byte alphabet; else as SentencePiece does: ▁, <0x0A>
    vocab_size: int
    control: frozenset[int]  # special tokens, which text shows only on request
    literal: frozenset[int]  # tokens spelled as they are: the special and the user-defined ones
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()  # every id that ends an answer, the model's own eos first
    add_bos: bool = False
    closing_id: int | None = None  # the token behind a text that nothing follows, if the model wants one
    between: tuple[int, ...] = ()  # the tokens between two texts that are read together
    space_prefix: bool = False  # encoding puts a space before the text, decoding takes it away
    chat_template: str | None = None
    pair_template: PairTemplate | None = None  # of a decoder that ranks
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def encode(self, text: str, *, special: bool = False, bos: bool | None = None) -> list[int]:
        """`special`: names of special tokens in the text stand for them, else they are plain text.
        `bos`: begin with the BOS token; by default if the model wants it and the text does not have it."""
        with self._lock, reported("the tokenizer cannot encode this text"):
            self.backend.encode_special_tokens = not special  # the switch belongs to the backend, not to the call
            try:
                ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
            except (TypeError, UnicodeError):
                raise InputError("text to encode must be a string of whole Unicode characters") from None
        if bos is None:
            bos = self.add_bos and ids[:1] != [self.bos_id]
        if not bos:
            return ids
        if self.bos_id is None:
            raise InputError("this tokenizer has no BOS token")
        return [self.bos_id, *ids]

    def encode_whole(self, text: str) -> list[int]:
        """A text that nothing follows: one to be embedded, not continued."""
        ids = self.encode(text)
        return ids if self.closing_id is None or ids[-1:] == [self.closing_id] else [*ids, self.closing_id]

    def encode_pair(self, first: str, second: str) -> list[int]:
        """Two texts to be read together, as a query and a document."""
        if (template := self.pair_template) is not None:
            ids = self.encode(template.before, special=True) + self.encode(template.filled(first, second), bos=False)
            return [*ids, *self.encode(template.behind, special=True, bos=False)]
        closing = [] if self.closing_id is None else [self.closing_id]
        return [*self.encode(first), *self.between, *self.encode(second, bos=False), *closing]

    def cut(self, ids: list[int], length: int) -> list[int]:
        """At most so many of the ids of a whole text or a pair; the tokens that close it stay."""
        if len(ids) <= length:
            return ids
        closing = [] if self.closing_id is None else [self.closing_id]
        if self.pair_template is not None:
            closing = self.encode(self.pair_template.behind, special=True, bos=False)
        kept = length - len(closing)
        return [*ids[:kept], *closing] if kept >= 0 and ids[len(ids) - len(closing) :] == closing else ids[:length]

    def text_types(self, ids: Sequence[int]) -> list[int]:
        """Of which of two texts each token is, 0 or 1; [] if there is one. The tokens between belong to the first."""
        size = len(self.between)
        for end in range(size, len(ids)):
            if size and tuple(ids[end - size : end]) == self.between:
                return [0] * end + [1] * (len(ids) - end)
        return []

    def decode(self, ids: Iterable[int], *, special: bool = False, continues: bool = False) -> str:
        """`special`: show special tokens. `continues`: the ids follow other text, so a first space is part of it."""
        data = bytearray()
        start = self.space_prefix and not continues
        for token_id in ids:
            piece = self.piece(token_id)
            if token_id in self.control:
                data += piece if special else b""
            else:
                data += piece.removeprefix(b" ") if start else piece
                start = False
        return data.decode("utf-8", "replace")

    def find(self, token: str) -> int | None:
        """The id of a token that the vocabulary spells like this."""
        found: int | None = self.backend.token_to_id(token)
        return found

    def token(self, token_id: int) -> str:
        """The token as the vocabulary spells it."""
        if not 0 <= token_id < self.vocab_size:
            raise InputError(f"token {token_id} is outside the vocabulary of {self.vocab_size}")
        with reported(f"the tokenizer cannot decode token {token_id}"):
            return self.backend.id_to_token(token_id) or ""  # some vocabularies have gaps

    def piece(self, token_id: int, *, made: bool = False) -> bytes:
        """The bytes of a token; they may be part of a character.

        `made`: by a model, which may have more logits than there are tokens. Those behind the last have no text.
        """
        if made and token_id >= self.vocab_size:
            return b""
        token = self.token(token_id)
        if self.byte_level:
            if token_id in self.literal or not BYTES.keys() >= set(token):
                return token.encode()
            return bytes(BYTES[character] for character in token)
        if token_id in self.control:
            return token.encode()
        if byte := BYTE_TOKEN.fullmatch(token):
            return bytes([int(byte[1], 16)])
        return token.replace("▁", " ").encode()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """From `tokenizer.json`, `tokenizer.model` (SentencePiece or tiktoken), a GGUF file or a llama2.c `.bin`."""
        path = Path(path)
        if is_gguf(path):
            return cls.from_gguf(read_gguf(path).metadata)
        if path.suffix == ".json":
            return _from_json(path)
        if path.suffix == ".bin":
            return cls.from_llama2c(path)
        data = read_bytes(path)
        if _TIKTOKEN_LINE.match(data):
            return _from_tiktoken(data, str(path))
        if data[:1] == b"\x0a":  # a protobuf that begins with a piece
            return _from_pieces(read_sentencepiece(data, str(path)))
        raise UnsupportedError(f"{path} is neither a tokenizer.json, a tokenizer.model, a GGUF nor a llama2.c file")

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """From the fields of a GGUF file as plain Python values."""
        fields = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}
        model = fields.get("model")
        tokens = [token or f"[EMPTY_{i}]" for i, token in enumerate(field_list(fields, "tokens", str))]
        types = field_list(fields, "token_type", int, len(tokens)) or [NORMAL] * len(tokens)
        ends = whole_text_ids(fields)
        rest: dict[str, Any] = dict(
            eos_ids=[fields.get(f"{name}_token_id") for name in ("eos", "eot", "eom")],
            closing_id=ends.closing_id,
            between=ends.between,
            chat_template=fields.get("tokenizer.chat_template"),
            swallow_space="phi-3" in str(fields.get("general.name")).lower().replace("phi3", "phi-3"),
        )
        if model in ("llama", "t5", "gemma4"):
            scores = field_list(fields, "scores", (int, float), len(tokens)) or [0.0] * len(tokens)
            bos_id = fields.get("bos_token_id", 1 if model == "llama" else None)
            prefix = bool(fields.get("add_space_prefix", model != "gemma4"))
            collapse = model == "t5" and bool(fields.get("remove_extra_whitespaces", False))
            pieces = Pieces(tokens, scores, types, bos_id, 1 if model == "t5" else 2, prefix, collapse)
            backend = None if model == "llama" else _piece_backend(model, pieces, fields)
            add_bos = bool(fields.get("add_bos_token", model == "llama"))
            return _from_pieces(pieces, backend, add_bos=add_bos, **rest)
        if model == "bert":
            return _from_wordpiece(tokens, types, fields, rest)
        if model != "gpt2":
            raise UnsupportedError(f"the tokenizer model {model!r} is not supported; {', '.join(MODELS)} are")
        pre = pretokenizer(str(fields.get("pre") or "default"))
        with reported("the vocabulary cannot be used"):
            backend = byte_level(tokens, merges_of(fields), pre)
        add_bos = bool(fields.get("add_bos_token", pre.add_bos))
        own = Conventions(fields.get("bos_token_id", fields.get("cls_token_id")), add_bos=add_bos, **rest)
        return _finish(backend, tokens, types, own)

    @classmethod
    def from_llama2c(cls, path: str | os.PathLike[str], vocab_size: int | None = None) -> Tokenizer:
        pieces = read_llama2c(read_bytes(Path(path)), str(path))
        if vocab_size not in (None, len(pieces.tokens)):
            raise ProgramError(f"{path} has {len(pieces.tokens)} tokens, but the model has {vocab_size}")
        return _from_pieces(pieces)


def find_tokenizer(
    model: Path, given: str | os.PathLike[str] | Tokenizer | None, metadata: Mapping[str, Any] | None
) -> Tokenizer | None:
    """The one given, the one in a GGUF model, or a tokenizer file in the model's folder."""
    found = _found_tokenizer(model, given, metadata)
    if found is None or metadata is None or TEMPLATE_FIELD not in metadata:
        return found
    return replace(found, pair_template=PairTemplate.parsed(metadata[TEMPLATE_FIELD], model))


def _found_tokenizer(
    model: Path, given: str | os.PathLike[str] | Tokenizer | None, metadata: Mapping[str, Any] | None
) -> Tokenizer | None:
    if isinstance(given, Tokenizer):
        return given
    if given is not None:
        return Tokenizer.from_file(given)
    if metadata is not None and "tokenizer.ggml.model" in metadata:
        return Tokenizer.from_gguf(metadata)
    if metadata is not None and not model.is_dir():
        return None
    exported = (model.with_suffix(f".tokenizer.{kind}") for kind in ("gguf", "json"))  # as `hightide export` names it
    folder = model if model.is_dir() else model.parent
    for path in (*exported, folder / "tokenizer.json", folder / "tokenizer.model"):
        if path.is_file():
            return Tokenizer.from_file(path)
    return None


@dataclass(frozen=True)
class Conventions:
    """What a vocabulary file says beside its tokens."""

    bos_id: int | None
    eos_ids: Sequence[int | None]
    add_bos: bool
    closing_id: int | None = None
    between: tuple[int, ...] = ()
    byte_level: bool = True
    space_prefix: bool = False
    chat_template: str | None = None
    swallow_space: bool = False  # special tokens take the space behind them with them


def _from_pieces(
    pieces: Pieces,
    backend: tokenizers.Tokenizer | None = None,
    *,
    eos_ids: Sequence[int | None] = (),
    add_bos: bool = True,
    **rest: Any,
) -> Tokenizer:
    """`backend` is the one of a vocabulary that is not merged by score."""
    own = Conventions(
        bos_id=pieces.bos_id,
        eos_ids=eos_ids if any(i is not None for i in eos_ids) else [pieces.eos_id],
        add_bos=add_bos,
        byte_level=False,
        space_prefix=pieces.space_prefix,
        **rest,
    )
    if backend is None:
        with reported("the vocabulary cannot be used"):
            backend = sentencepiece(pieces)
    return _finish(backend, pieces.tokens, pieces.types, own)


def _piece_backend(model: str, pieces: Pieces, fields: Mapping[str, Any]) -> tokenizers.Tokenizer:
    with reported("the vocabulary cannot be used"):
        if model == "gemma4":
            return merged_pieces(pieces, merges_of(fields))
        charsmap = bytes(number & 255 for number in fields.get("precompiled_charsmap", ()))
        return unigram(pieces, fields.get("unknown_token_id", 2), charsmap)


def _from_wordpiece(
    tokens: Sequence[str], types: Sequence[int], fields: Mapping[str, Any], rest: Mapping[str, Any]
) -> Tokenizer:
    """The vocabulary of BERT; its fields are those of a GGUF file."""
    lowercase = bool(fields.get("normalizer.lowercase", True))
    accents = bool(fields.get("normalizer.strip_accents", lowercase))
    with reported("the vocabulary cannot be used"):
        backend = wordpiece(tokens, fields.get("unknown_token_id", 100), lowercase=lowercase, strip_accents=accents)
    bos_id = fields.get("cls_token_id", fields.get("bos_token_id", 101))
    add_bos = bool(fields.get("add_bos_token", True))
    own = Conventions(bos_id, add_bos=add_bos, byte_level=False, space_prefix=True, **rest)
    return _finish(backend, tokens, types, own)


def _from_tiktoken(data: bytes, place: str) -> Tokenizer:
    """`tokenizer.model` of Llama 3, whose special tokens follow the others by convention."""
    tokens, merges = read_tiktoken(data, place)
    types = [NORMAL] * len(tokens) + [CONTROL] * len(LLAMA3_SPECIAL)
    bos_id, eos_id = len(tokens), len(tokens) + 1
    tokens += LLAMA3_SPECIAL
    with reported(f"{place} cannot be used"):
        backend = byte_level(tokens, merges, pretokenizer("llama-bpe"))
    return _finish(backend, tokens, types, Conventions(bos_id, [eos_id], add_bos=True))


def _finish(backend: tokenizers.Tokenizer, tokens: Sequence[str], types: Sequence[int], own: Conventions) -> Tokenizer:
    """Adds the special tokens to the backend, and to the model's own eos the others that end an answer."""
    for token_id in (own.bos_id, own.closing_id, *own.between, *own.eos_ids):
        if token_id is not None and not (isinstance(token_id, int) and 0 <= token_id < len(tokens)):
            raise ProgramError(f"the special token {token_id} is outside the vocabulary of {len(tokens)}")
    special = {token: i for i, token in enumerate(tokens) if types[i] != NORMAL}
    ends = _end_ids(token_ids(tokens), special, own.eos_ids)
    control = {i for i, kind in enumerate(types) if kind in (UNKNOWN, CONTROL)}.union(ends)
    user = {i for i, kind in enumerate(types) if kind == USER_DEFINED} - control

    def added(token_id: int, normalized: bool) -> tokenizers.AddedToken:
        token = tokens[token_id]
        # Phi-3's special tokens, but these, swallow the space behind them; GGUF has no field for it.
        swallows = own.swallow_space and token not in ("<unk>", "<s>", "<|endoftext|>")
        return tokenizers.AddedToken(token, normalized=normalized, rstrip=swallows)

    with reported("the special tokens cannot be used"):
        backend.add_special_tokens([added(i, False) for i in sorted(control)])
        # SentencePiece looks for user-defined pieces in text whose spaces are ▁. Where the backend also puts a
        # space before the text it would do so to these tokens, so then they are looked for in the raw text.
        backend.add_tokens([added(i, not own.byte_level and not own.space_prefix) for i in sorted(user)])
    shown = frozenset(control), frozenset(control | user)
    return Tokenizer(
        backend,
        own.byte_level,
        len(tokens),
        *shown,
        bos_id=own.bos_id,
        eos_ids=ends,
        add_bos=own.add_bos and own.bos_id is not None,
        closing_id=own.closing_id,
        between=own.between,
        space_prefix=own.space_prefix,
        chat_template=own.chat_template,
    )


def _from_json(path: Path) -> Tokenizer:
    """`tokenizer.json` of Hugging Face; what it does not say is in the files beside it."""
    text = read_bytes(path)
    with reported(f"{path} is not a tokenizer.json"):
        fields = json.loads(text)
        decoder = str(fields["decoder"])
        words = fields["model"].get("type") == "WordPiece"
        if fields["model"].get("continuing_subword_prefix") and not words:  # with merges that lack it it aborts
            raise UnsupportedError(f"{path} marks the inside of words; only WordPiece of BERT may")
        backend = tokenizers.Tokenizer.from_buffer(text)
        backend.no_truncation()
        backend.no_padding()
        frame = frame_of(backend)
        vocabulary = backend.get_vocab(with_added_tokens=True)
        added = backend.get_added_tokens_decoder()
    special = {token.content: i for i, token in added.items() if token.special}
    if words:
        with reported(f"{path} is not a vocabulary of BERT"):
            return _from_bert_json(fields, vocabulary, special, frame)
    if "ByteLevel" not in decoder and "▁" not in decoder:
        raise UnsupportedError(
            f"{path} spells tokens in an unknown way; only byte-level BPE, SentencePiece and WordPiece work"
        )
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "generation_config.json", "tokenizer_config.json"):
        config |= read_json(path.with_name(name))
    bos_id = id_of(backend, config.get("bos_token", config.get("cls_token")))
    eos = config.get("eos_token_id")
    own = [id_of(backend, config.get("eos_token")), *(eos if isinstance(eos, list) else [eos])]
    asked = config.get("add_bos_token")
    return Tokenizer(
        backend,
        byte_level="ByteLevel" in decoder,
        vocab_size=1 + max(vocabulary.values(), default=-1),
        control=frozenset(special.values()),
        literal=frozenset(added),
        bos_id=bos_id,
        eos_ids=_end_ids(special, special, [i for i in own if isinstance(i, int)]),
        add_bos=bos_id is not None and (asked if isinstance(asked, bool) else frame.first[:1] == [bos_id]),
        closing_id=next((i for i in frame.last[-1:] if i in special.values()), None),
        between=tuple(frame.between),
        space_prefix="'Strip'" in decoder
        or ("Metaspace" in decoder and not re.search("'never'|'add_prefix_space': False", decoder)),
        chat_template=template_beside(path, config.get("chat_template")),
    )


def _from_bert_json(
    fields: Mapping[str, Any], vocabulary: Mapping[str, int], special: Mapping[str, int], frame: Frame
) -> Tokenizer:
    """WordPiece as Hugging Face has it, by way of what a GGUF file would say."""
    normalizer = fields.get("normalizer") or {}
    if normalizer.get("type") != "BertNormalizer" or fields["model"].get("continuing_subword_prefix") != "##":
        raise UnsupportedError("only WordPiece with BERT's normalizer and ## inside of words is supported")
    tokens = marked_words(vocabulary, special)
    types = [CONTROL if token in special else NORMAL for token in tokens]
    lowercase = normalizer.get("lowercase") is not False
    accents = normalizer.get("strip_accents")
    said = {
        "unknown_token_id": vocabulary.get(fields["model"].get("unk_token")),
        "normalizer.lowercase": lowercase,
        "normalizer.strip_accents": lowercase if accents is None else accents,
        "cls_token_id": frame.first[0] if frame.first else None,
        "add_bos_token": bool(frame.first),
    }
    closing_id = frame.last[-1] if frame.last else None
    return _from_wordpiece(tokens, types, said, dict(eos_ids=[], closing_id=closing_id, between=tuple(frame.between)))


def _end_ids(ids: Mapping[str, int], special: Mapping[str, int], own: Iterable[int | None]) -> tuple[int, ...]:
    ends = [i for i in own if i is not None]
    ends += [ids[name] for name in END_NAMES if name in ids]
    ends += [special[name] for name in END_NAMES_IF_SPECIAL if name in special]
    if "<|return|>" in ids and "<|call|>" in ids:  # the harmony format, where <|end|> ends only a message
        ends = [i for i in ends if i != ids.get("<|end|>")]
    return tuple(dict.fromkeys(ends))
