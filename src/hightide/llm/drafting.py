"""Drafts by a smaller model: it guesses some tokens of every sequence, and the model checks them in one step."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from hightide.llm.batch import Batch, Rows
from hightide.llm.decoder import Decoder
from hightide.llm.generation import Generation
from hightide.llm.page_pool import PagedSequence, PagePool

MAX_DRAFT = 4  # tokens guessed at once


class Drafter:
    """Runs the smaller model for the sequences of a batcher, all of them in the same steps."""

    def __init__(self, decoder: Decoder, most: int = MAX_DRAFT) -> None:
        self.decoder, self.most = decoder, most
        self.pool = PagePool(decoder.pages, decoder.page)
        self._drafted: dict[Generation, _Drafted] = {}

    def propose(self, generations: Sequence[Generation], room: int) -> None:
        """Give each a draft of the tokens that follow its own, `room` tokens in all; none where there is no room."""
        chosen: list[_Drafted] = []
        most = min(self.most, room // max(1, len(generations)))
        for generation in generations[: self.decoder.max_rows]:
            drafted = self._find(generation)
            drafted.keep(generation.tokens)
            count = len(generation.tokens) - drafted.sequence.filled + most - 1
            fits = len(generation.tokens) + most <= min(self.decoder.context, generation.decoder.context)
            if most and fits and drafted.sequence.needs(count) <= self.pool.free:
                drafted.sequence.reserve(count)
                chosen.append(drafted)
        if chosen:
            self._read(chosen)
            self._guess(chosen, most)

    def drop(self, generation: Generation) -> None:
        """Its answer has ended."""
        drafted = self._drafted.pop(generation, None)
        if drafted is not None:
            drafted.sequence.truncate(0)

    def forget(self) -> None:
        """All pages are empty."""
        self._drafted.clear()
        self.pool.clear()

    def recover(self) -> None:
        self.decoder.recover()

    def _find(self, generation: Generation) -> _Drafted:
        if generation not in self._drafted:
            sequence = PagedSequence(self.pool)
            self.pool.sequences.add(sequence)
            self._drafted[generation] = _Drafted(generation, sequence)
        return self._drafted[generation]

    def _read(self, chosen: Sequence[_Drafted]) -> None:
        """All tokens but the last of each."""
        unread = [drafted for drafted in chosen if drafted.unread > 1]
        while unread:
            rows, room = [], self.decoder.max_rows
            for drafted in unread:
                count = min(room, drafted.unread - 1)
                if count:
                    first = drafted.sequence.filled
                    tokens = drafted.generation.tokens[first : first + count]
                    rows.append(Rows(tokens, first, drafted.sequence.pages, 0, ()))
                    drafted.sequence.filled += count
                    room -= count
            self.decoder.collect(self.decoder.launch(Batch(rows)))
            unread = [drafted for drafted in unread if drafted.unread > 1]

    def _guess(self, chosen: Sequence[_Drafted], most: int) -> None:
        """The last token of each, then what was chosen for it, and so on; steps are launched ahead."""
        under_way: deque[Any] = deque()
        guessed: list[list[int]] = [[] for _ in chosen]
        for n in range(most):
            rows = [
                Rows([drafted.generation.tokens[-1] if n == 0 else -1 - at], drafted.sequence.filled + n, drafted.pages)
                for at, drafted in enumerate(chosen)
            ]
            under_way.append(self.decoder.launch(Batch(rows)))
            if n:
                self._take(under_way, guessed)
        self._take(under_way, guessed)
        for drafted, tokens in zip(chosen, guessed, strict=True):
            good = next((n for n, token in enumerate(tokens) if token < 0), len(tokens))  # -1: no number
            drafted.generation.draft = tokens[:good]
            drafted.tokens = [*drafted.generation.tokens, *tokens[: most - 1]]
            drafted.sequence.filled += most

    def _take(self, under_way: deque[Any], guessed: list[list[int]]) -> None:
        for tokens, id in zip(guessed, self.decoder.collect(under_way.popleft()).ids.tolist(), strict=True):
            tokens.append(id)


class _Drafted:
    """A sequence of the smaller model, beside that of a generation."""

    def __init__(self, generation: Generation, sequence: PagedSequence) -> None:
        self.generation, self.sequence = generation, sequence
        self.tokens: list[int] = []  # those in its pages

    @property
    def pages(self) -> list[int]:
        return self.sequence.pages

    @property
    def unread(self) -> int:
        return len(self.generation.tokens) - self.sequence.filled

    def keep(self, tokens: Sequence[int]) -> None:
        """Keep what is right of it: some guesses were wrong, or the context was shifted."""
        same, held = 0, min(len(self.tokens), len(tokens) - 1, self.sequence.filled)
        while same < held and self.tokens[same] == tokens[same]:
            same += 1
        self.sequence.truncate(same)
