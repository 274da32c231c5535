"""Files beside a program: tokenizer.json and what is next to it, and damaged files of every kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_strings import odd_strings
from tokenizers import AddedToken, decoders, processors
from vocabularies import sentencepiece_file, smollm2, tiktoken_file

from hightide.errors import HightideError, ProgramError, UnsupportedError
from hightide.llm.tokenizer import Tokenizer


def json_file(tokenizer: Tokenizer, decoder: Any, folder: Path, **beside: Any) -> Path:
    backend = type(tokenizer.backend).from_str(tokenizer.backend.to_str())
    backend.decoder = decoder
    path = folder / "tokenizer.json"
    backend.save(str(path))
    for name, values in beside.items():
        (folder / f"{name}.json").write_text(json.dumps(values))
    return path


def test_tokenizer_json_of_a_byte_level_model(tmp_path: Path) -> None:
    config = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "chat_template": "{{ messages }}"}
    path = json_file(smollm2(), decoders.ByteLevel(), tmp_path, tokenizer_config=config)
    tokenizer = Tokenizer.from_file(path)
    for text in odd_strings():
        assert tokenizer.encode(text) == smollm2().encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == smollm2().decode(smollm2().encode(text))
        assert tokenizer.encode(text, special=True) == smollm2().encode(text, special=True)
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.add_bos) == (1, (2, 0), False)
    assert tokenizer.vocab_size == 49152 and tokenizer.chat_template == "{{ messages }}"
    assert tokenizer.control == smollm2().control and tokenizer.piece(260) == b" the"


def test_tokenizer_json_of_a_sentencepiece_model(tmp_path: Path) -> None:
    direct = Tokenizer.from_file(sentencepiece_file("llama", tmp_path))
    direct.backend.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", 1)])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    beside: dict[str, Any] = {"special_tokens_map": {"bos_token": "<s>"}, "generation_config": {"eos_token_id": [2, 5]}}
    path = json_file(direct, decoders.Sequence(steps), tmp_path, **beside)
    (tmp_path / "chat_template.jinja").write_text("a template")
    tokenizer = Tokenizer.from_file(path)
    for text in odd_strings():
        assert tokenizer.encode(text) == direct.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == direct.decode(direct.encode(text))
    assert (tokenizer.bos_id, tokenizer.add_bos, tokenizer.space_prefix) == (1, True, True)
    assert tokenizer.eos_ids == (2, 5) and tokenizer.chat_template == "a template"


def test_tokens_added_to_a_tokenizer_json(tmp_path: Path) -> None:
    path = json_file(smollm2(), decoders.ByteLevel(), tmp_path, tokenizer_config={"chat_template": [{"name": "x"}]})
    backend = smollm2().backend.from_file(str(path))
    backend.add_tokens([AddedToken("<é>", normalized=False)])
    backend.enable_truncation(2)
    backend.save(str(path))
    tokenizer = Tokenizer.from_file(path)
    assert tokenizer.encode("<é>") == [49152] and tokenizer.decode([49152]) == "<é>" and tokenizer.vocab_size == 49153
    assert len(tokenizer.encode("one two three")) == 3  # not truncated
    assert tokenizer.chat_template is None


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("tokenizer.json", b"{}", ProgramError),
        ("tokenizer.json", b"not json", ProgramError),
        ("tokenizer.json", b"", ProgramError),
        ("tokenizer.model", b"", UnsupportedError),
        ("tokenizer.model", b"plain text\n", UnsupportedError),
        ("tokenizer.model", b"YQ== 0\nYg== 2\n", ProgramError),
        ("tokenizer.model", b"YQ== 0\nYg==\n", ProgramError),
        ("tokenizer.model", b"YQ== 0\n!! 1\n", ProgramError),
        ("tokenizer.model", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", ProgramError),
        ("tokenizer.model", b"\x0a\x02\x08\x05", ProgramError),
        ("tokenizer.model", b"\x0a\x03\x0a\x01a", UnsupportedError),  # a unigram model
        ("tok.bin", b"", ProgramError),
        ("tok.bin", b"\x01\x00\x00\x00" + b"\x00" * 7, ProgramError),
        ("model.gguf", b"GGUF", ProgramError),
    ],
)
def test_not_a_tokenizer(name: str, content: bytes, error: type[Exception], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error) as raised:
        Tokenizer.from_file(tmp_path / name)
    assert name in str(raised.value) and "\n" not in str(raised.value)


def test_missing_file(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer.model", "tok.bin"):
        with pytest.raises(ProgramError, match="cannot read"):
            Tokenizer.from_file(tmp_path / name)


def test_normalising_models_are_refused(tmp_path: Path) -> None:
    path = sentencepiece_file("llama", tmp_path)
    path.write_bytes(path.read_bytes() + b"\x1a\x03\x12\x01x")  # a normalizer with a character map
    with pytest.raises(UnsupportedError, match="normalises"):
        Tokenizer.from_file(path)


@given(st.data())
def test_damaged_files_raise_one_of_ours(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    make = data.draw(st.sampled_from([tiktoken_file, lambda folder: sentencepiece_file("llama", folder)]))
    path = make(folder)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        Tokenizer.from_file(path).encode("Hello world")
    except HightideError as error:
        assert "\n" not in str(error)


BYTE_LEVEL = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
}
MISSING = {"SpecialToken": {"id": "x", "type_id": 0}}
PREFIXED = {"type": "BPE", "vocab": {"a": 0, "é": 1, "aé": 2}, "merges": ["a é"], "continuing_subword_prefix": "x"}
WITHOUT_UNKNOWN = {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "?"}


@pytest.mark.parametrize(
    "damage",
    [
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},  # panics when it is loaded
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAP////8="}},  # when it is used
        {"post_processor": {"type": "TemplateProcessing", "single": [MISSING], "pair": [], "special_tokens": {}}},
        {"model": PREFIXED},  # aborts
        {"model": None},
        {"decoder": None},
    ],
    ids=["load", "normalize", "process", "abort", "no model", "no decoder"],
)
def test_a_tokenizer_json_that_panics(damage: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(BYTE_LEVEL | damage))
    with pytest.raises(HightideError) as raised:
        Tokenizer.from_file(path)
    assert "\n" not in str(raised.value)


def test_a_tokenizer_that_fails_at_some_text(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(BYTE_LEVEL | {"model": WITHOUT_UNKNOWN}))
    tokenizer = Tokenizer.from_file(path)
    assert tokenizer.encode("aa") == [0, 0]
    with pytest.raises(ProgramError, match="cannot encode this text"):
        tokenizer.encode("b")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass_through_a_tokenizer(kind: type[BaseException]) -> None:
    class Backend:
        def encode(self, *_: object, **__: object) -> None:
            raise kind

    with pytest.raises(kind):
        replace(smollm2(), backend=Backend()).encode("a")  # type: ignore[arg-type]
