"""What a prompt may have besides text: images and audio, as callers and the clients of servers give them."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from hightide.errors import InputError
from hightide.media.audio import load_audio
from hightide.media.images import load_image
from hightide.option_checks import shown

TEXTS = ("text", "input_text", "output_text", "refusal")


@dataclass(frozen=True, eq=False)
class Image:
    """An image in a prompt: a file by path or as bytes, an array [height, width, 3], or a Pillow image."""

    data: Any
    kind = "image"

    def load(self) -> np.ndarray:
        """uint8 [height, width, 3]."""
        return load_image(self.data)


@dataclass(frozen=True, eq=False)
class Audio:
    """Audio in a prompt: a WAV file by path or as bytes, or an array [samples] or [samples, channels] with its rate."""

    data: Any
    sample_rate: int | None = None
    kind = "audio"

    def load(self) -> np.ndarray:
        """float32 [samples], 16 kHz."""
        return load_audio(self.data, self.sample_rate)


MediaPart: TypeAlias = Image | Audio


def read_part(part: Any, place: str) -> str | MediaPart:
    """A part of a message: text, an image or audio. InputError, with its place, for anything else."""
    if isinstance(part, str | Image | Audio):
        return part
    if isinstance(part, Mapping):
        return _from_mapping(part, place)
    if isinstance(part, os.PathLike):
        return Audio(part) if Path(part).suffix.lower() in (".wav", ".wave") else Image(part)
    if isinstance(part, bytes | bytearray | memoryview):
        return from_bytes(bytes(part))
    if isinstance(part, np.ndarray) and part.ndim < 3:
        raise InputError(f"{place} is an array {list(part.shape)}: hightide.Image or hightide.Audio says what it is")
    if isinstance(part, np.ndarray) or (hasattr(part, "convert") and hasattr(part, "mode")):
        return Image(part)
    raise InputError(f"{place} must be text, an image or audio, not {shown(part)}")


def from_bytes(data: bytes) -> MediaPart:
    """The bytes of a file."""
    return Audio(data) if data[:4] == b"RIFF" and data[8:12] == b"WAVE" else Image(data)


def _from_mapping(part: Mapping[str, Any], place: str) -> str | MediaPart:
    """As OpenAI's API has it; `{"type": "image", "image": ...}` and `{"type": "audio", "audio": ...}` too."""
    kind = part.get("type", "text" if "text" in part else None)
    if kind in TEXTS:
        text = part.get("text", part.get("refusal"))
        if not isinstance(text, str):
            raise InputError(f"{place} has no text")
        return text
    if kind in ("image", "audio") and part.get(kind) is not None:
        given = part[kind]
        if kind == "image":
            return given if isinstance(given, Image) else Image(given)
        return given if isinstance(given, Audio) else Audio(given, part.get("sample_rate"))
    if kind in ("image_url", "input_image"):
        given = part.get("image_url")
        return Image(_data_url(given.get("url") if isinstance(given, Mapping) else given, place))
    if kind == "input_audio":
        given = part.get("input_audio")
        data = given.get("data") if isinstance(given, Mapping) else None
        if not isinstance(data, str):
            raise InputError(f"{place} has no input_audio with data")
        return Audio(_decoded(data, place))
    raise InputError(f"{place} is of type {shown(kind)}; text, image_url and input_audio are known")


def _data_url(url: Any, place: str) -> bytes:
    """Its bytes. Nothing is fetched, and no file is read by a name that came over a network."""
    if not isinstance(url, str) or not url.startswith("data:"):
        raise InputError(f"{place} must have a data URL, such as data:image/png;base64,iVBORw…; nothing is fetched")
    head, comma, data = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise InputError(f"{place} has a data URL that is not in base64")
    return _decoded(data, place)


def _decoded(text: str, place: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InputError(f"{place} has data that is not base64") from None
