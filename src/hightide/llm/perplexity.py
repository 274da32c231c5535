"""How well a model predicts a text: what a quantisation or a kernel change costs, in one number."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.llm.batcher import odd_logits
from hightide.llm.decoder import Progress, Straight
from hightide.llm.llm import LLM
from hightide.option_checks import check_callable, check_int


@dataclass(frozen=True)
class Score:
    tokens: int  # of the text
    scored: int  # of these, predicted: not the first one, unless a BOS token comes before it
    nll: float  # mean negative log likelihood of a scored token, in nats
    window: int
    stride: int

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.nll, 700.0))  # e^710 is beyond a float

    @property
    def bits(self) -> float:
        return self.nll / math.log(2)


def perplexity(
    llm: LLM,
    text: str | Sequence[int],
    *,
    window: int | None = None,
    stride: int | None = None,
    progress: Progress | None = None,
) -> Score:
    """Scores a text, or token ids.

    A text that fits the window (by default the context) is read once, each token predicted from all before
    it. A longer one is read in windows, each `stride` tokens (by default half a window) further than the one
    before, of which only the tokens not yet scored are: every token has at least `window - stride` tokens
    before it. A BOS token, where the model wants one, begins each window. The conversation is forgotten.
    """
    ids = llm.encode(text)
    bos = [ids.pop(0)] if llm.tokenizer and llm.tokenizer.add_bos and ids[:1] == [llm.tokenizer.bos_id] else []
    for name, value in (("window", window), ("stride", stride)):
        if value is not None:
            check_int(name, value)
    check_callable("progress", progress)
    window = llm.context if window is None else window
    stride = max(1, window // 2) if stride is None else stride
    if not 2 <= window <= llm.context:
        raise InputError(f"the window must be 2 to {llm.context} tokens, the context, not {window}")
    if not 1 <= stride < window:
        raise InputError(f"the stride must be 1 to {window - 1} tokens, less than the window, not {stride}")
    if len(ids) + len(bos) < 2:
        raise InputError("the text has fewer than two tokens, so there is nothing to predict")
    bad = next((i for i in ids if not 0 <= i < llm.decoder.vocab_size), None)
    if bad is not None:
        raise InputError(f"token id {bad} is outside the vocabulary of {llm.decoder.vocab_size}")
    straight = llm.straight()
    total, scored = 0.0, 0
    for start, first, end in windows(len(ids), window - len(bos), stride, first=1 - len(bos)):
        with closing(_losses(straight, bos + ids[start:end], len(bos) + first - start)) as parts:
            for losses in parts:
                if np.isnan(losses).any():
                    parts.close()
                    raise odd_logits(straight.first_odd((bos + ids[start:end])[:-1]))
                total += float(losses.sum())
                scored += len(losses)
                if progress:
                    progress(scored, len(ids) + len(bos) - 1)
    return Score(len(ids), scored, total / scored, window, stride)


def windows(count: int, room: int, stride: int, first: int) -> Iterator[tuple[int, int, int]]:
    """(start, first scored, end) of each window over `count` tokens; `first` is the first that can be scored."""
    start, end = 0, min(room, count)
    yield start, first, end
    while end < count:
        start, first = end - max(room - stride, 1), end
        end = min(start + room, count)
        yield start, first, end


def log_losses(logits: np.ndarray, targets: Sequence[int]) -> np.ndarray:
    """-log softmax(logits)[target] of each row, in float64; NaN where the logits are not numbers."""
    rows = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):
        rows -= rows.max(axis=-1, keepdims=True)
        chosen = rows[np.arange(len(rows)), list(targets)]
        return np.log(np.exp(rows).sum(axis=-1)) - chosen


def _losses(straight: Straight, ids: Sequence[int], first: int) -> Generator[np.ndarray, None, None]:
    """Losses of the tokens from `first` on, some at a time; the host works on one call while the next one runs."""
    unscored = first - 1  # tokens whose predictions nobody asked for
    most = straight.decoder.max_rows
    for at in range(0, unscored, most):
        straight.collect(straight.launch(ids[at : min(at + most, unscored)], at, keep=0))
    rows = min(straight.decoder.max_keep, most)
    running: deque[tuple[Any, Sequence[int]]] = deque()
    try:
        for at in range(unscored, len(ids) - 1, rows):
            end = min(at + rows, len(ids) - 1)
            running.append((straight.launch(ids[at:end], at, keep=end - at, logits=True), ids[at + 1 : end + 1]))
            if len(running) == 2:
                yield _collect(straight, *running.popleft())
        while running:
            yield _collect(straight, *running.popleft())
    finally:
        for ticket, _ in running:
            straight.collect(ticket)


def _collect(straight: Straight, ticket: Any, targets: Sequence[int]) -> np.ndarray:
    logits = straight.collect(ticket).logits
    assert logits is not None
    return log_losses(logits, targets)
