"""Writes goldens.json: small vocabularies, and the ids that SentencePiece and tiktoken give for the odd strings.

python make_goldens.py        with `sentencepiece`, `tiktoken` and `regex` installed

Where Python's `re` cannot cut as a pattern says, there are the lengths of the pieces that `regex` gives.
"""

from __future__ import annotations

import base64
import io
import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import regex
import sentencepiece
import tiktoken
from odd_strings import han_strings, odd_strings
from tokenizer_reference import CUTS, KIMI, chunks

LLAMA = dict(normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True)
SENTENCEPIECE: dict[str, dict[str, Any]] = {
    "llama": dict(LLAMA, model_type="bpe"),
    "gemma": dict(LLAMA, model_type="bpe", add_dummy_prefix=False, user_defined_symbols=["▁▁", "▁▁▁", "\n\n", "<h1>"]),
    "collapsing": dict(normalization_rule_name="identity", model_type="bpe", bos_id=-1),  # and without bytes
}


def corpus() -> list[str]:
    source = random.Random(7)
    texts = [text.replace("\n", " ").replace("\x00", "") for text in odd_strings() if text.strip()]
    words = Path(__file__).read_text().split()
    return [" ".join(source.choices(words, k=12)) for _ in range(300)] + texts * 2


def train(options: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    defaults = dict(vocab_size=800, character_coverage=0.98, hard_vocab_limit=False, minloglevel=2)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus()), model_writer=out, **(defaults | options))
    return out.getvalue()


def byte_pairs(count: int) -> dict[bytes, int]:
    """Ranks of the 256 bytes and of the most frequent pairs of chunks of the corpus."""
    words = Counter(tuple(bytes([b]) for b in chunk.encode()) for text in corpus() for chunk in chunks(text, "gpt-4o"))
    ranks = {bytes([b]): b for b in range(256)}
    while len(ranks) < 256 + count:
        pairs: Counter[tuple[bytes, bytes]] = Counter()
        for word, times in words.items():
            for pair in pairwise(word):
                pairs[pair] += times
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        ranks.setdefault(left + right, len(ranks))
        words = Counter({_merge(word, left, right): times for word, times in words.items()})
    return ranks


def _merge(word: tuple[bytes, ...], left: bytes, right: bytes) -> tuple[bytes, ...]:
    out: list[bytes] = []
    for symbol in word:
        if out and out[-1] == left and symbol == right:
            out[-1] = left + right
        else:
            out.append(symbol)
    return tuple(out)


def kimi_cuts() -> list[str]:
    pattern = regex.compile(KIMI, regex.V1)
    cuts = [pattern.findall(text) for text in han_strings()]
    assert ["".join(pieces) for pieces in cuts] == han_strings()
    return [" ".join(str(len(piece)) for piece in pieces) for pieces in cuts]


def main() -> None:
    goldens: dict[str, Any] = {"sentencepiece": {}, "tiktoken": {}, "cuts": {"kimi-k2": kimi_cuts()}}
    for name, options in SENTENCEPIECE.items():
        model = train(options)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = [" ".join(map(str, processor.encode(text))) for text in odd_strings()]
        goldens["sentencepiece"][name] = {"model": base64.b64encode(model).decode(), "ids": ids}
    ranks = byte_pairs(500)
    lines = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
    goldens["tiktoken"]["file"] = lines
    for kind in ("llama-bpe", "qwen2", "gpt-2", "tekken", "gpt-4o", "qwen35"):
        encoding = tiktoken.Encoding(kind, pat_str=CUTS[kind][0], mergeable_ranks=ranks, special_tokens={})
        goldens["tiktoken"][kind] = [" ".join(map(str, encoding.encode_ordinary(text))) for text in odd_strings()]
    path = Path(__file__).with_name("goldens.json")
    path.write_text(json.dumps(goldens, indent=0) + "\n")


if __name__ == "__main__":
    main()
