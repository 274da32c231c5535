"""Audio and a vocabulary for the small speech model, tests/conformance/whisper.pte."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from hightide.speech.whisper_export import write_tokenizer_json

RATE = 16000
CLIPS = 4
TOKENS = [a + b for a in "bcdfghjklmnpqrstvwz" for b in "aeiou"][:93]
PLAIN = len(TOKENS)
END, START, NO_SPEECH, NO_TIMES = range(PLAIN, PLAIN + 4)
TOKENS += ["<|endoftext|>", "<|startoftranscript|>", "<|nospeech|>", "<|notimestamps|>"]


def clip(seed: int, seconds: float = 0.9) -> np.ndarray:
    """float32 samples at 16 kHz: a tone that rises, as loud as it likes, over some noise."""
    rng = np.random.default_rng(seed)
    time = np.arange(round(seconds * RATE)) / RATE
    tone = np.sin(2 * np.pi * (200 + 150 * seed) * time * (1 + time / 3)) * np.abs(np.sin(7 * time + seed))
    return (0.4 * tone + 0.02 * rng.standard_normal(time.size)).astype(np.float32)


def wav(samples: np.ndarray, rate: int = RATE, kind: int = 1, extensible: bool = False) -> bytes:
    """A WAV file of samples [n] or [n, channels] of the type that they have; 24 bits are [n, channels, 3] bytes."""
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    size = 3 if samples.ndim == 3 else samples.itemsize
    fields = (channels, rate, rate * channels * size, channels * size, 8 * size)
    form = struct.pack("<HHIIHH", 0xFFFE if extensible else kind, *fields)
    if extensible:
        form += (
            struct.pack("<HHIH", 22, 8 * size, 0, kind) + b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
        )
    data = samples.tobytes()
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"LIST" + struct.pack("<I", 3) + b"odd\0"
    body += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def as_int16(samples: np.ndarray) -> np.ndarray:
    return np.round(samples * 32767).astype("<i2")


def tokenizer(folder: Path) -> Path:
    path = folder / "tokenizer.json"
    write_tokenizer_json(TOKENS, path)
    return path
