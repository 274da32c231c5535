"""Ids against independent implementations; text to ids to text."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_strings import han_strings, odd_strings
from tokenizer_reference import CUTS, ByteLevel, chunks, encode_by_scores
from vocabularies import (
    SHARED,
    golden_ids,
    goldens,
    sentencepiece_file,
    shared,
    smollm2,
    smollm2_metadata,
    tiktoken_file,
)

from hightide.errors import InputError, ProgramError, UnsupportedError
from hightide.llm.chat_template import render
from hightide.llm.pretokenizers import BYTES, SPELLING, byte_level, read_tiktoken
from hightide.llm.text_cuts import KINDS
from hightide.llm.tokenizer import Tokenizer


def spellable(tokenizer: Tokenizer, text: str) -> bool:
    """Every byte has a token; SmolLM2 lacks some control characters and unused planes."""
    return all(tokenizer.backend.token_to_id(SPELLING[byte]) is not None for byte in text.encode())


# ---- a real model


def test_smollm2_gives_the_oracle_prompts() -> None:
    tokenizer = smollm2()
    chat, raw = json.loads(shared("models/smollm2_oracle.json").read_text())["runs"]
    messages = [{"role": "user", "content": chat["name"].removeprefix("chat: ")}]
    prompt = render(tokenizer.chat_template, messages, bos_token="<|im_start|>", eos_token="<|im_end|>")
    assert tokenizer.encode(prompt, special=True) == chat["prompt_ids"]
    assert tokenizer.decode(chat["new_ids"], special=True) == chat["text"]
    assert tokenizer.decode(chat["new_ids"]) == chat["text"].removesuffix("<|im_end|>")
    assert tokenizer.encode(raw["name"].removeprefix("raw: ")) == raw["prompt_ids"]
    assert tokenizer.decode(raw["new_ids"]) == raw["text"]


def test_smollm2_is_a_plain_byte_pair_encoding() -> None:
    fields = smollm2_metadata()
    reference = ByteLevel(fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.merges"], "smollm")
    texts = [text for text in odd_strings() if spellable(smollm2(), text)]
    assert len(texts) > 390
    for text in texts:
        assert smollm2().encode(text) == reference.encode(text), repr(text)
        assert smollm2().decode(reference.encode(text)) == text


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    text = "".join(c for c in text if spellable(smollm2(), c))
    assert smollm2().decode(smollm2().encode(text)) == text
    assert smollm2().decode(smollm2().encode(text, special=True), special=True) == text


def test_special_tokens_are_text_unless_asked_for() -> None:
    tokenizer = smollm2()
    assert tokenizer.encode("<|im_end|>", special=True) == [2]
    plain = tokenizer.encode("a<|im_end|>b")
    assert 2 not in plain and tokenizer.decode(plain) == "a<|im_end|>b"
    assert tokenizer.decode([2, 504]) == "The" and tokenizer.decode([2, 504], special=True) == "<|im_end|>The"
    assert tokenizer.eos_ids == (2, 0) and tokenizer.bos_id == 1 and not tokenizer.add_bos
    assert tokenizer.vocab_size == 49152 and tokenizer.token(260) == "Ġthe" and tokenizer.piece(260) == b" the"


def test_bos_once() -> None:
    tokenizer = dataclasses.replace(smollm2(), add_bos=True)
    assert tokenizer.encode("The") == [1, 504] and tokenizer.encode("The", bos=False) == [504]
    assert tokenizer.encode("<|im_start|>The", special=True) == [1, 504]
    assert tokenizer.encode("") == [1] and smollm2().encode("", bos=True) == [1]
    with pytest.raises(InputError, match="no BOS"):
        dataclasses.replace(tokenizer, bos_id=None).encode("The", bos=True)


@pytest.mark.parametrize("token", [-1, 49152])
def test_id_outside_the_vocabulary(token: int) -> None:
    for call in (smollm2().token, smollm2().piece, lambda token: smollm2().decode([504, token])):
        with pytest.raises(InputError, match=f"token {token} is outside the vocabulary of 49152"):
            call(token)


@pytest.mark.parametrize("text", ["\ud800", None, b"bytes"])
def test_not_text(text: Any) -> None:
    with pytest.raises(InputError):
        smollm2().encode(text)


# ---- pre-tokenizers


@pytest.mark.parametrize("kind", sorted(set(goldens()["tiktoken"]) - {"file"}))
def test_byte_level_as_tiktoken(kind: str) -> None:
    tokens, merges = read_tiktoken(goldens()["tiktoken"]["file"].encode(), "goldens")
    backend = byte_level(tokens, merges, dataclasses.replace(KINDS[kind], ignore_merges=True))  # as tiktoken does
    for text, ids in zip(odd_strings(), golden_ids(goldens()["tiktoken"][kind]), strict=True):
        assert backend.encode(text).ids == ids, repr(text)


def cut_by(backend: Any, text: str) -> list[str]:
    return [bytes(BYTES[c] for c in chunk).decode() for chunk, _ in backend.pre_tokenizer.pre_tokenize_str(text)]


def test_cuts_between_chinese_and_other_letters() -> None:
    backend = byte_level(["a"], [], KINDS["kimi-k2"])
    for text, lengths in zip(han_strings(), golden_ids(goldens()["cuts"]["kimi-k2"]), strict=True):
        assert [len(piece) for piece in cut_by(backend, text)] == lengths, repr(text)


@pytest.mark.parametrize("kind", sorted(CUTS))
def test_cuts(kind: str) -> None:
    backend = byte_level(["a"], [], KINDS[kind])

    @settings(max_examples=40)
    @given(st.text() | st.sampled_from(odd_strings()))
    def check(text: str) -> None:
        text = "".join(c for c in text if unicodedata.category(c) != "Cn")  # newer Unicode has given some a category
        assert cut_by(backend, text) == chunks(text, kind)

    check()


VOCABS = Path(os.environ.get("HIGHTIDE_VOCABS") or SHARED / "vocabs")


@pytest.mark.parametrize("path", sorted(VOCABS.glob("ggml-vocab-*.gguf.inp")), ids=lambda path: path.name[11:-9])
def test_as_llama_cpp(path: Path) -> None:
    """The vocabularies of llama.cpp's models/, with its .inp and .out files, if somebody says where they are."""
    path = path.with_suffix("")
    tokenizer = Tokenizer.from_file(path)
    texts = path.with_name(path.name + ".inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    ids = golden_ids(path.with_name(path.name + ".out").read_text().split("\n"))
    for text, expected in zip(texts, ids, strict=False):
        assert tokenizer.encode(text, bos=False) == expected, repr(text)
        assert tokenizer.decode(expected) == text or "bert" in path.stem  # WordPiece forgets case and spaces


# ---- SentencePiece


@pytest.mark.parametrize("name", sorted(goldens()["sentencepiece"]))
def test_as_sentencepiece(name: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(sentencepiece_file(name, tmp_path))
    for text, ids in zip(odd_strings(), golden_ids(goldens()["sentencepiece"][name]["ids"]), strict=True):
        assert tokenizer.encode(text, bos=False) == ids, repr(text)
        if name != "collapsing":
            assert tokenizer.decode(ids) == text.replace("▁", " ")  # as SentencePiece spells it
    assert tokenizer.bos_id == (None if name == "collapsing" else 1) and tokenizer.eos_ids == (2,)
    assert tokenizer.space_prefix == (name != "gemma") and tokenizer.add_bos == (name != "collapsing")


def test_stories260k() -> None:
    tokenizer = Tokenizer.from_llama2c(shared("models/stories260K/tok512.bin"), 512)
    oracle = json.loads(shared("models/stories260K/oracle.json").read_text())
    assert tokenizer.decode(oracle["ids"]) == oracle["text"]
    assert tokenizer.encode(oracle["text"]) == oracle["ids"]


def test_executorch_has_a_longer_header(tmp_path: Path) -> None:
    data = shared("models/stories260K/tok512.bin").read_bytes()
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(struct.pack("<3I", 512, 1, 2) + data)
    assert Tokenizer.from_file(path).encode("Once upon a time") == [1, 403, 407, 261, 378]
    with pytest.raises(ProgramError, match="512 tokens, but the model has 32000"):
        Tokenizer.from_llama2c(path, 32000)


def test_sentencepiece_merges_as_llama2c() -> None:
    tokenizer = Tokenizer.from_file(shared("models/stories260K/tok512.bin"))
    tokens = [tokenizer.token(i) for i in range(512)]
    merges = {tokens[i]: -float(i) for i in range(512)}  # in this file the order of the ids is that of the scores

    @given(st.text() | st.sampled_from(odd_strings()) | st.text("aehilnorst ", max_size=60))
    def check(text: str) -> None:
        text = text.replace("▁", "")
        ids = tokenizer.encode(text, bos=False)
        assert ids == encode_by_scores(text, tokens, [merges[token] for token in tokens], "▁")
        assert tokenizer.decode(ids) == text

    check()


def test_gguf_of_a_sentencepiece_vocabulary() -> None:
    tokenizer = Tokenizer.from_gguf(small_llama())
    assert tokenizer.encode("ab a") == [1, 264, 263, 261] and tokenizer.eos_ids == (2, 260)
    assert tokenizer.encode("a</s>a", special=True) == [1, 263, 261, 2, 263, 261]  # a space after each special token
    assert tokenizer.encode("</s>") == [1, 263, 265, 266]  # plain text, though its two halves are tokens
    assert tokenizer.decode([1, 264, 2], special=True) == "<s>ab</s>"
    assert tokenizer.decode([264], continues=True) == " ab"
    bare = Tokenizer.from_gguf(small_llama(add_space_prefix=False, add_bos_token=False))
    assert bare.encode("ab a") == [259, 263, 261] and bare.decode([263, 261]) == " a"


def test_phi3_special_tokens_swallow_space() -> None:
    types = [2, 3, 3] + [6] * 256 + [1, 3] + [1] * 10
    plain = Tokenizer.from_gguf(small_llama(token_type=types))
    phi = Tokenizer.from_gguf(small_llama(token_type=types) | {"general.name": "Phi-3-mini"})
    assert plain.encode("<|end|>\na", special=True, bos=False) == [260, 263, 13, 261]
    assert phi.encode("<|end|>\na", special=True, bos=False) == [260, 263, 261]
    assert phi.eos_ids == (2, 260)


def small_llama(**changes: Any) -> dict[str, Any]:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += ["ab", "<|end|>", "a", "b", "▁", "▁ab", "</", "s>", "<", "/", "s", ">"]  # from id 259 on
    scores = [0.0] * 259 + [-3.0, 0.0, -9.0, -9.0, -9.0, -1.0, -2.0, -2.5, -9.0, -9.0, -9.0, -9.0]
    types = [2, 3, 3] + [6] * 256 + [1] * 12
    fields = dict(model="llama", tokens=tokens, token_type=types, scores=scores)
    return {f"tokenizer.ggml.{key}": value for key, value in (fields | changes).items()}


# ---- tiktoken files


def test_tiktoken_file(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(tiktoken_file(tmp_path))
    for text, ids in zip(odd_strings(), golden_ids(goldens()["tiktoken"]["llama-bpe"]), strict=True):
        assert tokenizer.encode(text, bos=False) == ids, repr(text)
        assert tokenizer.decode(ids) == text
    assert tokenizer.vocab_size == 756 + 256 and tokenizer.bos_id == 756 and tokenizer.encode("")[0] == 756
    assert tokenizer.eos_ids == (757, 765, 764) and tokenizer.token(765) == "<|eot_id|>"
    assert tokenizer.encode("<|eot_id|>", special=True, bos=False) == [765]


# ---- broken vocabularies


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (dict(model="rwkv"), UnsupportedError, "'rwkv'"),
        (dict(model=None), UnsupportedError, "None"),
        (dict(tokens=None), ProgramError, "tokens is missing"),
        (dict(tokens=[1, 2]), ProgramError, "the wrong type"),
        (dict(token_type=[1]), ProgramError, "1 items for 271"),
        (dict(scores=[]), ProgramError, "0 items for 271"),
        (dict(bos_token_id=271), ProgramError, "outside the vocabulary of 271"),
        (dict(eos_token_id="2"), ProgramError, "outside"),
        (dict(model="gpt2", pre="klingon", merges=[]), UnsupportedError, "'klingon'"),
        (dict(model="gpt2"), ProgramError, "merges is missing"),
        (dict(model="gpt2", merges=["ab"]), ProgramError, "two tokens"),
        (dict(model="gpt2", merges=["q r"]), ProgramError, "do not fit together"),
        (dict(tokens=["<unk>"] * 271), ProgramError, "different"),
    ],
)
def test_broken_gguf_vocabulary(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        Tokenizer.from_gguf(small_llama(**changes))
    assert "\n" not in str(raised.value)
