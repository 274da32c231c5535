"""How the next token is chosen: the caller's settings, and what needs the logits on the host."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hightide.errors import InputError
from hightide.ops.sampling.sampling import allowed, sample
from hightide.option_checks import check_int, check_number, shown


@dataclass(frozen=True)
class Sampling:
    """Temperature first, then top-k, top-p and min-p; penalties and biases before all of them."""

    temperature: float = 0.0  # 0: always the likeliest token
    top_k: int = 0  # 0: no limit
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int = 0  # how many alternatives to report

    def __post_init__(self) -> None:
        for name in ("top_k", "logprobs"):
            check_int(name, getattr(self, name))
        for name, value in vars(self).items():
            if name != "logit_bias":
                check_number(name, value)
        limits = {
            "temperature": self.temperature >= 0,
            "top_k": self.top_k >= 0,
            "top_p": 0 < self.top_p <= 1,
            "min_p": 0 <= self.min_p <= 1,
            "repetition_penalty": self.repetition_penalty > 0,
            "logprobs": self.logprobs >= 0,
        }
        for name, fine in limits.items():
            if not fine:
                raise InputError(f"{name} cannot be {getattr(self, name)}")
        self._check_bias()

    def _check_bias(self) -> None:
        if not isinstance(self.logit_bias, Mapping):
            raise InputError(f"logit_bias must be a dict of token ids to numbers, not {shown(self.logit_bias)}")
        for token, bias in self.logit_bias.items():
            check_int("a token id in logit_bias", token, 0)
            if bias != -math.inf:  # which rules the token out
                check_number(f"the logit_bias of token {token}", bias)

    def check_tokens(self, vocab_size: int) -> None:
        bad = next((token for token in self.logit_bias if not 0 <= token < vocab_size), None)
        if bad is not None:
            raise InputError(f"logit_bias names token {bad}, but the vocabulary ends at {vocab_size - 1}")

    @property
    def on_device(self) -> bool:
        """Whether the device can choose: nothing depends on earlier tokens, nothing else is to be reported."""
        return (
            self.repetition_penalty == 1
            and not self.presence_penalty
            and not self.frequency_penalty
            and not self.logit_bias
            and not self.logprobs
        )

    def settings(self, draw: float) -> np.ndarray:
        """As `hightide.sample` takes them."""
        return np.array([self.temperature, self.top_k, self.top_p, self.min_p, draw], np.float32)

    def choose(
        self, logits: np.ndarray, before: Sequence[int], draw: float, mask: np.ndarray | None = None
    ) -> ChosenToken:
        """The next token on the host; `before` are the tokens that penalties count, `mask` has those that it may be."""
        adjusted = self._adjusted(logits.astype(np.float64), before)
        if mask is not None:
            adjusted[~allowed(mask, len(adjusted))] = -np.inf
        token = sample(adjusted, self.settings(draw))
        if token < 0:
            others = " and the penalties" if mask is None else ", the penalties and the grammar"
            raise InputError(f"logit_bias{others} leave no token to choose")
        if not self.logprobs:
            return ChosenToken(token)
        logprobs = adjusted - adjusted.max()
        logprobs -= np.log(np.exp(logprobs).sum())
        likeliest = np.argsort(-logprobs, kind="stable")[: self.logprobs]
        likeliest = likeliest[logprobs[likeliest] > -np.inf]
        return ChosenToken(token, float(logprobs[token]), tuple((int(i), float(logprobs[i])) for i in likeliest))

    def certain(self, token: int) -> ChosenToken:
        """A token that is the only one there can be."""
        return ChosenToken(token, 0.0, ((token, 0.0),)) if self.logprobs else ChosenToken(token)

    def _adjusted(self, logits: np.ndarray, before: Sequence[int]) -> np.ndarray:
        for token, bias in self.logit_bias.items():
            logits[token] += bias
        counts = Counter(token for token in before if token < len(logits))  # ids above are rows of images
        if counts:
            seen = np.fromiter(counts.keys(), np.int64)
            times = np.fromiter(counts.values(), np.float64)
            scaled = np.where(
                logits[seen] > 0, logits[seen] / self.repetition_penalty, logits[seen] * self.repetition_penalty
            )
            logits[seen] = scaled - self.presence_penalty - self.frequency_penalty * times
        return logits


@dataclass(frozen=True)
class ChosenToken:
    """The next token, and where asked for its log probability and those of the likeliest tokens."""

    token: int
    logprob: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()


def find_draft(tokens: Sequence[int], most: int, longest: int = 3) -> list[int]:
    """Prompt lookup: what followed the last occurrence of the newest n-gram, again and again up to `most` tokens."""
    for n in range(min(longest, len(tokens) - 1), 0, -1):
        tail = list(tokens[-n:])
        for start in range(len(tokens) - n - 1, -1, -1):
            if list(tokens[start : start + n]) == tail:
                followed = list(tokens[start + n : start + n + most])  # shorter where the text repeats itself
                return [followed[i % len(followed)] for i in range(most)] if followed else []
    return []
