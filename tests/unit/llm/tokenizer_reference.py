"""The tokenizers again, written plainly for the tests: Python's `re` to cut, quadratic loops to merge."""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from itertools import pairwise

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# As the tokenizer.json files of the models have them.
CUTS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "qwen2": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "tekken": [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "gpt-4o": [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "qwen35": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "viking": [" ?[^(\\s|.,!?…。，、।۔،)]+", r"\p{N}"],
    "seed-coder": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "minicpm5": [
        r"\p{N}{1,3}",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "exaone-moe": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "spark2_5": [
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+",
        r"\p{N}",
    ],
}
# Of Kimi's tokenization_kimi.py; `re` has no scripts and no intersections.
KIMI = (
    r"[\p{Han}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"  # Unicode's; Python has four more


@functools.cache
def character_class(prefix: str) -> str:
    """The inside of [...] for the characters whose category begins so."""
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)).startswith(prefix):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


@functools.cache
def compiled(pattern: str) -> re.Pattern[str]:
    bracketed = False
    out = ""
    for part in re.findall(r"\\p\{\w+\}|\\.|.", pattern):
        inside = SPACE if part in ("\\s", "\\S") else character_class(part[3:-1]) if part.startswith("\\p") else None
        if inside is None:
            bracketed = (bracketed or part == "[") and part != "]"
            out += part
        else:
            out += inside if bracketed else f"[^{inside}]" if part == "\\S" else f"[{inside}]"
    return re.compile(out)


def chunks(text: str, kind: str) -> list[str]:
    parts = [text]
    for pattern in CUTS[kind]:
        cut: list[str] = []
        for part in parts:
            at = 0
            for match in compiled(pattern).finditer(part):
                cut += [part[at : match.start()], match[0]]
                at = match.end()
            cut.append(part[at:])
        parts = [part for part in cut if part]
    return parts


def byte_alphabet() -> list[str]:
    """The character of each byte in GPT-2's vocabulary."""
    shown = [chr(b) if chr(b).isprintable() and b not in (0x20, 0xA0, 0xAD) else "" for b in range(256)]
    spare = iter(range(256, 512))
    return [character or chr(next(spare)) for character in shown]


class ByteLevel:
    def __init__(self, tokens: list[str], merges: list[str], kind: str, ignore_merges: bool = False) -> None:
        self.ids = {token: i for i, token in enumerate(tokens)}
        self.ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
        self.kind, self.ignore_merges = kind, ignore_merges

    def encode(self, text: str) -> list[int]:
        alphabet = byte_alphabet()
        ids = []
        for chunk in chunks(text, self.kind):
            symbols = [alphabet[byte] for byte in chunk.encode()]
            if self.ignore_merges and "".join(symbols) in self.ids:
                symbols = ["".join(symbols)]
            while True:
                pairs = [(self.ranks.get(pair, 1 << 30), i) for i, pair in enumerate(pairwise(symbols))]
                rank, i = min(pairs, default=(1 << 30, 0))
                if rank == 1 << 30:
                    break
                symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
            ids += [self.ids[symbol] for symbol in symbols]
        return ids


def encode_by_scores(text: str, tokens: list[str], scores: list[float], space: str = " ") -> list[int]:
    """llama2.c's encoder: merge the neighbours whose joint piece scores best, the leftmost of equals."""
    ids = {token: i for i, token in enumerate(tokens)}
    symbols: list[int] = []
    for character in (" " + text if text else "").replace(" ", space):
        symbols += [ids[character]] if character in ids else [byte + 3 for byte in character.encode()]
    while True:
        best = None
        for i in range(len(symbols) - 1):
            joined = ids.get(tokens[symbols[i]] + tokens[symbols[i + 1]])
            if joined is not None and (best is None or scores[joined] > best[0]):
                best = (scores[joined], i, joined)
        if best is None:
            return symbols
        symbols[best[1] : best[1] + 2] = [best[2]]
