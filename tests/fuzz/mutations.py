"""Damage: bytes anywhere, numbers where a reader finds numbers, offsets that point elsewhere, nodes of JSON, fields."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from fuzz.gguf_parts import Field, GgufParts, decoded
from fuzz.op_graphs import changed
from fuzz.seeds import EXTERNAL, seeds
from hightide import load
from hightide.errors import HightideError
from hightide.formats import flatbuffer
from hightide.formats.ptd import read_data_file

Mutation = Callable[[bytes, Random], bytes]
EXTREMES = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    15,
    16,
    63,
    64,
    127,
    128,
    255,
    2**15 - 1,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
)


def case(kind: str, number: int, seed: str) -> tuple[str, bytes]:
    """The name of a seed, and what it is damaged to; the same for the same arguments."""
    chance = Random(f"{seed} {kind} {number}")
    name = chance.choice(sorted(seeds(kind)))
    data = seeds(kind)[name]
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5))):
        data = _mutated(kind, name, data, chance)
    return name, data


def _mutated(kind: str, name: str, data: bytes, chance: Random) -> bytes:
    makers: list[Mutation] = [changed] if kind == "graph" else [_some_bytes]
    if kind in ("pte", "gpu", "ptd"):
        traced = _traced(kind, name)
        makers += [*[traced.number] * 10, traced.offset, traced.offset, traced.text]
    elif kind in ("gguf", "encoder", "split", "adapter"):
        makers += [_gguf_field, _gguf_field, _gguf_field, _gguf_info, _gguf_info]
    elif kind in ("folder", "encoder_folder", "peft"):
        makers += [_folder_config, _folder_config, _folder_header, _folder_header]
    elif kind in ("json", "cache"):
        makers += [_json_node] * 6
    elif kind == "template":
        makers += [_words] * 4
    return chance.choice(makers)(data, chance)


# ---- bytes


def _some_bytes(data: bytes, chance: Random) -> bytes:
    if not data:
        return bytes(chance.randrange(8))
    at = chance.randrange(len(data))
    length = chance.choice((1, 1, 2, 4, 8, 32))
    match chance.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[at + length :]
        case 2:
            return data[:at] + chance.randbytes(length) + data[at:]
        case 3:
            return data[:at] + data[at : at + length] + data[at:]
        case 4:
            at -= at % 4
            return data[:at] + struct.pack("<I", chance.choice(EXTREMES) % 2**32) + data[at + 4 :]
        case _:
            return data[:at] + bytes([chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))]) + data[at + 1 :]


# ---- FlatBuffers


@dataclass
class Trace:
    """What a reader looks at in a file: numbers, offsets and the texts behind them, at places in the file."""

    numbers: dict[int, int] = field(default_factory=dict)  # place -> bytes
    offsets: dict[int, int] = field(default_factory=dict)  # place -> the place it points to
    texts: dict[int, int] = field(default_factory=dict)  # place -> bytes

    @cached_property
    def plain(self) -> list[int]:
        """The places of numbers that say something: neither offsets nor vtables nor lengths."""
        aside = {*self.offsets, *self.offsets.values()}
        return [place for place, width in self.numbers.items() if width != 2 and place not in aside]

    def number(self, data: bytes, chance: Random) -> bytes:
        place = chance.choice(self.plain if chance.randrange(8) and self.plain else list(self.numbers))
        width = self.numbers[place]
        old = int.from_bytes(data[place : place + width], "little")
        match chance.randrange(4):
            case 0:
                new = old + chance.choice((-1, 1, 2, -2, 16))
            case 1:
                other = chance.choice(self.plain or list(self.numbers))
                new = int.from_bytes(data[other : other + self.numbers[other]], "little")
            case 2:
                new = chance.choice((-1, -1, -2, -chance.choice(EXTREMES), chance.randrange(12)))
            case _:
                new = chance.choice(EXTREMES)
        return _put(data, place, (new % 256**width).to_bytes(width, "little"))

    def offset(self, data: bytes, chance: Random) -> bytes:
        """Points to what another offset points to, which lies behind it."""
        place = chance.choice(list(self.offsets))
        behind = [target for target in self.offsets.values() if place < target]
        target = chance.choice(behind) if behind else place + 4
        return _put(data, place, struct.pack("<I", (target - place) % 2**32))

    def text(self, data: bytes, chance: Random) -> bytes:
        """Another text of the file that is no longer, or a few of its bytes."""
        if not self.texts:
            return _some_bytes(data, chance)
        place = chance.choice(list(self.texts))
        other = chance.choice(list(self.texts))
        length = min(self.texts[other], self.texts[place])
        if chance.randrange(4):
            return _put(data, place - 4, struct.pack("<I", length) + data[other : other + length])
        return _put(data, place + chance.randrange(max(length, 1)), bytes([chance.randrange(256)]))


def _put(data: bytes, place: int, new: bytes) -> bytes:
    return data[:place] + new + data[place + len(new) :] if 0 <= place <= len(data) else data


@cache
def _traced(kind: str, name: str) -> Trace:
    trace = Trace()
    buffer: Any = getattr(flatbuffer, "_Buffer")  # noqa: B009
    number, follow, read = buffer.number, buffer.follow, buffer.read

    def seen_number(self: Any, position: int, kind: Any) -> Any:
        trace.numbers[self.blob.offset + position] = kind.bytewidth
        return number(self, position, kind)

    def seen_offset(self: Any, position: int, place: str) -> int:
        target = follow(self, position, place)
        trace.offsets[self.blob.offset + position] = self.blob.offset + target
        return int(target)

    def seen_bytes(self: Any, position: int, length: int) -> memoryview:
        place = self.blob.offset + position
        if length % 4 == 0 and length <= 64:  # a vector of numbers, or a text: as both
            trace.numbers.update({place + at: 4 for at in range(0, length, 4)})
        trace.texts[place] = length
        return read(self, position, length)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(seeds(kind)[name])
        with (
            patch.object(buffer, "number", seen_number),
            patch.object(buffer, "follow", seen_offset),
            patch.object(buffer, "read", seen_bytes),
            suppress(HightideError),
        ):
            if kind == "ptd":
                read_data_file(path)
            else:
                load(path, device="cpu", data=[EXTERNAL] if name.startswith("external") else [])
    return trace


# ---- GGUF


def _gguf_parts(data: bytes) -> GgufParts | None:
    """None if it is too damaged to be taken apart."""
    try:
        return decoded(data)
    except (struct.error, KeyError, OverflowError, MemoryError):
        return None


def _gguf_field(data: bytes, chance: Random) -> bytes:
    parts = _gguf_parts(data)
    if parts is None or not parts.fields:
        return _some_bytes(data, chance)
    at = chance.randrange(len(parts.fields))
    chosen = parts.fields[at]
    match chance.randrange(6):
        case 0:
            del parts.fields[at]
        case 1:
            other = chance.choice(parts.fields)
            parts.fields[at] = Field(chosen.key, other.kind, other.value)
        case 2:
            parts.fields[at] = Field(chance.choice(parts.fields).key, chosen.kind, chosen.value)
        case 3:
            options = (
                0,
                1,
                2,
                3,
                33,
                2**31,
                True,
                0.0,
                -1.0,
                1e30,
                float("nan"),
                float("inf"),
                "",
                "x",
                [1],
                ["a"],
                [0.5],
            )
            parts.fields[at] = Field.of(chosen.key.decode("utf-8", "replace"), chance.choice(options))
        case 4:
            key = chosen.key.decode("utf-8", "replace").partition(".")[0]
            extra = ("rope.scaling.type", "rope.scaling.factor", "expert_count", "rope.freq_base_swa", "vocab_size")
            parts.fields.append(
                Field.of(f"{key}.{chance.choice(extra)}", chance.choice((0, 1, 1e-30, "yarn", "longrope")))
            )
        case _:
            parts.fields[at] = Field(chosen.key, chosen.kind, _some_bytes(chosen.value, chance))
    return parts.encoded()


def _gguf_info(data: bytes, chance: Random) -> bytes:
    parts = _gguf_parts(data)
    if parts is None or not parts.infos:
        return _some_bytes(data, chance)
    at = chance.randrange(len(parts.infos))
    chosen, other = parts.infos[at], chance.choice(parts.infos)
    match chance.randrange(6):
        case 0:
            del parts.infos[at]
        case 1:
            chosen.dims, chosen.kind, chosen.offset = other.dims, other.kind, other.offset
        case 2:
            dims = list(chosen.dims) or [1]
            dims[chance.randrange(len(dims))] = chance.choice((*EXTREMES, 32, 96))
            chosen.dims = tuple(dims)
        case 3:
            chosen.kind = chance.choice((*range(40), 2**31))
        case 4:
            chosen.offset = chance.choice((*EXTREMES, other.offset))
        case _:
            chosen.dims = (*chosen.dims, chance.choice((0, 1, 2)))[: chance.randrange(5)]
    return parts.encoded()


# ---- text

NODES = (
    None,
    True,
    0,
    1,
    -1,
    2**31,
    2**63,
    1e308,
    "",
    "a",
    "▁",
    "\ud800",
    [],
    {},
    [[]],
    ["a", "b"],
    {"type": "BPE"},
    [None],
)


def _folder_config(data: bytes, chance: Random) -> bytes:
    config, newline, weights = data.partition(b"\n")
    return _json_node(config, chance).replace(b"\n", b" ") + newline + weights


def _folder_header(data: bytes, chance: Random) -> bytes:
    """The header of the safetensors behind the config, its length right."""
    config, newline, weights = data.partition(b"\n")
    if len(weights) < 8:
        return data
    end = 8 + min(struct.unpack("<Q", weights[:8])[0], len(weights))
    header = _json_node(weights[8:end], chance)
    return config + newline + struct.pack("<Q", len(header)) + header + weights[end:]


def _json_node(data: bytes, chance: Random) -> bytes:
    try:
        root = json.loads(data)
    except (ValueError, RecursionError):
        return _some_bytes(data, chance)
    places: list[tuple[Any, Any]] = []

    def collect(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in items:
            places.append((node, key))
            collect(value)

    collect(root)
    if not places:
        return json.dumps(chance.choice(NODES)).encode()
    shallow = [place for place in places if isinstance(place[0], dict)] or places
    node, key = chance.choice(places if chance.randrange(2) else shallow)
    if not chance.randrange(40):  # as deep as no parser goes
        return data[: len(data) // 2] + b'{"a":[' * 20_000 + data[len(data) // 2 :]
    match chance.randrange(4):
        case 0:
            del node[key]
        case 1:
            other, at = chance.choice(places)
            with suppress(KeyError, IndexError):
                node[key] = json.loads(json.dumps(other[at]))
        case 2 if isinstance(node, dict):
            node[chance.choice((*node, "type", "added", "x"))] = node.pop(key)
        case _:
            node[key] = chance.choice(NODES)
    return json.dumps(root).encode()


def _words(data: bytes, chance: Random) -> bytes:
    """Words of a template dropped, doubled, swapped; no numbers are made, so that no loop gets long."""
    words = data.decode("utf-8", "replace").split(" ")
    at, other = chance.randrange(len(words)), chance.randrange(len(words))
    match chance.randrange(3):
        case 0:
            del words[at]
        case 1:
            words.insert(at, words[other])
        case _:
            words[at], words[other] = words[other], words[at]
    return " ".join(words).encode()
