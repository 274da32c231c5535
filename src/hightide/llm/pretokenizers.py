"""What lies under a tokenizer: vocabularies, and the two families of backends that merge.

A byte-level tokenizer cuts text with regular expressions, then merges bytes spelled in GPT-2's alphabet.
A SentencePiece tokenizer merges characters of the whole text, with spaces spelled `▁` and bytes `<0x0A>`.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from hightide.errors import ProgramError, UnsupportedError
from hightide.llm.text_cuts import PreTokenizer

# Token types, the same in GGUF and SentencePiece.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")

Symbol = TypeVar("Symbol", str, bytes)


def byte_level(tokens: Sequence[str], merges: list[tuple[str, str]], pre: PreTokenizer) -> Tokenizer:
    backend = bpe(token_ids(tokens), merges, ignore_merges=pre.ignore_merges)
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.patterns]
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts, spell])
    return backend


@dataclass(frozen=True)
class Pieces:
    """A SentencePiece vocabulary, and what is done to text before pieces are looked for."""

    tokens: Sequence[str]
    scores: Sequence[float]
    types: Sequence[int]
    bos_id: int | None = 1
    eos_id: int | None = 2
    space_prefix: bool = True  # a space before the first word
    collapse_spaces: bool = False  # runs of spaces become one, and none are left at the ends


def sentencepiece(pieces: Pieces) -> Tokenizer:
    ids = token_ids(pieces.tokens)
    unknown = next((token for token, kind in zip(pieces.tokens, pieces.types, strict=True) if kind == UNKNOWN), None)
    # Control tokens do not come from merges, or plain text could spell them.
    rows = zip(pieces.tokens, pieces.scores, pieces.types, strict=True)
    mergeable = {token: score for token, score, kind in rows if kind not in (UNKNOWN, CONTROL, BYTE)}
    merges = merges_by_score(mergeable, ids)
    backend = bpe(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback="<0x00>" in ids)
    backend.normalizer = normalizers.Sequence(spaces(pieces))
    return backend


def spaces(pieces: Pieces) -> list[normalizers.Normalizer]:
    """What SentencePiece does to the spaces of a text."""
    steps: list[normalizers.Normalizer] = []
    if pieces.collapse_spaces:
        steps.append(normalizers.Replace(Regex(r"\A +| +\z"), ""))
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    if pieces.space_prefix:
        steps.append(normalizers.Prepend("▁"))
    return [*steps, normalizers.Replace(" ", "▁")]


def merges_by_score(scores: Mapping[Symbol, float], ids: Mapping[Symbol, int]) -> list[tuple[Symbol, Symbol]]:
    """Every way to make a piece from two, best piece first: SentencePiece and tiktoken merge by the result."""
    ranked: list[tuple[float, int, int, Symbol, Symbol]] = []
    for piece, score in scores.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in scores and right in scores:
                ranked.append((-score, ids[left], ids[right], left, right))
    ranked.sort(key=lambda merge: merge[:3])
    return [(left, right) for *_, left, right in ranked]


def token_ids(tokens: Sequence[str]) -> dict[str, int]:
    ids = {token: i for i, token in enumerate(tokens)}
    if len(ids) != len(tokens):
        raise ProgramError(f"the vocabulary has {len(tokens)} tokens, but only {len(ids)} different ones")
    return ids


def read_tiktoken(data: bytes, place: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens and merges of a file with, per line, a token in base64 and its rank."""
    try:
        pairs = [line.split() for line in data.splitlines() if line]
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
    except ValueError:
        raise ProgramError(f"{place} is not a tiktoken file: a line is not a base64 token and a rank") from None
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise ProgramError(f"{place} does not have one token for each rank from 0 to {len(ranks) - 1}")
    spelt = {token: "".join(SPELLING[byte] for byte in token) for token in ranks}
    merges = merges_by_score({token: -rank for token, rank in ranks.items()}, ranks)
    tokens = [spelt[token] for token in sorted(ranks, key=ranks.__getitem__)]
    return tokens, [(spelt[left], spelt[right]) for left, right in merges]


