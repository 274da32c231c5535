"""Random schedules of requests on one model: each answer is compared with that of the same request alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hightide.llm.batch import Batch
from hightide.llm.batcher import Batcher
from hightide.llm.decoder import RaggedDecoder
from hightide.llm.generation import Generation
from hightide.llm.model import Model
from hightide.llm.options import GenerationOptions
from hightide.llm.page_pool import PagedSequence, PagePool

WAYS: list[dict[str, Any]] = [
    {},
    {},
    {"speculate": True},
    {"speculate": True, "temperature": 0.7, "seed": 4},
    {"temperature": 0.8, "top_k": 20, "seed": 5},
    {"temperature": 1.2, "top_p": 0.9, "min_p": 0.01, "seed": 6},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.2},
    {"logprobs": 2},
    {"on_full": "shift"},
]


@dataclass(frozen=True)
class Asked:
    """A request."""

    ids: tuple[int, ...]
    options: GenerationOptions


@dataclass
class Alone:
    """What a request gives by itself."""

    tokens: list[int]
    reason: str
    logits: list[np.ndarray] = field(default_factory=list)


def requests(rng: np.random.Generator, count: int, vocab: int, context: int) -> list[Asked]:
    """Prompts of all lengths, some of which begin alike or are equal."""
    stems = [rng.integers(0, vocab, context).tolist() for _ in range(3)]
    asked: list[Asked] = []
    for _ in range(count):
        length = int(rng.integers(1, context + 1)) if rng.random() < 0.7 else int(rng.integers(1, 6))
        stem = stems[int(rng.integers(len(stems)))][: int(rng.integers(0, length + 1))]
        ids = [*stem, *rng.integers(0, vocab, length - len(stem)).tolist()]
        if asked and rng.random() < 0.15:
            ids = list(asked[int(rng.integers(len(asked)))].ids)
        most = 14 if rng.random() < 0.7 else context
        way = WAYS[int(rng.integers(len(WAYS)))]
        asked.append(Asked(tuple(ids), GenerationOptions().changed({"max_tokens": int(rng.integers(1, most)), **way})))
    return asked


class Recorder:
    """Brings back the logits of every step, and keeps them by generation."""

    def __init__(self, batcher: Batcher) -> None:
        self.logits: dict[Generation, list[np.ndarray]] = {}
        decoder = batcher.decoder
        self._launch, self._collect = decoder.launch, decoder.collect
        decoder.launch = self.launch  # type: ignore[method-assign]
        decoder.collect = self.collect  # type: ignore[method-assign]
        self.decoder = decoder

    def launch(self, batch: Batch) -> Any:
        return self._launch(replace(batch, logits=True)), batch

    def collect(self, ticket: Any) -> Any:
        launched, batch = ticket
        step = self._collect(launched)
        at = 0
        for rows in batch.rows:
            for _ in range(rows.wanted):
                self.logits.setdefault(rows.owner, []).append(step.logits[at])
                at += 1
        return step

    def stop(self) -> None:
        self.decoder.launch, self.decoder.collect = self._launch, self._collect  # type: ignore[method-assign]


def poison_pages(batcher: Batcher) -> None:
    """Every page is full of NaN when somebody takes it."""
    decoder = batcher.decoder
    if not isinstance(decoder, RaggedDecoder):
        return
    take, session, size = batcher.pool.take, decoder.session, decoder.page
    nan = [np.full((1, size, *array.shape[2:]), np.nan, array.dtype) for array in session.read_rows(0, 1)]

    def poisoned(after: int = -1) -> int:
        page = take(after)
        batcher.copy_pages()  # which comes before anything is written to the page
        session.write_rows(page * size, nan)
        return page

    batcher.pool.take = poisoned  # type: ignore[method-assign]


def run_alone(model: Model, asked: Asked) -> Alone:
    batcher = Batcher(model.decoder)
    recorder = Recorder(batcher)
    generation = model.generation(PagedSequence(batcher.pool), list(asked.ids), asked.options)
    batcher.add(generation)
    while not generation.ended:
        batcher.step()
    batcher.abandon()
    recorder.stop()
    return Alone(answer(generation), generation.finish_reason, recorder.logits.get(generation, []))


def answer(generation: Generation) -> list[int]:
    assert generation.error is None, generation.error
    return [piece.token for piece in generation.pieces if piece.token >= 0]


@dataclass
class Told:
    """What happened in a schedule."""

    answers: int = 0
    cancelled: int = 0
    forks: int = 0
    found: int = 0
    set_aside: int = 0
    worst: float = 0.0  # difference of logits, of their range


def run_schedule(
    model: Model, known: Sequence[tuple[Asked, Alone]], rng: np.random.Generator, sequences: int, exact: bool
) -> Told:
    """Random arrivals, cancels and forks. `exact`: the ids of every answer are those of the request alone."""
    batcher = Batcher(model.decoder, sequences, share_prefixes=True)
    whole = -(-model.decoder.context // model.decoder.page)  # pages that one sequence may need
    batcher.pool = PagePool(int(rng.integers(whole, min(2 * whole, model.decoder.pages) + 1)), model.decoder.page)
    poison_pages(batcher)
    recorder = Recorder(batcher)
    told = Told()
    alive: dict[Generation, Alone] = {}
    arriving = int(rng.integers(4, 14))
    while arriving or batcher.busy:
        if arriving and rng.random() < 0.6:
            arriving -= 1
            asked, alone = known[int(rng.integers(len(known)))]
            for generation in _generations(model, batcher.pool, asked, int(rng.choice([1, 1, 1, 3]))):
                told.forks += generation.leader is not None
                batcher.add(generation)
                alive[generation] = alone
        if alive and rng.random() < 0.02:
            gone = list(alive)[int(rng.integers(len(alive)))]
            told.cancelled += not gone.ended
            if not gone.ended:
                batcher.remove(gone)
                del alive[gone]
        batcher.step()
        _check_pages(batcher)
        for generation in [g for g in alive if g.ended]:
            alone = alive.pop(generation)
            told.answers += 1
            if exact:
                assert answer(generation) == alone.tokens and generation.finish_reason == alone.reason
            told.worst = max(told.worst, _compare(recorder.logits.get(generation, []), alone.logits, generation, alone))
    told.found, told.set_aside = batcher.counters.found, batcher.counters.set_aside
    assert batcher.pool.used == 0
    recorder.stop()
    return told


def _generations(model: Model, pool: PagePool, asked: Asked, samples: int) -> list[Generation]:
    made = [model.generation(PagedSequence(pool), list(asked.ids), asked.options) for _ in range(samples)]
    for follower in made[1:]:
        follower.leader = made[0]
    return made


def _check_pages(batcher: Batcher) -> None:
    """No more pages are used than the tokens need, plus one for each sequence."""
    pool = batcher.pool
    live = sum(-(-g.sequence.filled // pool.size) for g in batcher.running)
    assert pool.used <= live + len(batcher.running)
    for generation in (*batcher.running, *batcher.waiting):
        assert len(generation.sequence.pages) * pool.size >= generation.sequence.filled


def _compare(got: list[np.ndarray], want: list[np.ndarray], generation: Generation, alone: Alone) -> float:
    """The worst difference of logits, as long as the same tokens led to them; drafts may make more or fewer of them."""
    if generation.speculates or generation.options.on_full == "shift":
        return 0.0
    same = next((n for n, (a, b) in enumerate(zip(answer(generation), alone.tokens, strict=False)) if a != b), None)
    count = min(len(want), len(got)) if same is None else same + 1
    worst = 0.0
    for a, b in zip(got[:count], want[:count], strict=False):
        worst = max(worst, float(np.abs(a - b).max() / max(np.ptp(b), 1e-9)))
    return worst
