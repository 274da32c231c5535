"""Grammars that answers must follow: a JSON schema, a regular expression, a Lark grammar, a list of choices.

They are compiled by llguidance, which the extra `serve` installs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hightide.errors import HightideError, InputError
from hightide.llm.grammar_check import limits
from hightide.llm.pretokenizers import BYTE_TOKEN
from hightide.llm.tokenizer import Tokenizer
from hightide.option_checks import checked_list, shown

CHECK_SECONDS = 10.0  # for one grammar; those of use take a few milliseconds
MAX_CHARACTERS = 1 << 20  # of a grammar
NO_EXTENSION = "NoExtension"  # how llguidance's message begins where nothing can follow
NO_TOKEN = "no token of this model can go on with what the grammar wants"
KEPT = 64  # compiled grammars of a model
# JSON is written as Python's json.dumps does: where white space is free, small models write nothing else.
JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True)
class Grammar:
    """What an answer must look like. Made by one of its class methods; InputError for what cannot be followed."""

    text: str  # as llguidance takes it

    def __post_init__(self) -> None:
        if reason := _reason_against(self.text):
            raise InputError(reason)

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | bool | str) -> Grammar:
        """JSON that is valid by a schema, which is given as Python values or as JSON text."""
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except ValueError as error:
                raise InputError(f"the JSON schema is not JSON: {error}") from None
        if schema is False:
            raise InputError("the JSON schema false allows nothing")
        if schema is not True and not isinstance(schema, Mapping):
            raise InputError(f"a JSON schema is an object or true, not {shown(schema)}")
        try:
            text = json.dumps({} if schema is True else dict(schema), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"the JSON schema is not JSON: {error}") from None
        return cls(_llguidance().LLMatcher.grammar_from_json_schema(text, defaults=JSON_STYLE))

    @classmethod
    def json_object(cls) -> Grammar:
        """Any JSON object."""
        return cls.json_schema({"type": "object"})

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        """Text that a regular expression matches as a whole, in the syntax of Rust's regex crate."""
        return cls(_llguidance().LLMatcher.grammar_from_regex(_text("a regular expression", pattern)))

    @classmethod
    def lark(cls, text: str) -> Grammar:
        """Text by a context-free grammar in Lark's syntax, as llguidance reads it; it begins at the rule `start`."""
        return cls(_llguidance().LLMatcher.grammar_from_lark(_text("a grammar", text)))

    @classmethod
    def choice(cls, choices: Sequence[str]) -> Grammar:
        """One of several texts."""
        texts = [_text("a choice", choice) for choice in checked_list("choices", choices, "strings")]
        if not texts or not all(texts):
            raise InputError("choices must be a list of strings, none of them empty")
        return cls.lark("start: " + " | ".join(json.dumps(text) for text in texts))


class GrammarVocabulary:
    """The tokens of a model, and the grammars that were compiled for them."""

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        """`size` is how many logits the model has, which may be more than there are tokens."""
        self.size = size
        self._spelled = _Spelled(tokenizer, size)
        self._tokens = _llguidance().LLTokenizer(self._spelled)
        self._spelled.greedy = self._tokens.greedy_tokenize
        self._lock = threading.Lock()
        self._compiled: OrderedDict[Grammar, GrammarConstraint] = OrderedDict()

    def constraint(self, grammar: Grammar) -> GrammarConstraint:
        """At the start of an answer."""
        with self._lock:
            found = self._compiled.pop(grammar, None)
        if found is None:
            library = _llguidance()
            matcher = library.LLMatcher(self._tokens, grammar.text, log_level=0, limits=limits(library))
            if matcher.is_error():
                raise InputError(f"the grammar cannot be used: {_one_line(matcher.get_error())}")
            found = GrammarConstraint(matcher, self.size)
            try:
                found.mask()
            except HightideError as error:
                raise InputError(*error.args) from None
        with self._lock:
            self._compiled[grammar] = found
            while len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
        return found.copy()


