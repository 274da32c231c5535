"""Backends that are neither byte-level nor merge by score: WordPiece of BERT, unigram pieces of T5 and XLM-R, and the
merges of Gemma 4.

All spell a space as `▁`. A WordPiece vocabulary has `▁` before the pieces that begin a word, as GGUF files have it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from hightide.errors import ProgramError
from hightide.llm.pretokenizers import BYTE, CONTROL, UNKNOWN, Pieces, bpe, spaces, token_ids

LONGEST_WORD = 101  # characters with its `▁`: BERT makes longer ones unknown


def wordpiece(tokens: Sequence[str], unknown_id: int, *, lowercase: bool, strip_accents: bool) -> Tokenizer:
    """The longest piece first, word by word; a word that pieces cannot spell is unknown."""
    unknown = _token_at(tokens, unknown_id)
    model = models.WordPiece(
        token_ids(tokens), unk_token=unknown, continuing_subword_prefix="", max_input_chars_per_word=LONGEST_WORD
    )
    backend = Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    marks = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), marks])
    return backend


def unigram(pieces: Pieces, unknown_id: int, charsmap: bytes) -> Tokenizer:
    """The pieces whose scores add up to the most. `charsmap` says how characters are normalised, if they are."""
    _token_at(pieces.tokens, unknown_id)
    token_ids(pieces.tokens)
    # Text must not spell a special token: their scores are so low that other pieces, or unknown ones, are better.
    special = min(pieces.scores) - 1000.0
    rows = zip(pieces.tokens, pieces.scores, pieces.types, strict=True)
    scored = [(token, special if kind in (UNKNOWN, CONTROL) else score) for token, score, kind in rows]
    backend = Tokenizer(models.Unigram(scored, unknown_id, BYTE in pieces.types))
    mapped = [normalizers.Precompiled(charsmap)] if charsmap else []
    backend.normalizer = normalizers.Sequence([*mapped, *spaces(pieces)])
    return backend


def merged_pieces(pieces: Pieces, merges: list[tuple[str, str]]) -> Tokenizer:
    """SentencePiece's spelling with the merges of a file, as Gemma 4 has it. Runs of line feeds are words."""
    backend = bpe(token_ids(pieces.tokens), merges, byte_fallback=BYTE in pieces.types, fuse_unk=True)
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("\n+"), "isolated")
    return backend


def marked_words(vocabulary: Mapping[str, int], special: Collection[str]) -> list[str]:
    """A WordPiece vocabulary of Hugging Face, which marks the inside of words by `##`, as GGUF files have it."""
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    if list(map(vocabulary.__getitem__, tokens)) != list(range(len(tokens))):
        raise ProgramError(f"the vocabulary does not have one token for each id from 0 to {len(tokens) - 1}")
    return [
        token if token in special else token[2:] if token.startswith("##") and len(token) > 2 else f"▁{token}"
        for token in tokens
    ]


def _token_at(tokens: Sequence[str], token_id: object) -> str:
    if not isinstance(token_id, int) or not 0 <= token_id < len(tokens):
        raise ProgramError(f"the unknown token {token_id} is outside the vocabulary of {len(tokens)}")
    return tokens[token_id]
