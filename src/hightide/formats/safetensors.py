"""Safetensors files: a JSON header of names, types, dims and places, then the data; every number checked before use.

A folder has one such file, or several with an index that says which holds a tensor.
"""

from __future__ import annotations

import json
import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.source_file import SourceFile
from hightide.graph.blob import Blob

MAX_HEADER = 25 << 20  # bytes; the 30,000 tensors of a large mixture of experts take 4 MB
MAX_DIMS = 8
SIZES = {  # bytes of an element, by the type's name
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
    "BOOL": 1,
}


@dataclass(frozen=True)
class StoredTensor:
    type: str  # "F32", "BF16", "I32", ...
    dims: tuple[int, ...]
    data: Blob


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, StoredTensor]:
    """The tensors by name; their data stays in the file."""
    source = SourceFile(path)
    if source.length < 8:
        raise ProgramError(f"{path} is not a safetensors file: it has {source.length} bytes")
    (length,) = struct.unpack("<Q", source.read(0, 8))
    if length > source.length - 8:
        raise ProgramError(f"{path} is no safetensors file, or truncated: its header would have {length} bytes")
    if length > MAX_HEADER:
        raise ProgramError(f"{path} has a header of {length} bytes; {MAX_HEADER} is the most")
    header = parse_json(bytes(source.read(8, length)), path)
    header.pop("__metadata__", None)
    tensors = {name: _tensor(source, 8 + length, name, entry) for name, entry in header.items()}
    at = 8 + length
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.data.offset, tensor.data.length)):
        if tensor.data.offset != at:
            raise ProgramError(f"{path} is damaged: its tensors do not follow each other at byte {at}")
        at += tensor.data.length
    if at != source.length:
        raise ProgramError(f"{path} is damaged: its tensors end at byte {at}, the file at {source.length}")
    return tensors


def read_shards(folder: Path, stem: str = "model") -> dict[str, StoredTensor]:
    """All tensors of a folder: of `model.safetensors`, or of the files that `model.safetensors.index.json` names."""
    single, index = folder / f"{stem}.safetensors", folder / f"{stem}.safetensors.index.json"
    if single.is_file() or not index.is_file():
        return read_safetensors(single)
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(_is_file_name(name) for name in places.values()):
        raise ProgramError(f"{index} has no weight_map from the names of tensors to files beside it")
    tensors: dict[str, StoredTensor] = {}
    for name in sorted(set(places.values())):
        if not (folder / name).is_file():
            raise ProgramError(f"{folder} lacks {name}, which its index names")
        shard = read_safetensors(folder / name)
        if twice := tensors.keys() & shard.keys():
            raise ProgramError(f"{folder} has the tensor {min(twice)} in two files")
        tensors |= shard
    if missing := places.keys() - tensors.keys():
        raise ProgramError(f"{folder} lacks the tensor {min(missing)}, which its index names")
    return tensors


def read_json(path: Path) -> dict[str, Any]:
    """An object of a small JSON file."""
    source = SourceFile(path)
    if source.length > MAX_HEADER:
        raise ProgramError(f"{path} has {source.length} bytes; {MAX_HEADER} is the most")
    return parse_json(bytes(source.read(0, source.length)), path)


def parse_json(text: bytes, path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_no_name_twice)
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"{path} has no valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ProgramError(f"{path} has no JSON object")
    return value


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name comes twice in one object")
    return values


def _is_file_name(name: Any) -> bool:
    return isinstance(name, str) and "\0" not in name and name not in ("", ".", "..") and Path(name).name == name


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _tensor(source: SourceFile, start: int, name: str, entry: Any) -> StoredTensor:
    where = f"{source.path}: tensor {name}"
    if not isinstance(entry, dict):
        raise ProgramError(f"{where} is {type(entry).__name__}, not an object")
    kind, dims, place = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dims, list) or len(dims) > MAX_DIMS or not all(map(_is_count, dims)):
        raise ProgramError(f"{where} has no valid shape")
    if not isinstance(place, list) or len(place) != 2 or not all(map(_is_count, place)):
        raise ProgramError(f"{where} has no valid data_offsets")
    if not isinstance(kind, str) or kind not in SIZES:
        raise UnsupportedError(f"{where} has the unknown type {kind!r}")
    first, end = place
    if not first <= end <= source.length - start:
        raise ProgramError(f"{where} has data at {first} to {end}, but there are only {source.length - start} bytes")
    if math.prod(dims) * SIZES[kind] != end - first:
        raise ProgramError(f"{where} has dims {dims} of {kind}, which do not take {end - first} bytes")
    return StoredTensor(kind, tuple(dims), Blob(source, start + first, end - first))
