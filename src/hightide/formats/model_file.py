"""A language model on disk, whatever holds it: a GGUF file, several, or a Hugging Face folder that looks like one."""

from __future__ import annotations

import os
from pathlib import Path

from hightide.formats.gguf import GgufFile, is_gguf
from hightide.formats.model_folder import is_model_folder, read_folder
from hightide.formats.split_gguf import read_split_gguf, split_paths


def is_model(path: str | os.PathLike[str]) -> bool:
    return is_gguf(path) or is_model_folder(path)


def read_model(path: str | os.PathLike[str]) -> GgufFile:
    """Fields and names of tensors; their data stays where it is."""
    return read_folder(path) if is_model_folder(path) else read_split_gguf(path)


def model_files(path: str | os.PathLike[str]) -> list[Path]:
    """The files that hold the weights of a model or program."""
    path = Path(path)
    return sorted(path.glob("*.safetensors")) if path.is_dir() else [one for one in split_paths(path) if one.is_file()]


def model_bytes(path: str | os.PathLike[str]) -> int:
    return sum(file.stat().st_size for file in model_files(path))
