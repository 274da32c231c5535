"""Grammars by themselves: what they allow next, in vocabularies of every kind, and what is refused."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest
import small_vocabularies
from vocabularies import smollm2

from hightide import Grammar
from hightide.errors import HightideError, InputError
from hightide.llm import grammar as grammars
from hightide.llm.constraint import draft_masks, has_bit, next_mask, token_bits
from hightide.llm.grammar import GrammarConstraint, GrammarVocabulary
from hightide.llm.tokenizer import Tokenizer
from hightide.ops.sampling.sampling import allowed

VOCABULARIES = {"byte-level": small_vocabularies.byte_level, "sentencepiece": small_vocabularies.sentencepiece}
SIZE = 131  # three logits more than there are tokens
WORDS = ["abc", "ab", " abc", 'a"b', "é", "12", "1200", "true", "null\n", "tree"]
NONE = token_bits((), SIZE)


@pytest.fixture(params=VOCABULARIES)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return VOCABULARIES[request.param]()


def begin(tokenizer: Tokenizer, grammar: Grammar, size: int = SIZE) -> GrammarConstraint:
    return GrammarVocabulary(tokenizer, size).constraint(grammar)


def text_of(tokenizer: Tokenizer, ids: list[int]) -> bytes:
    return b"".join(tokenizer.piece(token) for token in ids)


def may_follow(tokenizer: Tokenizer, so_far: bytes, words: list[bytes]) -> list[int]:
    """By trying every token."""
    plain = [token for token in range(tokenizer.vocab_size) if token not in tokenizer.control]
    pieces = {token: tokenizer.piece(token) for token in plain}
    return [t for t, piece in pieces.items() if piece and any(word.startswith(so_far + piece) for word in words)]


def test_a_mask_has_the_tokens_that_lead_to_a_choice(tokenizer: Tokenizer) -> None:
    """At every place that can be reached."""
    words = [word.encode() for word in WORDS]
    start = begin(tokenizer, Grammar.choice(WORDS))
    places: list[tuple[bytes, GrammarConstraint]] = [(b"", start)]
    ends = set()
    while places:
        so_far, state = places.pop()
        tokens, tried = np.flatnonzero(allowed(state.mask(), SIZE)).tolist(), may_follow(tokenizer, so_far, words)
        if forced := state.forced():  # then any other spelling of the same text may be ruled out
            assert forced[0] in tokens and set(tokens) <= set(tried)
            assert any(word.startswith(so_far + text_of(tokenizer, forced)) for word in words)
            tokens = tried
        assert tokens == tried, so_far
        assert state.may_end == (so_far in words) and state.complete == (state.may_end and not tokens)
        ends |= {so_far} if state.may_end else set()
        for token in tokens:
            further = state.copy()
            further.accept(token)
            places.append((so_far + tokenizer.piece(token), further))
    assert ends == set(words)


@pytest.mark.parametrize("pattern", ["[ab]{2,3}c?", "(12|00)*[^0-9]", 'x"?y', "(true|null){2}", "a/b", "."])
def test_a_mask_follows_a_regular_expression(pattern: str, tokenizer: Tokenizer) -> None:
    """Two tokens on from anywhere: what is allowed can be completed, and what is not cannot."""
    state = begin(tokenizer, Grammar.regex(pattern))
    forced = state.forced()
    short = [c.encode() for c in 'ab0129nulrte"xyc/ \n{'] + [b"true", b"null", b"00", b"12"]
    texts = {
        a + b + c + d for a in short for b in (b"", *short) for c in (b"", *short) for d in (b"", b"c", b"/", b"l")
    }
    whole = [text for text in texts if re.fullmatch(pattern, text.decode())]
    assert whole
    for token in range(tokenizer.vocab_size):
        piece = tokenizer.piece(token)
        known = token not in tokenizer.control and set(piece) <= set(b"".join(short))
        if known and any(text.startswith(piece) for text in whole) and (not forced or forced[0] == token):
            assert has_bit(state.mask(), token), piece
        if token in tokenizer.control or (known and pattern != "." and not any(t.startswith(piece) for t in whole)):
            assert not has_bit(state.mask(), token), piece


def test_forced_tokens_spell_what_must_come(tokenizer: Tokenizer) -> None:
    state = begin(tokenizer, Grammar.json_schema({"type": "object", "properties": {"abc": {"type": "boolean"}},
                                                  "required": ["abc"], "additionalProperties": False}))  # fmt: skip
    made: list[int] = []
    while forced := state.forced():
        for token in forced:
            assert has_bit(state.mask(), token)
            state.accept(token)
        made += forced
    assert text_of(tokenizer, made) in (b'{"abc":', b'{"abc": ')
    assert len(made) <= 5  # not a byte each


def test_nothing_is_forced_where_the_text_may_end(tokenizer: Tokenizer) -> None:
    state = begin(tokenizer, Grammar.choice(["ab", "abc"]))
    state.accept(tokenizer.encode("ab", bos=False)[-1])
    assert state.may_end and not state.complete and state.forced() == []


def test_a_copy_goes_its_own_way(tokenizer: Tokenizer) -> None:
    state = begin(tokenizer, Grammar.choice(["12", "ab"]))
    other, before = state.copy(), state.mask().copy()
    other.accept(next(t for t in range(128) if tokenizer.piece(t) == b"1"))
    assert not np.array_equal(other.mask(), before) and np.array_equal(state.mask(), before)
    with pytest.raises(HightideError, match="cannot be followed further"):
        other.accept(next(t for t in range(128) if tokenizer.piece(t) == b"x"))


def test_masks_of_a_draft(tokenizer: Tokenizer) -> None:
    """Up to the first token that is not allowed, or behind which nothing is to be chosen."""
    state = begin(tokenizer, Grammar.regex("[0-9]{4}x"))
    one = {digit: next(t for t in range(128) if tokenizer.piece(t) == digit) for digit in (b"1", b"2", b"x")}
    ends = token_bits([127], SIZE)
    assert len(draft_masks(state, [one[b"1"], one[b"x"], one[b"2"]], ends)) == 2
    assert len(draft_masks(state, [one[b"1"]] * 7, ends)) == 4  # behind the fourth, x must come
    before = state.mask().copy()
    assert len(draft_masks(state, [], ends)) == 1 and np.array_equal(state.mask(), before)


def test_ends_are_allowed_where_the_text_may_end(tokenizer: Tokenizer) -> None:
    state, ends = begin(tokenizer, Grammar.regex("a*")), token_bits([127, 130], SIZE)
    found = allowed(next_mask(state, ends), SIZE)
    assert found[127] and found[130] and not found[128]
    assert not has_bit(next_mask(begin(tokenizer, Grammar.regex("a+")), ends), 127)
    assert not has_bit(next_mask(state, NONE), 127)


def test_special_tokens_are_no_text(tokenizer: Tokenizer) -> None:
    state = begin(tokenizer, Grammar.regex("(.|\n)*"))
    assert not any(has_bit(state.mask(), token) for token in tokenizer.control)
    named = begin(tokenizer, Grammar.lark('start: "a" <|reserved_0|> "b"'))
    named.accept(next(t for t in range(128) if tokenizer.piece(t) == b"a"))
    special = next(t for t in range(128) if tokenizer.token(t) == "<|reserved_0|>")
    assert named.forced()[:1] == [special]
    assert has_bit(begin(tokenizer, Grammar.lark(f"start: <[{special}-{special + 1}]>")).mask(), special)
    with pytest.raises(InputError, match="unknown special token"):
        begin(tokenizer, Grammar.lark("start: <|other|>"))
    with pytest.raises(InputError, match="cannot be used"):
        Grammar.lark("start: <|other|> <|another|> /(/")


def test_a_real_vocabulary() -> None:
    tokenizer = smollm2()
    vocabulary = GrammarVocabulary(tokenizer, tokenizer.vocab_size)
    words = ["Paris", "Paris is", "Pär", "日本", "  indented", "café au lait"]
    state = vocabulary.constraint(Grammar.choice(words))
    encoded = [word.encode() for word in words]
    assert np.flatnonzero(allowed(state.mask(), tokenizer.vocab_size)).tolist() == may_follow(tokenizer, b"", encoded)
    for word in words:  # as the tokenizer cuts them
        state = vocabulary.constraint(Grammar.choice(words))
        for token in tokenizer.encode(word, bos=False):
            state.accept(token)
        assert state.may_end


# ---- what is refused


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Grammar.json_schema({"type": "strnig"}), "Invalid type: strnig"),
        (lambda: Grammar.json_schema(False), "the JSON schema false allows nothing"),
        (lambda: Grammar.json_schema({"type": "object", "properties": {"a": False}, "required": ["a"]}), "is unsat"),
        (lambda: Grammar.json_schema({"type": "string", "minLength": 5, "maxLength": 2}), r"minLength \(5\) is"),
        (lambda: Grammar.json_schema({"not": {"type": "string"}}), r'Unimplemented keys: \["not"\]'),
        (lambda: Grammar.json_schema({"$ref": "#"}), "no text fits it"),
        (lambda: Grammar.json_schema({"$ref": "http://example.com/schema"}), "http://example.com/schema"),
        (lambda: Grammar.json_schema("{"), "the JSON schema is not JSON: "),
        (lambda: Grammar.json_schema("[1]"), r"an object or true, not \[1\]"),
        (lambda: Grammar.json_schema({"enum": [float("nan")]}), "not JSON"),
        (lambda: Grammar.json_schema({"enum": [object()]}), "not JSON"),
        (lambda: Grammar.json_schema(7), "an object or true, not 7"),
        (lambda: Grammar.regex("(a"), "unclosed group"),
        (lambda: Grammar.regex("(?=a)b"), "look-around"),
        (lambda: Grammar.regex("(" * 5000 + ")" * 5000), "cannot be used"),
        (lambda: Grammar.regex(7), "a regular expression is a string, not 7"),
        (lambda: Grammar.lark("start: foo"), 'unknown name: "foo"'),
        (lambda: Grammar.lark(""), "Empty grammar"),
        (lambda: Grammar.lark("x" * (1 << 21)), "the grammar has 2097152 characters; 1048576 is the most"),
        (lambda: Grammar.choice([]), "choices must be a list of strings, none of them empty"),
        (lambda: Grammar.choice(["a", ""]), "choices must be a list of strings, none of them empty"),
        (lambda: Grammar.choice("ab"), "choices must be a list of strings, not 'ab'"),
        (lambda: Grammar.choice(["\ud800"]), "a choice must be a string of whole Unicode characters"),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_refused_in_one_sentence(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


def test_what_takes_too_long_to_check_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would take minutes, and cannot be stopped in this process."""
    monkeypatch.setattr(grammars, "CHECK_SECONDS", 1.0)
    patterns = [{"type": "string", "pattern": f"^(a|b)*a(a|b){{{n}}}$"} for n in range(1, 30)]
    with pytest.raises(InputError, match="too complex: checking it took more than 1 s"):
        Grammar.json_schema({"allOf": patterns})


