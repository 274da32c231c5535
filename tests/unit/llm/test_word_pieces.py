"""WordPiece and unigram vocabularies against the code that their models were trained with."""

from __future__ import annotations

import base64
import functools
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from odd_strings import odd_strings
from vocabularies import golden_ids

from hightide.errors import HightideError, ProgramError
from hightide.llm.tokenizer import Tokenizer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@functools.cache
def word_goldens() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("word_goldens.json").read_text())


def fields(**values: Any) -> dict[str, Any]:
    return {f"tokenizer.ggml.{key}": value for key, value in values.items()}


def bert(**changes: Any) -> dict[str, Any]:
    """The small WordPiece vocabulary as the converter writes it."""
    tokens = word_goldens()["wordpiece"]["tokens"]
    marked = [t if t in SPECIAL else t[2:] if t.startswith("##") and len(t) > 2 else f"▁{t}" for t in tokens]
    types = [3 if token in SPECIAL else 1 for token in tokens]
    given: dict[str, Any] = dict(model="bert", tokens=marked, token_type=types, unknown_token_id=1)
    return fields(**(given | dict(cls_token_id=2, seperator_token_id=3) | changes))


def t5(name: str, **changes: Any) -> dict[str, Any]:
    made = dict(word_goldens()[name])
    del made["ids"]
    made["precompiled_charsmap"] = list(base64.b64decode(made["precompiled_charsmap"]))
    return fields(**(dict(model="t5", bos_token_id=1, eos_token_id=2) | made | changes))


@pytest.mark.parametrize("name, lowercase", [("lower", True), ("cased", False)])
def test_wordpiece_as_bert(name: str, lowercase: bool) -> None:
    tokenizer = Tokenizer.from_gguf(bert(**{"normalizer.lowercase": lowercase}))
    for text, ids in zip(odd_strings(), golden_ids(word_goldens()["wordpiece"][name]), strict=True):
        if "▁" not in text and unicodedata.is_normalized("NFC", text):  # the reference composes characters first
            assert tokenizer.encode(text, bos=False) == ids, repr(text)


def test_wordpiece_frames_texts() -> None:
    tokenizer = Tokenizer.from_gguf(bert())
    the = tokenizer.encode("a", bos=False)
    assert tokenizer.encode_whole("a") == [2, *the, 3]
    pair = tokenizer.encode_pair("a", "a")
    assert pair == [2, *the, 3, *the, 3] and tokenizer.text_types(pair) == [0, 0, 0, 1, 1]
    assert tokenizer.text_types(tokenizer.encode_whole("a")) == []
    assert tokenizer.encode("[SEP]", special=True, bos=False) == [3]
    assert 3 not in tokenizer.encode("[SEP]", bos=False)  # plain text
    assert tokenizer.decode(tokenizer.encode("A a")) == "a a"


def test_wordpiece_of_a_tokenizer_json(tmp_path: Path) -> None:
    """The same ids from Hugging Face's file as from the fields of a GGUF file."""
    tokens = word_goldens()["wordpiece"]["tokens"]
    frame = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    frame.append({"SpecialToken": {"id": "[SEP]", "type_id": 0}})
    second = [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    named = {name: {"id": name, "ids": [tokens.index(name)], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    content = {
        "version": "1.0",
        "added_tokens": [{"id": tokens.index(name), "content": name, **flags} for name in SPECIAL],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": frame,
            "pair": [*frame, *second],
            "special_tokens": named,
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: i for i, token in enumerate(tokens)},
        },
    }
    content["normalizer"]["strip_accents"] = None
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    tokenizer, same = Tokenizer.from_file(path), Tokenizer.from_gguf(bert())
    for text in odd_strings():
        assert tokenizer.encode_whole(text) == same.encode_whole(text), repr(text)
    assert tokenizer.encode_pair("a", "the") == same.encode_pair("a", "the")
    assert (tokenizer.control, tokenizer.vocab_size) == (same.control, same.vocab_size)


@pytest.mark.parametrize("name", ["unigram", "bare"])
def test_unigram_as_sentencepiece(name: str) -> None:
    tokenizer, scores = Tokenizer.from_gguf(t5(name)), word_goldens()[name]["scores"]
    for text, ids in zip(odd_strings(), golden_ids(word_goldens()[name]["ids"]), strict=True):
        found = tokenizer.encode(text)
        if "\u3000\u0308" not in text:  # the package, and so Hugging Face, loses a mark behind a mapped character
            same_score = sum(scores[i] for i in found) == pytest.approx(sum(scores[i] for i in ids), abs=1e-6)
            assert found == ids or (same_score and tokenizer.decode(found) == tokenizer.decode(ids)), repr(text)


def test_unigram_frames_texts() -> None:
    plain = Tokenizer.from_gguf(t5("unigram")).encode("the cat")
    assert Tokenizer.from_gguf(t5("unigram")).encode_whole("the cat") == [*plain, 2]  # T5 ends a text
    roberta = Tokenizer.from_gguf(t5("unigram", add_bos_token=True, seperator_token_id=2))
    assert roberta.encode_pair("the cat", "the cat") == [1, *plain, 2, 2, *plain, 2]
    assert roberta.decode(plain) == "the cat"
    assert not {1, 2} & set(roberta.encode("<s></s>", bos=False))  # plain text


def test_merges_of_pieces() -> None:
    """Gemma 4: merges as a file lists them, spaces as ▁, bytes for what has no piece, and runs of line feeds whole."""
    tokens = [
        "<pad>",
        "<eos>",
        "<bos>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "a",
        "b",
        "▁",
        "▁a",
        "ab",
        "\n",
        "\n\n",
    ]
    types = [3, 3, 3] + [6] * 256 + [1] * 7
    made = fields(model="gemma4", tokens=tokens, token_type=types, merges=["▁ a", "a b", "\n \n"], bos_token_id=2)
    tokenizer = Tokenizer.from_gguf(made)
    first = {token: i for i, token in enumerate(tokens)}
    assert tokenizer.encode("ab a\n\nab") == [first[t] for t in ("ab", "▁a", "\n\n", "ab")]
    assert tokenizer.encode("é") == [3 + byte for byte in "é".encode()]
    assert tokenizer.decode(tokenizer.encode("ab a\n\n é")) == "ab a\n\n é"


@pytest.mark.parametrize(
    "made, message",
    [
        (bert(unknown_token_id=9999), "unknown token 9999"),
        (bert(cls_token_id=9999), "special token 9999"),
        (bert(tokens=["a", "a"], token_type=[1, 1], unknown_token_id=0), "different"),
        (t5("unigram", unknown_token_id=None), "unknown token None"),
        (t5("unigram", precompiled_charsmap=[1, 2]), "cannot be used"),
        (t5("unigram", precompiled_charsmap="text"), "cannot be used"),
    ],
)
def test_broken_vocabulary(made: dict[str, Any], message: str) -> None:
    with pytest.raises(HightideError, match=message) as raised:
        Tokenizer.from_gguf(made)
    assert isinstance(raised.value, ProgramError) and "\n" not in str(raised.value)
