"""WAV files: every kind of sample, and what is said of those that cannot be read."""

from __future__ import annotations

import contextlib
import io
import struct
import wave

import numpy as np
import pytest
from spoken import wav

from hightide import InputError
from hightide.formats.wav import read_wav

SAMPLES = np.array([0.0, 0.5, -0.5, 0.25, -1.0, 0.75])


def in_24_bits(samples: np.ndarray) -> np.ndarray:
    wide = (samples * 2**31).astype("<i8").astype("<i4")
    return wide.view(np.uint8).reshape(-1, 1, 4)[:, :, 1:]


KINDS = {
    "8 bits": (np.round(SAMPLES * 128 + 128).astype(np.uint8), 1),
    "16 bits": ((SAMPLES * 2**15).astype("<i2"), 1),
    "24 bits": (in_24_bits(SAMPLES), 1),
    "32 bits": ((SAMPLES * 2**31).astype("<i8").astype("<i4"), 1),
    "float32": (SAMPLES.astype("<f4"), 3),
    "float64": (SAMPLES, 3),
}


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_sample_is_read(kind: str, extensible: bool) -> None:
    samples, tag = KINDS[kind]
    read = read_wav(wav(samples, 8000, tag, extensible), "a.wav")
    assert read.rate == 8000 and read.samples.dtype == np.float32 and read.samples.shape == (6, 1)
    np.testing.assert_array_equal(read.samples[:, 0], SAMPLES.astype(np.float32))


def test_it_reads_what_the_standard_library_writes() -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(2)
        written.setsampwidth(2)
        written.setframerate(44100)
        written.writeframes(np.array([[1, -2], [3, 4]], "<i2").tobytes())
    read = read_wav(file.getvalue(), "a.wav")
    assert read.rate == 44100
    np.testing.assert_array_equal(read.samples * 2**15, [[1, -2], [3, 4]])


def test_a_file_from_a_pipe_does_not_know_its_size() -> None:
    data = bytearray(wav(SAMPLES.astype("<f4"), kind=3))
    at = data.index(b"data")
    for size in (0xFFFFFFFF, 0x7FFFF000, 24):
        data[at + 4 : at + 8] = struct.pack("<I", size)
        assert len(read_wav(bytes(data), "a.wav").samples) == 6


WHOLE = wav((SAMPLES * 2**15).astype("<i2"))
REFUSED = {
    "is not a WAV file; ffmpeg -i a.wav": b"ID3\x04" + bytes(40),
    "is damaged: it has no samples": WHOLE[: WHOLE.index(b"data")],
    "a.wav has no samples": wav(np.zeros(0, "<i2")),
    "is damaged: its samples come before their format": WHOLE[:12] + b"data\x04\0\0\0" + bytes(4),
    "is damaged: its format takes 4 bytes": WHOLE[:12] + b"fmt \x04\0\0\0" + bytes(4),
    "holds mu-law; only PCM and floats can be read": wav(np.zeros(4, np.uint8), kind=7),
    "holds audio of type 4660": wav(np.zeros(4, np.uint8), kind=0x1234),
    "floats of 16 bits": wav(np.zeros(4, "<f2"), kind=3),
    "samples of 64 bits": wav(np.zeros(4, "<i8")),
    "is damaged: 0 channels": wav(np.zeros((4, 0), "<i2")),
    "bits at 0 Hz": wav(np.zeros(4, "<i2"), rate=0),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals_are_one_sentence(message: str) -> None:
    with pytest.raises(InputError) as refused:
        read_wav(REFUSED[message], "a.wav")
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_any_damage_is_refused_or_read() -> None:
    rng = np.random.default_rng(0)
    for _ in range(2000):
        data = bytearray(WHOLE[: rng.integers(0, len(WHOLE) + 1)])
        for at in rng.integers(0, max(1, len(data)), 3) if data else ():
            data[at] = rng.integers(0, 256)
        with contextlib.suppress(InputError):
            assert read_wav(bytes(data), "a.wav").samples.size
