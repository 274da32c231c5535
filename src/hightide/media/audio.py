"""Audio as a model hears it: one channel of float32 samples at 16 kHz, from a file or an array."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from hightide.errors import InputError, error_text
from hightide.formats.wav import from_integers, read_wav
from hightide.option_checks import check_int, shown

RATE = 16000  # samples per second
LOWEST, HIGHEST = 1000, 768_000  # rates that audio has
CROSSINGS = 24  # of zero, on each side of the filter: how sharp it is
BETA = 8.6  # of its Kaiser window: 90 dB less of what is beyond it


def load_audio(audio: Any, sample_rate: int | None = None, name: str = "the audio") -> np.ndarray:
    """A WAV file by path or as bytes, or an array [samples] or [samples, channels] with its sample rate."""
    if isinstance(audio, str | os.PathLike):
        try:
            audio, name = Path(audio).read_bytes(), str(audio)
        except (OSError, ValueError) as error:
            reason = error_text(error) if isinstance(error, OSError) else str(error)
            raise InputError(f"cannot read the audio {shown(os.fspath(audio))}: {reason}") from None
    if isinstance(audio, bytes | bytearray | memoryview):
        if sample_rate is not None:
            raise InputError("sample_rate is for arrays; a WAV file has its own")
        wav = read_wav(bytes(audio), name)
        samples, rate = wav.samples, wav.rate
    else:
        samples, rate = _from_array(audio), _checked_rate(sample_rate)
    if not np.isfinite(samples).all():
        raise InputError(f"{name} has samples that are not numbers")
    if not LOWEST <= rate <= HIGHEST:
        raise InputError(f"{name} has {rate} samples per second; {LOWEST} to {HIGHEST} can be heard")
    return resampled(samples.mean(axis=1, dtype=np.float64), rate).astype(np.float32)


def resampled(samples: np.ndarray, rate: int) -> np.ndarray:
    """One channel at 16 kHz: a windowed sinc, with its zeros at the lower of the two rates.

    The two rates repeat after `up` outputs and `down` inputs; outputs of one phase take inputs at equal distances, so
    each phase is one product.
    """
    if rate == RATE:
        return samples
    common = math.gcd(rate, RATE)
    up, down = RATE // common, rate // common
    band = min(1.0, up / down)  # of the input's, that is kept
    reach = math.ceil(CROSSINGS / band)  # inputs on each side
    count = -(-len(samples) * up // down)
    padded = np.pad(samples, (reach, reach + down))
    views = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach)
    out = np.zeros(count)
    taps = np.arange(1 - reach, reach + 1)
    for phase in range(min(up, count)):
        first, part = divmod(phase * down, up)
        distance = (taps - part / up) * band
        window = np.i0(BETA * np.sqrt(np.maximum(0.0, 1 - (distance / CROSSINGS) ** 2))) / np.i0(BETA)
        here = out[phase::up]
        here[:] = views[first + 1 :: down][: len(here)] @ (np.sinc(distance) * window * band)
    return out


def _from_array(audio: Any) -> np.ndarray:
    samples = np.asarray(audio)
    if samples.dtype.kind not in "fiu" or samples.ndim not in (1, 2) or not samples.size:
        what = f"an array of {samples.dtype} {list(samples.shape)}" if samples.ndim else shown(audio)
        raise InputError(f"audio must be a WAV file, or numbers [samples] or [samples, channels], not {what}")
    samples = samples.reshape(len(samples), -1)
    return from_integers(samples) if samples.dtype.kind in "iu" else samples


def _checked_rate(rate: int | None) -> int:
    if rate is None:
        raise InputError(f"an array of samples needs its sample_rate, such as {RATE}")
    check_int("sample_rate", rate, 1)
    return int(rate)
