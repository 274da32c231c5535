"""What tokenizers read from the files of a model: the fields of a GGUF vocabulary, and those of a `tokenizer.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from hightide.errors import HightideError, ProgramError
from hightide.llm.text_cuts import KINDS


@contextmanager
def reported(what: str) -> Iterator[None]:
    """What the tokenizers package raises, a panic of its Rust code too, as ProgramError."""
    try:
        yield
    except HightideError:
        raise
    except Exception as error:  # the package raises no narrower class
        raise ProgramError(f"{what}: {_one_line(error)}") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # it has no name that could be imported
            raise
        raise ProgramError(f"{what}: {_one_line(error)}") from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def field_list(fields: Mapping[str, Any], name: str, kind: Any, length: int | None = None) -> list[Any]:
    """An array of a GGUF vocabulary; with `length` one item per token, or [] if the file has none."""
    items = fields.get(name)
    if items is None and length is not None:
        return []
    if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
        raise ProgramError(f"tokenizer.ggml.{name} is missing, or has the wrong type")
    if length is not None and len(items) != length:
        raise ProgramError(f"tokenizer.ggml.{name} has {len(items)} items for {length} tokens")
    return items


def merges_of(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    # A token may begin with a space, so the one between the two is looked for behind the first character.
    cuts = [(merge, merge.find(" ", 1)) for merge in field_list(fields, "merges", str)]
    if any(cut < 0 for _, cut in cuts):
        raise ProgramError("tokenizer.ggml.merges has an item that is not two tokens with a space between them")
    return [(merge[:cut], merge[cut + 1 :]) for merge, cut in cuts]


@dataclass(frozen=True)
class WholeText:
    closing_id: int | None
    between: tuple[int, ...]


def whole_text_ids(fields: Mapping[str, Any]) -> WholeText:
    """The tokens that stand behind a whole text, and between two: eos, a separator, or both."""
    model, pre = fields.get("model"), KINDS.get(str(fields.get("pre")))
    sep = fields.get("seperator_token_id", fields.get("separator_token_id", 102 if model == "bert" else None))
    eos = fields.get("eos_token_id", 1 if model == "t5" else None)
    add_eos = fields.get("add_eos_token", model == "t5") is True
    add_sep = fields.get("add_sep_token", model == "bert" or (pre is not None and pre.add_sep)) is True
    ends = ([eos] if eos is not None else []) + ([sep] if sep is not None else [])
    closing = eos if add_eos and eos is not None else sep if add_sep or (add_eos and eos is None) else None
    return WholeText(closing, tuple(ends))


@dataclass(frozen=True)
class Frame:
    """The tokens that a tokenizer puts before a text, between two, and behind the last."""

    first: list[int]
    between: list[int]
    last: list[int]


def frame_of(backend: tokenizers.Tokenizer) -> Frame:
    plain = backend.encode("a", add_special_tokens=False).ids
    framed, pair = (backend.encode("a", second, add_special_tokens=True).ids for second in (None, "a"))
    at = next((n for n in range(len(framed)) if framed[n : n + len(plain)] == plain), 0)
    last = framed[at + len(plain) :]
    return Frame(framed[:at], pair[at + len(plain) : len(pair) - len(last) - len(plain)], last)


def id_of(backend: tokenizers.Tokenizer, token: Any) -> int | None:
    """The id of a token in a config, where it is a string or {"content": string}."""
    text = token.get("content") if isinstance(token, dict) else token
    return backend.token_to_id(text) if isinstance(text, str) else None


def template_beside(path: Path, configured: Any) -> str | None:
    if isinstance(configured, str):
        return configured
    if isinstance(configured, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in configured if isinstance(entry, dict)}
        return named.get("default")
    beside = path.with_name("chat_template.jinja")
    return read_bytes(beside).decode("utf-8", "replace") if beside.is_file() else None


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ProgramError(f"cannot read {path}: {error.strerror}") from None


def read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = json.loads(read_bytes(path))
    except ValueError as error:
        raise ProgramError(f"{path} is not JSON: {error}") from None
    return values if isinstance(values, dict) else {}