class GrammarConstraint:
    """An answer that follows a grammar; see `Constraint`."""

    def __init__(self, matcher: Any, size: int, mask: np.ndarray | None = None) -> None:
        self._matcher, self._size = matcher, size
        self._mask = mask

    def mask(self) -> np.ndarray:
        if self._mask is None:
            words = np.zeros(self._size // 32 + 1, np.int32)  # one token more than the model has: the end
            self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            self._check()
            words[self._size // 32] &= ~(-1 << self._size % 32)
            self._mask = words[: -(-self._size // 32)]
            if not self._mask.any() and not self.may_end:
                raise HightideError(NO_TOKEN)
        return self._mask

    @property
    def may_end(self) -> bool:
        return bool(self._matcher.is_accepting())

    @property
    def complete(self) -> bool:
        return self.may_end and not self.mask().any()

    def forced(self) -> list[int]:
        if self.may_end:
            return []
        if forced := self._matcher.compute_ff_tokens():
            return list(forced)
        self._check()
        words = np.flatnonzero(self.mask())
        bits = int(self.mask()[words[0]]) & 0xFFFFFFFF
        alone = len(words) == 1 and not bits & (bits - 1)
        return [int(words[0]) * 32 + bits.bit_length() - 1] if alone else []

    def accept(self, token: int) -> None:
        self._mask = None
        if not self._matcher.consume_token(token):
            self._check()

    def copy(self) -> GrammarConstraint:
        return GrammarConstraint(self._matcher.deep_copy(), self._size, self._mask)

    def _check(self) -> None:
        if self._matcher.is_error():
            wrong = self._matcher.get_error()
            further = f"the grammar cannot be followed further: {_one_line(wrong)}"
            raise HightideError(NO_TOKEN if wrong.startswith(NO_EXTENSION) else further)


class _Spelled:
    """What llguidance asks of a tokenizer: the bytes of all tokens, which are special, and text as token ids."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        self._tokenizer = tokenizer
        count = min(size, tokenizer.vocab_size)
        pieces = [tokenizer.piece(token) for token in range(count)]
        special = [token for token in sorted(tokenizer.control) if token < count]
        for token in special:
            pieces[token] = b"\xff" + pieces[token]  # never text
        # Logits without a token are never chosen. Behind them is the end of the text, whatever tokens end an answer.
        self._pieces = [*pieces, *(b"" for _ in range(count, size))]
        self.tokens = [*self._pieces, b"\xff<end of text>"]
        self.eos_token_id = size
        self.special_token_ids = [*special, size]
        # Of tokens with the same bytes, those that are not for single bytes come in real text.
        order = sorted(range(count), key=lambda token: BYTE_TOKEN.fullmatch(tokenizer.token(token)) is None)
        self._usual = {pieces[token]: token for token in order}
        self.greedy: Any = None  # how llguidance itself cuts text, the longest token first

    def __call__(self, text: str) -> list[int]:
        """Tokens that spell this text in the midst of other text, as the tokenizer would cut it."""
        before = "\n" if self._tokenizer.space_prefix else ""
        ids = self._tokenizer.encode(before + text, bos=False)
        while ids and before and self._pieces[ids[0]] in (b" ", b"\n", b" \n"):
            before = "" if b"\n" in self._pieces[ids[0]] else before
            ids = ids[1:]
        same = all(token < len(self._pieces) for token in ids) and not before
        if same and b"".join(self._pieces[token] for token in ids) == text.encode():
            return ids
        return [self._usual.get(self.tokens[token], token) for token in self.greedy(text)] if self.greedy else ids


@lru_cache(maxsize=256)
def _reason_against(text: str) -> str:
    """Why a grammar cannot be used; nothing if it can."""
    if len(text) > MAX_CHARACTERS:
        return f"the grammar has {len(text)} characters; {MAX_CHARACTERS} is the most"
    if getattr(sys, "frozen", False) or not sys.executable:
        raise HightideError("grammars are checked by a Python interpreter, and this program has none")
    folder = Path(_llguidance().__file__).parents[1]
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("grammar_check.py")), str(folder)]
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=CHECK_SECONDS)
    except subprocess.TimeoutExpired:
        return f"the grammar is too complex: checking it took more than {CHECK_SECONDS:g} s"
    except OSError as error:
        raise HightideError(f"the process that checks grammars could not be started: {error}") from None
    if done.returncode:
        return f"the grammar is too complex: the process that checked it ended with exit code {done.returncode}"
    wrong = done.stdout.decode("utf-8", "replace")
    return f"the grammar cannot be used: {_one_line(wrong)}" if wrong else ""


def _llguidance() -> Any:
    try:
        import llguidance
    except ImportError:
        raise HightideError("grammars need llguidance; install it with: pip install 'hightide[serve]'") from None
    return llguidance


def _text(what: str, given: Any) -> str:
    if not isinstance(given, str):
        raise InputError(f"{what} is a string, not {shown(given)}")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise InputError(f"{what} must be a string of whole Unicode characters") from None
    return given


def _one_line(error: str) -> str:
    """The beginning of a message of llguidance, without its pictures of where."""
    if error.startswith(NO_EXTENSION):
        return "no text fits it"
    lines = [line.strip(" ^|") for line in error.replace("<non-verbose/>", "").split("\n")]
    return " ".join(" ".join(lines).split())[:300] or "llguidance does not say why"
