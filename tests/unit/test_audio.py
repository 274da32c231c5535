"""From files and arrays to samples at 16 kHz and spectrograms, without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spoken import RATE, as_int16, clip, wav

from hightide import InputError
from hightide.media.audio import load_audio, resampled
from hightide.media.log_mel import log_mel, mel_filters
from hightide.speech.transcriber import endless, windows

EXPECTED = Path(__file__).parents[1] / "speech" / "expected.npz"


@pytest.mark.parametrize("mels", [80, 128])
def test_spectrograms_are_those_of_executorch(mels: int) -> None:
    with np.load(EXPECTED) as expected:
        want = expected[f"mel{mels}"]  # every seventh frame of 30 s, most of it silence
    got = log_mel(clip(0, 5.3), mels, 3000)
    assert got.shape == (mels, 3000) and got.dtype == np.float32
    assert np.abs(got[:, ::7] - want).max() < 1e-4


def test_filters_are_triangles_of_equal_area() -> None:
    filters = mel_filters(80)
    assert filters.shape == (80, 201) and (filters >= 0).all() and not filters.flags.writeable
    peaks = filters.argmax(axis=1)
    assert (np.diff(peaks) >= 0).all() and peaks[-1] > 180


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 24000, 32000, 44100, 48000, 96000, 44101])
def test_a_tone_stays_a_tone(rate: int) -> None:
    seconds, pitch = 0.5, 1234.5
    tone = np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)
    got = resampled(tone, rate)
    want = np.sin(2 * np.pi * pitch * np.arange(len(got)) / RATE)
    assert abs(len(got) - seconds * RATE) <= 1
    inside = slice(200, -200)  # the ends see silence beyond them
    assert np.abs(got - want)[inside].max() < 1e-3


@pytest.mark.parametrize("rate", [44100, 48000])
def test_what_16_khz_cannot_hold_is_gone(rate: int) -> None:
    tone = np.sin(2 * np.pi * 9500 * np.arange(rate) / rate)
    assert np.abs(resampled(tone, rate))[200:-200].max() < 1e-3


def test_channels_are_mixed() -> None:
    left, right = clip(0), clip(1)
    both = load_audio(np.stack([left, right], axis=1), RATE)
    np.testing.assert_allclose(both, (left + right) / 2, atol=1e-7)


def test_files_bytes_and_arrays_are_the_same(tmp_path: Path) -> None:
    samples = as_int16(clip(2))
    path = tmp_path / "clip.wav"
    path.write_bytes(wav(samples))
    for audio, rate in ((path, None), (str(path), None), (path.read_bytes(), None), (samples, RATE)):
        np.testing.assert_array_equal(load_audio(audio, rate), (samples / 2**15).astype(np.float32))


REFUSED: list[tuple[Any, int | None, str]] = [
    ("nothing.wav", None, "cannot read the audio 'nothing.wav': nothing.wav: No such file"),
    (np.zeros(9), None, "needs its sample_rate"),
    (np.zeros(9), 0, "sample_rate must be at least 1"),
    (np.zeros(9), "16k", "sample_rate must be an integer"),
    (np.zeros(9), 20, "the audio has 20 samples per second; 1000 to 768000 can be heard"),
    (np.zeros(0), RATE, "not an array of float64 [0]"),
    (np.zeros((2, 2, 2)), RATE, "not an array of float64 [2, 2, 2]"),
    (["a"], RATE, "audio must be a WAV file, or numbers"),
    (None, RATE, "not None"),
    (np.array([0.0, np.nan]), RATE, "samples that are not numbers"),
    (wav(as_int16(clip(0))), RATE, "sample_rate is for arrays"),
]


@pytest.mark.parametrize(("audio", "rate", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_refusals_say_what_is_wrong(audio: Any, rate: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        load_audio(audio, rate)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_long_audio_is_cut_where_it_is_quiet() -> None:
    samples = np.full(70_000, 0.3, np.float32)
    for quiet in (28_000, 57_000):
        samples[quiet : quiet + 4000] = 0
    cuts = list(windows(samples, 32_000))
    assert [start for start, _ in cuts] == [0, *(end for _, end in cuts[:-1])] and cuts[-1][1] == len(samples)
    assert all(end - start <= 32_000 for start, end in cuts)
    assert 28_000 <= cuts[0][1] <= 32_000 and 57_000 <= cuts[1][1] <= 61_000 and len(cuts) == 3


def test_endless_repetition_is_found() -> None:
    assert endless([]) == 0 and endless([1, 2, 3, 1, 2, 3]) == 0
    assert endless([5] * 23) == 0 and endless([1, *[5] * 24]) == 23
    assert endless([9, *[1, 2, 3, 4, 5, 6] * 4]) == 18 and endless([9, *[1, 2, 3, 4, 5, 6] * 3]) == 0
    assert endless([*[1] * 10, *range(40)]) == 0