def test_what_takes_too_much_at_a_token_is_refused(tokenizer: Tokenizer) -> None:
    """Every state of an answer that is met takes memory; there are 2 ** 400 of them."""
    state = begin(tokenizer, Grammar.regex("(a|b)*a(a|b){400}x"))
    ids = [next(t for t in range(128) if tokenizer.piece(t) == letter) for letter in (b"a", b"b")]
    rng = np.random.default_rng(0)
    with pytest.raises(HightideError, match=r"the grammar cannot be followed further: .+"):
        for _ in range(100_000):
            state.accept(ids[int(rng.integers(2))])
            state.mask()


def test_what_the_vocabulary_cannot_spell_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="no token of this model can go on with what the grammar wants"):
        begin(tokenizer, Grammar.choice(["日本"]))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(
        HightideError, match=r"grammars need llguidance; install it with: pip install 'hightide\[serve\]'"
    ):
        Grammar.regex("a")


def test_a_compiled_grammar_is_kept(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = GrammarVocabulary(tokenizer, SIZE)
    monkeypatch.setattr(grammars, "KEPT", 2)
    for pattern in ("x", "b", "x", "c", "x"):
        state = vocabulary.constraint(Grammar.regex(pattern))
        assert has_bit(state.mask(), next(t for t in range(128) if tokenizer.piece(t) == pattern.encode()))
        state.accept(next(t for t in range(128) if tokenizer.piece(t) == pattern.encode()))  # only the copy's
