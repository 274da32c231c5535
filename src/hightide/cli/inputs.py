"""Inputs from the command line: files, JSON, random numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.planning.levels import InputSpec


def collect(
    specs: Sequence[InputSpec], given: Sequence[str], random: Sequence[str], seed: int, metadata: Mapping[str, Any]
) -> list[Any]:
    """One value per input: `given` are `[name=]file` or `[name=]JSON`, `random` are `name=1x17`."""
    values: dict[str, Any] = {}
    for text in given:
        name, text = _split(text, specs)
        for key, value in _read(text, specs, name, values).items():
            if key in values:
                raise InputError(f"input {key} is given twice")
            values[key] = value
    rng = np.random.default_rng(seed)
    for text in random:
        name, shape = _split(text, specs)
        name = name or _next_input(specs, values)
        values[name] = _random(_spec(specs, name), shape, rng, metadata)
    for spec in specs:
        if spec.name == "input_pos":  # an LLM starts at the beginning unless told otherwise
            values.setdefault(spec.name, np.zeros(spec.dims, spec.dtype))
    missing = [spec.name for spec in specs if spec.name not in values]
    if missing:
        raise InputError(f"no value was given for {', '.join(missing)}; use --input NAME=FILE or --random NAME=1x17")
    return [values[spec.name] for spec in specs]


def _split(text: str, specs: Sequence[InputSpec]) -> tuple[str, str]:
    """(name, rest) of `name=rest`; the name is empty if there is none."""
    name, equals, rest = text.partition("=")
    if not equals:
        return "", text
    return _spec(specs, name).name, rest


def _spec(specs: Sequence[InputSpec], name: str) -> InputSpec:
    for spec in specs:
        if spec.name == name:
            return spec
    raise InputError(f"there is no input {name!r}; the inputs are {', '.join(s.name for s in specs) or 'none'}")


def _next_input(specs: Sequence[InputSpec], values: Mapping[str, Any]) -> str:
    for spec in specs:
        if spec.name not in values:
            return spec.name
    raise InputError(f"more inputs were given than the {len(specs)} that the program takes")


def _read(text: str, specs: Sequence[InputSpec], name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The value, or the values of an archive, by input name."""
    path = Path(text)
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return _from_archive({key: archive[key] for key in archive.files}, text, specs, name, values)
        name = name or _next_input(specs, values)
        if path.suffix == ".npy":
            return {name: np.load(path, allow_pickle=False)}
        if path.suffix == ".bin":
            return {name: _from_bytes(path.read_bytes(), _spec(specs, name))}
        return {name: json.loads(path.read_text() if path.suffix == ".json" else text)}
    except json.JSONDecodeError as error:
        raise InputError(f"{text} is neither JSON nor the name of a .npy, .npz, .bin or .json file: {error}") from None
    except ValueError as error:
        raise InputError(f"{text} could not be read: {error}") from None


def _from_archive(
    arrays: dict[str, np.ndarray], path: str, specs: Sequence[InputSpec], name: str, values: Mapping[str, Any]
) -> dict[str, Any]:
    if name:
        if name not in arrays and len(arrays) != 1:
            raise InputError(f"{path} has no array {name!r}; it has {', '.join(arrays)}")
        return {name: arrays.get(name, next(iter(arrays.values())))}
    names = {spec.name for spec in specs}
    if names & arrays.keys():
        return {key: array for key, array in arrays.items() if key in names}
    free = [spec.name for spec in specs if spec.name not in values]
    if len(arrays) != len(free):
        raise InputError(f"{path} has the arrays {', '.join(arrays)}, but the program still needs {', '.join(free)}")
    return dict(zip(free, arrays.values(), strict=True))


def _from_bytes(data: bytes, spec: InputSpec) -> np.ndarray:
    """Raw little-endian elements; one dim may be shorter than its max."""
    array = np.frombuffer(data, np.dtype(spec.dtype).newbyteorder("<")).astype(spec.dtype)
    if array.size == math.prod(spec.dims):
        return array.reshape(spec.dims)
    shapes = [
        tuple(-1 if n == at else d for n, d in enumerate(spec.dims))
        for at, most in enumerate(spec.dims)
        if most > 1 and array.size % (math.prod(spec.dims) // most) == 0
    ]
    if not spec.dynamic or len(shapes) != 1:
        raise InputError(f"{len(data)} bytes do not tell the shape of {spec.name} {list(spec.dims)}; use a .npy file")
    return array.reshape(shapes[0])


def _random(spec: InputSpec, shape: str, rng: np.random.Generator, metadata: Mapping[str, Any]) -> np.ndarray:
    try:
        dims = tuple(int(d) for d in shape.split("x")) if shape else ()
    except ValueError:
        raise InputError(f"{shape!r} is not a shape, such as 1x17") from None
    if any(d < 0 or d > most for d, most in zip(dims, spec.dims, strict=False)) or len(dims) != len(spec.dims):
        raise InputError(f"input {spec.name} cannot be {shape}; its max dims are {list(spec.dims)}")
    if spec.dtype == "bool":
        return rng.integers(0, 2, dims).astype(bool)
    if np.dtype(spec.dtype).kind in "iu":
        vocabulary = metadata.get("get_vocab_size")
        high = vocabulary if spec.name == "tokens" and isinstance(vocabulary, int) else 10
        return rng.integers(0, 1 if spec.name == "input_pos" else high, dims).astype(spec.dtype)
    return rng.standard_normal(dims).astype(spec.dtype)
