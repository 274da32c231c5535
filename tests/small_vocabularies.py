"""Tokenizers for the small models of the tests: all of ASCII, a few longer tokens, special ones."""

from __future__ import annotations

from hightide.llm.pretokenizers import BYTES
from hightide.llm.tokenizer import Tokenizer

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
PRINTABLE = [chr(code) for code in range(32, 127)]
# Each of two tokens before it.
LONGER = [("{", '"'), ('"', ":"), ('"', ","), ("t", "r"), ("u", "e"), ("tr", "ue"), ("a", "b"), ("ab", "c"), ("0", "0")]
LONGER += [("1", "2"), ("n", "u"), ("l", "l"), ("nu", "ll"), ("]", "}"), ('"', "}"), ("[", "1")]
END = "<|im_end|>"


def byte_level(size: int = 128) -> Tokenizer:
    """As GPT-2's: é is two tokens, each of one byte."""
    spelled = {value: character for character, value in BYTES.items()}
    tokens = [spelled[ord(c)] for c in PRINTABLE] + [spelled[0x0A], spelled[0xC3], spelled[0xA9]]
    merges = [*LONGER, (spelled[0x20], '"'), (spelled[0x20], "{")]
    tokens += [left + right for left, right in merges]
    return _tokenizer(
        size, "gpt2", tokens, [NORMAL] * len(tokens), merges=[" ".join(pair) for pair in merges], pre="gpt-2"
    )


def sentencepiece(size: int = 128) -> Tokenizer:
    """As Llama's: a space before the text, bytes for what has no token, some of which others spell too."""
    tokens, types = ["<unk>", "<s>"], [UNKNOWN, CONTROL]
    for value in (0x0A, 0xC3, 0xA9, ord("a")):
        tokens.append(f"<0x{value:02X}>")
        types.append(BYTE)
    plain = ["▁" if c == " " else c for c in PRINTABLE] + [left + right for left, right in LONGER] + ["▁{", '▁"']
    return _tokenizer(
        size,
        "llama",
        tokens + plain,
        types + [NORMAL] * len(plain),
        scores=[-float(n) for n in range(size)],
        bos_token_id=1,
    )


def _tokenizer(size: int, model: str, tokens: list[str], types: list[int], **fields: object) -> Tokenizer:
    rest = size - 1 - len(tokens)
    tokens = [*tokens, *(f"<|reserved_{n}|>" for n in range(rest)), END]
    types = [*types, *[CONTROL] * (rest + 1)]
    named = {"model": model, "tokens": tokens, "token_type": types, "eos_token_id": size - 1, **fields}
    return Tokenizer.from_gguf({f"tokenizer.ggml.{name}": value for name, value in named.items()})
