"""An answer: a piece of it, what it took, and the whole."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Piece:
    """A part of the answer as it arrives; `text` may be empty while a character is incomplete."""

    text: str
    token: int
    logprob: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()
    sample: int = 0  # which of several answers to a request it is of


@dataclass
class Stats:
    prompt_tokens: int = 0
    reused_tokens: int = 0  # of the prompt, already in the KV cache
    new_tokens: int = 0
    calls: int = 0  # decode calls; fewer than new tokens when guesses were right
    prefill_seconds: float = 0.0  # until the first token was there
    decode_seconds: float = 0.0
    device_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def time_to_first_token(self) -> float:
        return self.prefill_seconds

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens per second, those reused not counted."""
        return (self.prompt_tokens - self.reused_tokens) / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        return (self.new_tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0

    def __str__(self) -> str:
        reused = f" ({self.reused_tokens} reused)" if self.reused_tokens else ""
        memory = f", {sum(self.device_bytes.values()) / 1e6:.0f} MB on the device" if self.device_bytes else ""
        return (
            f"{self.prompt_tokens} prompt tokens{reused}, first token after {self.time_to_first_token:.2f} s"
            f" ({self.prefill_rate:.1f} tok/s), {self.new_tokens} new tokens at {self.decode_rate:.1f} tok/s{memory}"
        )


@dataclass(frozen=True)
class Completion:
    text: str
    tokens: list[int]
    stats: Stats
    finish_reason: str  # "stop", "length" (max_tokens) or "context" (full)
    pieces: list[Piece]
    vector: np.ndarray | None = None  # of a model that gives embeddings
