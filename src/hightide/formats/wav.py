"""WAV files: integers of 8 to 32 bits and floats, any number of channels, from the bytes of a file.

The standard library's `wave` reads neither floats nor, before Python 3.12, the extensible header that most programs
write for 24 bits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from hightide.errors import InputError

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
NAMES = {2: "ADPCM", 6: "A-law", 7: "mu-law", 0x50: "MPEG", 0x55: "MP3", 0xFF: "AAC"}
INTEGERS = {1: "u1", 2: "<i2", 4: "<i4"}  # by bytes
FLOATS = {4: "<f4", 8: "<f8"}


@dataclass(frozen=True)
class Wav:
    samples: np.ndarray  # float32 [samples, channels], from -1 to 1
    rate: int  # samples per second


@dataclass(frozen=True)
class _Format:
    kind: int
    channels: int
    rate: int
    size: int  # bytes of a sample of one channel


def read_wav(data: bytes, name: str) -> Wav:
    """The samples of a file; InputError says what is wrong with it."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise InputError(f"{name} is not a WAV file; ffmpeg -i {name} out.wav makes one of most audio files")
    form: _Format | None = None
    at = 12
    while at + 8 <= len(data):
        kind, (size,) = data[at : at + 4], struct.unpack_from("<I", data, at + 4)
        body = data[at + 8 : at + 8 + size]  # a program that writes to a pipe does not know the size: up to the end
        if kind == b"fmt ":
            form = _format(body, name)
        elif kind == b"data":
            if form is None:
                raise InputError(f"{name} is damaged: its samples come before their format")
            return Wav(_samples(body, form, name), form.rate)
        at += 8 + size + size % 2
    raise InputError(f"{name} is damaged: it has no samples")


def _format(body: bytes, name: str) -> _Format:
    if len(body) < 16:
        raise InputError(f"{name} is damaged: its format takes {len(body)} bytes")
    kind, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", body)
    if kind == EXTENSIBLE and len(body) >= 26:
        (kind,) = struct.unpack_from("<H", body, 24)
    if kind not in (PCM, FLOAT):
        raise InputError(f"{name} holds {NAMES.get(kind, f'audio of type {kind}')}; only PCM and floats can be read")
    size = (bits + 7) // 8
    if not channels or not rate or frame != channels * size:
        raise InputError(f"{name} is damaged: {channels} channels of {bits} bits at {rate} Hz in {frame} bytes")
    if size not in ((1, 2, 3, 4) if kind == PCM else FLOATS):
        raise InputError(f"{name} has {'samples' if kind == PCM else 'floats'} of {bits} bits, which cannot be read")
    return _Format(kind, channels, rate, size)


def _samples(body: bytes, form: _Format, name: str) -> np.ndarray:
    count = len(body) // (form.size * form.channels)
    if not count:
        raise InputError(f"{name} has no samples")
    raw = np.frombuffer(body, np.uint8, count * form.channels * form.size)
    if form.kind == FLOAT:
        samples = raw.view(FLOATS[form.size]).astype(np.float32)
    elif form.size == 3:
        wide = np.zeros((raw.size // 3, 4), np.uint8)  # 24 bits as the upper ones of 32
        wide[:, 1:] = raw.reshape(-1, 3)
        samples = from_integers(wide.view("<i4").reshape(-1))
    else:
        samples = from_integers(raw.view(INTEGERS[form.size]))
    return samples.reshape(count, form.channels)


def from_integers(samples: np.ndarray) -> np.ndarray:
    """Integers as float32 from -1 to 1; those without a sign have their zero in the middle."""
    half = 2.0 ** (8 * samples.itemsize - 1)
    zero = half if samples.dtype.kind == "u" else 0.0
    return ((samples.astype(np.float64) - zero) / half).astype(np.float32)
