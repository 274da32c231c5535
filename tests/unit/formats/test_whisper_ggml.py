"""Whisper files of whisper.cpp: what they hold, and that damaged ones are refused."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whisper_files import SIZES, TOKENS, whisper_bytes

from hightide import HightideError, InputError, ProgramError, UnsupportedError
from hightide.formats.whisper_ggml import is_whisper, read_whisper
from hightide.llm.tokenizer import Tokenizer
from hightide.speech.whisper_export import export_whisper, spelled_tokens, write_tokenizer_json

BIAS = np.array([[1.5], [-2.0]], np.float32)
WEIGHT = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
TENSORS = {"encoder.conv1.weight": WEIGHT, "encoder.conv1.bias": BIAS}


def test_sizes_tokens_and_tensors_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(whisper_bytes(TENSORS))
    file = read_whisper(path)
    assert is_whisper(path) and file.sizes == SIZES and file.tokens == TOKENS
    assert list(file.tensors) == ["encoder.conv1.weight", "encoder.conv1.bias"]
    np.testing.assert_array_equal(file.tensors["encoder.conv1.weight"], WEIGHT)
    np.testing.assert_array_equal(file.tensors["encoder.conv1.bias"], BIAS)


@pytest.mark.parametrize("tokens", [TOKENS, [*TOKENS, b"<|endoftext|>"]], ids=["without its end", "with it"])
def test_the_tokenizer_has_the_special_tokens_behind_the_others(tmp_path: Path, tokens: list[bytes]) -> None:
    (tmp_path / "model.bin").write_bytes(whisper_bytes(TENSORS, tokens))
    spelled = spelled_tokens(read_whisper(tmp_path / "model.bin"))
    assert len(spelled) == SIZES.vocabulary and spelled.index("<|endoftext|>") == 5
    write_tokenizer_json(spelled, tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert tokenizer.decode([3, 2, 4, 6]) == "ab é" and tokenizer.encode("ab b") == [3, 2, 1]
    assert tokenizer.decode([6, 0], special=True) == "<|startoftranscript|>a"


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(whisper_bytes(TENSORS, kind=8))
    with pytest.raises(UnsupportedError, match=r"encoder.conv1.weight is of ggml type 8; only f32 and f16"):
        read_whisper(path)
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ProgramError, match=r"is not a Whisper model of whisper\.cpp"):
        read_whisper(path)
    with pytest.raises(InputError, match=r"must end in .pte and be in a folder that exists"):
        export_whisper(path, tmp_path / "out.bin")


def test_the_command_knows_such_a_file(hightide: Any, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(whisper_bytes(TENSORS))
    code, out, err = hightide("export", tmp_path / "model.bin", tmp_path / "out.pte", "--context", 64)
    assert code == 1 and not out and "a Whisper model is exported as it is, with no option but --metadata" in err
    code, out, err = hightide("export", tmp_path / "model.bin", tmp_path / "out.pte")
    missing = "exporting needs" if importlib.util.find_spec("executorch") is None else "is missing or unknown"
    assert code == 1 and not out and missing in err and err.count("\n") == 1


def test_any_damage_is_refused_or_read(tmp_path: Path) -> None:
    rng, whole, path = np.random.default_rng(0), whisper_bytes(TENSORS), tmp_path / "model.bin"
    for _ in range(300):
        data = bytearray(whole[: rng.integers(1, len(whole) + 1)])
        for at in rng.integers(0, len(data), 2):
            data[at] = rng.integers(0, 256)
        path.write_bytes(data)
        try:
            read_whisper(path)
        except HightideError as error:
            assert str(path) in str(error)
