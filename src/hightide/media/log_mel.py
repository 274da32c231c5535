"""Log-mel spectrograms as Whisper was trained on: windows of 25 ms every 10 ms, bands of Slaney's mel scale."""

from __future__ import annotations

from functools import cache

import numpy as np

from hightide.media.audio import RATE

WINDOW, HOP = 400, 160  # samples
FLOOR = 1e-10  # of the power in a band
RANGE = 8.0  # powers of ten below the loudest that are kept


def log_mel(samples: np.ndarray, mels: int, frames: int) -> np.ndarray:
    """float32 [mels, frames]; samples at 16 kHz, filled up with silence."""
    padded = np.zeros(frames * HOP, np.float32)
    padded[: len(samples)] = samples
    padded = np.pad(padded, WINDOW // 2, mode="reflect")
    views = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:frames]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    power = np.abs(np.fft.rfft(views * hann)) ** 2  # [frames, WINDOW / 2 + 1]
    logs = np.log10(np.maximum(mel_filters(mels) @ power.T, FLOOR))
    return ((np.maximum(logs, logs.max() - RANGE) + 4) / 4).astype(np.float32)


@cache
def mel_filters(mels: int) -> np.ndarray:
    """[mels, WINDOW / 2 + 1]: triangles of equal area, at equal distances in mels from 0 to half the sample rate."""
    edges = _hertz(np.linspace(0, _mels(RATE / 2), mels + 2))
    bins = np.fft.rfftfreq(WINDOW, 1 / RATE)
    widths = np.diff(edges)
    slopes = edges[:, None] - bins
    rising, falling = -slopes[:-2] / widths[:-1, None], slopes[2:] / widths[1:, None]
    filters = np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    filters.setflags(write=False)  # everybody gets the same ones
    return filters


# Slaney's scale: 15 mels to 1000 Hz, then 27 mels for each factor of 6.4.
LINEAR, LOG_START, LOG_STEP = 200 / 3, 15.0, np.log(6.4) / 27


def _mels(hertz: float) -> float:
    return float(LOG_START + np.log(hertz / (LINEAR * LOG_START)) / LOG_STEP)


def _hertz(mels: np.ndarray) -> np.ndarray:
    return np.where(mels < LOG_START, LINEAR * mels, LINEAR * LOG_START * np.exp(LOG_STEP * (mels - LOG_START)))