def read_sentencepiece(data: bytes, place: str) -> Pieces:
    """A `ModelProto` of sentencepiece_model.proto; the numbers below are its fields."""
    tokens, scores, types = [], [], []
    trainer: int | bytes = b""
    normalizer: int | bytes = b""
    for number, value in _protobuf(data, place):
        if number == 1:
            piece = _Message(value, place)
            tokens.append(piece.get(1, b"").decode("utf-8", "replace"))
            scores.append(struct.unpack("<f", piece.get(2, bytes(4)).ljust(4, b"\0")[:4])[0])
            types.append(piece.get(3, NORMAL))
        elif number == 2:
            trainer = value
        elif number == 3:
            normalizer = value
    training, spaces = _Message(trainer, place), _Message(normalizer, place)
    if (kind := training.get(3, 1)) != 2:
        raise UnsupportedError(f"{place} is a SentencePiece model of type {kind}; only BPE (2) is supported")
    if spaces.get(2, b""):  # the backend's Precompiled normalizer drops characters, such as a mark after a wide space
        raise UnsupportedError(
            f"{place} normalises Unicode by its own rules; only SentencePiece's identity is supported"
        )
    bos_id, eos_id = training.get(41, 1), training.get(42, 2)
    return Pieces(
        tokens,
        scores,
        types,
        bos_id=bos_id if bos_id < len(tokens) else None,  # none is -1, as 64 bits
        eos_id=eos_id if eos_id < len(tokens) else None,
        space_prefix=bool(spaces.get(3, 1)),
        collapse_spaces=bool(spaces.get(4, 1)),
    )


def read_llama2c(data: bytes, place: str) -> Pieces:
    """`tokenizer.bin` of llama2.c, or of ExecuTorch, whose header has three more numbers."""
    records = _llama2c_records(data, 4) or _llama2c_records(data, 16)
    if records is None:
        raise ProgramError(f"{place} is not a llama2.c tokenizer, or is truncated")
    tokens = ["<unk>", "<s>", "</s>"]  # the file has them with line feeds, for printing
    tokens += [token.replace(" ", "▁") for token, _ in records[3:]]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE if BYTE_TOKEN.fullmatch(token) else NORMAL for token in tokens[3:]]
    return Pieces(tokens, [score for _, score in records], types)


def _llama2c_records(data: bytes, header: int) -> list[tuple[str, float]] | None:
    """Tokens and scores, if their records fill the data after the header exactly."""
    records, at = [], header
    try:
        while at < len(data):
            score, length = struct.unpack_from("<fi", data, at)
            at += 8 + length
            if length < 0 or at > len(data):
                return None
            records.append((data[at - length : at].decode(), score))
    except (struct.error, UnicodeDecodeError):
        return None
    return records if len(records) > 3 else None


class _Message:
    """A protobuf message whose fields have the types that are asked for."""

    def __init__(self, data: Any, place: str) -> None:
        self.fields = dict(_protobuf(data, place))
        self.place = place

    def get(self, number: int, default: Any) -> Any:
        value = self.fields.get(number, default)
        if type(value) is not type(default):
            raise ProgramError(f"{self.place} is not a SentencePiece model: its field {number} has the wrong type")
        return value


def _protobuf(data: Any, place: str) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = 0
        for shift in range(0, 70, 7):
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise IndexError

    try:
        while at < len(data):
            key = varint()
            if key & 7 == 0:
                yield key >> 3, varint()
                continue
            length = varint() if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
            at += length
            if at > len(data):
                raise IndexError
            yield key >> 3, data[at - length : at]
    except (IndexError, KeyError, TypeError):
        raise ProgramError(f"{place} is not a SentencePiece model, or is truncated at byte {at}") from None


def bpe(ids: dict[str, int], merges: list[tuple[str, str]], **options: Any) -> Tokenizer:
    try:
        return Tokenizer(models.BPE(ids, merges, **options))
    except Exception as error:  # the package raises no narrower class
        raise ProgramError(f"the vocabulary and its merges do not fit together: {error}") from None


def _byte_alphabet() -> dict[int, str]:
    """GPT-2's spelling of bytes: printable Latin-1 as itself, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


SPELLING = _byte_alphabet()  # byte -> character
BYTES = {character: byte for byte, character in SPELLING.items()}
