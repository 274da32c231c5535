"""Streams of text: the joined pieces are the decoded ids, up to the first stop string."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_strings import odd_strings
from vocabularies import sentencepiece_file, smollm2, tiktoken_file

from hightide.errors import InputError
from hightide.llm.text_stream import TextStream
from hightide.llm.tokenizer import Tokenizer


@pytest.fixture(scope="module", params=["llama", "gemma", "tiktoken"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("vocabulary")
    path = tiktoken_file(folder) if request.param == "tiktoken" else sentencepiece_file(request.param, folder)
    return Tokenizer.from_file(path)


def stream(text: TextStream, ids: list[int]) -> list[str]:
    return [*(text.feed(i) for i in ids), text.flush()]


def test_any_ids(tokenizer: Tokenizer) -> None:
    @given(st.lists(st.integers(0, tokenizer.vocab_size - 1)), st.booleans(), st.booleans())
    def check(ids: list[int], special: bool, continues: bool) -> None:
        pieces = stream(TextStream(tokenizer, special=special, continues=continues), ids)
        assert "".join(pieces) == tokenizer.decode(ids, special=special, continues=continues)

    check()


def test_text_comes_in_whole_characters(tokenizer: Tokenizer) -> None:
    for text in odd_strings():
        ids = tokenizer.encode(text)
        pieces = stream(TextStream(tokenizer), ids)
        assert "".join(pieces) == tokenizer.decode(ids) == text.replace("▁", tokenizer.decode(tokenizer.encode("▁")))
        assert not any("\ufffd" in piece for piece in pieces)


def test_a_model_may_have_more_logits_than_tokens(tokenizer: Tokenizer) -> None:
    text = TextStream(tokenizer)
    ids = tokenizer.encode("one two", bos=False)
    with_padding = [ids[0], tokenizer.vocab_size, *ids[1:], tokenizer.vocab_size + 7]
    assert "".join([*map(text.feed, with_padding), text.flush()]) == tokenizer.decode(ids)


def test_a_character_waits_for_its_last_byte() -> None:
    text = TextStream(smollm2())
    ids = smollm2().encode("𠜎")
    assert len(ids) > 1 and [text.feed(i) for i in ids] == [""] * (len(ids) - 1) + ["𠜎"]
    assert text.feed(ids[0]) == "" and text.flush() == "\ufffd"  # cut off


def cut_at_first(text: str, stops: list[str]) -> str:
    """One character at a time, so plainly the stop string that is complete first."""
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)]
    return text


def test_stop_strings(tokenizer: Tokenizer) -> None:
    words = st.text("ab \n", max_size=30)
    stops = st.lists(st.text("ab \n", min_size=1, max_size=4), max_size=3)

    @given(words, stops)
    def check(text: str, stops: list[str]) -> None:
        ids = tokenizer.encode(text)
        cut = TextStream(tokenizer, stops)
        assert "".join(stream(cut, ids)) == cut_at_first(text, stops)
        assert (cut.stopped is not None) == any(stop in text for stop in stops)
        assert cut.feed(ids[0]) == "" if cut.stopped and ids else True

    check()


def test_a_stop_string_is_held_back_only_while_it_may_come() -> None:
    text = TextStream(smollm2(), ["\nUser:"])
    pieces = [text.feed(i) for i in smollm2().encode("Hi\nUsers\nUser: no")]
    assert pieces[0] == "Hi" and "".join(pieces) == "Hi\nUsers" and text.stopped == "\nUser:" and text.flush() == ""
    text = TextStream(smollm2(), ["###"])
    assert text.feed(smollm2().encode("##")[0]) == "" and text.flush() == "##"


@pytest.mark.parametrize("stops", ["text", [""], [1]])
def test_bad_stops(stops: list[str]) -> None:
    with pytest.raises(InputError, match="stop must be a list of strings"):
        TextStream(smollm2(), stops)


def test_leading_space(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(sentencepiece_file("llama", tmp_path))
    ids = tokenizer.encode("the end")
    assert "".join(stream(TextStream(tokenizer), ids)) == "the end"
    assert "".join(stream(TextStream(tokenizer, continues=True), ids)) == " the end"
    assert "".join(stream(TextStream(tokenizer, special=True), ids)) == "<s>the end"
