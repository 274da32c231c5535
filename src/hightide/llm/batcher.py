"""The step loop: which sequences have rows in the next step, and what becomes of what the step gives.

No thread of its own: whoever calls `step` does the work. Decodes come first, then prompts in chunks, first come first
served, up to the rows that a step has. Step n + 1 is launched before step n is collected.
"""

from __future__ import annotations

import warnings
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import DeviceLostError, HightideError
from hightide.graph.graph import OpCall
from hightide.llm.batch import Batch, Rows
from hightide.llm.decoder import Decoder, Straight
from hightide.llm.drafting import Drafter
from hightide.llm.generation import Generation, OddLogits
from hightide.llm.page_pool import PagedSequence, PagePool
from hightide.llm.prefix_store import PrefixStore

MAX_LOSSES = 3  # of the device in a row, without a new token: then it is the model's or the driver's fault
SAVED_AT_ONCE = 8  # pages: a request that comes meanwhile waits for them


@dataclass
class StepCounters:
    """What was done so far."""

    steps: int = 0
    rows: int = 0
    new_tokens: int = 0
    found: int = 0  # tokens whose keys and values others had made
    from_disk: int = 0  # of these, in another process
    set_aside: int = 0  # sequences that gave their pages to others, and were read again


class Batcher:
    """Runs generations together on one decoder. Not for several threads at once."""

    def __init__(
        self,
        decoder: Decoder,
        max_sequences: int = 1,
        share_prefixes: bool = False,
        drafter: Drafter | None = None,
        store: PrefixStore | None = None,
    ) -> None:
        """`share_prefixes`: sequences find the pages of others, and give theirs back when they end.

        With a `store` they find those of other processes too.
        """
        self.decoder, self.max_sequences, self.share_prefixes = decoder, max_sequences, share_prefixes
        self.drafter, self.store = drafter, store
        self.pool = PagePool(decoder.pages, decoder.page)
        self.running: list[Generation] = []  # the oldest first
        self.waiting: deque[Generation] = deque()
        self.counters = StepCounters()
        self._under_way: deque[tuple[Any, Batch]] = deque()
        self._fed: dict[Generation, int] = {}  # whose ids the last step launched chooses, and as which
        self._short = False  # of pages: launch nothing until what runs has ended
        self._before: dict[PagedSequence, int] | None = None  # `filled`, while a step is being put together
        self._torn = False
        self._losses, self._made_at_loss = 0, -1

    def add(self, generation: Generation) -> None:
        self.pool.sequences.add(generation.sequence)
        generation.sequence.restart(b"" if generation.strengths is None else generation.strengths.tobytes())
        self.counters.new_tokens += generation.stats.new_tokens  # those that needed no step
        if not generation.ended:
            self.waiting.append(generation)

    def remove(self, generation: Generation, reason: str = "closed") -> None:
        """End an answer at once. What it has under way is computed, and nobody hears of it."""
        generation.finish(reason)
        if generation in self.waiting:
            self.waiting.remove(generation)
        self._retire(generation)

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting or self._under_way)

    @property
    def unsaved(self) -> bool:
        """Whether there are pages that a step with nothing else to do would save."""
        return self.store is not None and bool(self.store.unsaved(self.pool.names()))

    def step(self) -> list[Generation]:
        """Launch a step and collect one; the generations that heard of something."""
        try:
            self._mend()
            if not self.busy:
                self._save_pages()
                return []
            batch = self._schedule()
            if batch is not None:
                self._launch(batch)
            if len(self._under_way) == 2 or (batch is None and self._under_way):
                return self._collect()
            return []
        except DeviceLostError as error:
            return self._recover(error)
        except BaseException:  # a signal's handler may raise at any point
            self._torn = True
            raise

    def abandon(self) -> None:
        """Forget the steps that are under way, and end all answers."""
        self._torn = True
        self._mend()

    # ---- putting a step together

    def _schedule(self) -> Batch | None:
        if self._short and self._under_way:
            return None
        self._short = False
        self._before = {g.sequence: g.sequence.filled for g in (*self.running, *self.waiting)}
        self._draft()
        chosen: list[Rows] = []
        room = [self.decoder.max_rows, self.decoder.max_wanted, self.decoder.max_media]
        decoding = [g for g in self.running if g.reading <= 1]
        for generation in [*decoding, *(g for g in self.running if g not in decoding)]:
            if generation in self.running:  # else it was set aside for an older one
                self._place(generation, chosen, room)
        self._admit(chosen, room)
        return Batch(chosen, any(rows.owner.host_chooses and rows.wanted for rows in chosen)) if chosen else None

    def _draft(self) -> None:
        """Have those who check drafts guess the tokens that come next."""
        checking = [generation for generation in self.running if generation.checks_draft]
        if self.drafter is None:
            for generation in checking:
                generation.look_up_draft()
        elif checking:
            room = min(self.decoder.max_wanted, self.decoder.max_rows) - len(self.running)
            self.drafter.propose(checking, max(0, room))

    def _place(self, generation: Generation, chosen: list[Rows], room: list[int]) -> None:
        sequence = generation.sequence
        if generation.reading > 1 and self.share_prefixes:
            sequence.name_pages(generation.tokens)  # a draft that was right may have filled one
            self.counters.found += sequence.share_prefix(generation.tokens)
        count = min(generation.wants(), room[0], generation.within(room[2]))
        fed = self._fed.get(generation)
        if not count or self._short or (not generation.reading and (fed is None or not room[1])):
            return
        while sequence.needs(count) > self.pool.free:
            if self._under_way:
                self._short = True
                return
            if not self._set_aside(generation, chosen):
                return
        rows = generation.rows(count, room[1], fed)
        if not rows.tokens:
            return
        sequence.reserve(len(rows.tokens))
        sequence.filled += len(rows.tokens)
        if self.share_prefixes:
            sequence.name_pages(generation.tokens)
        chosen.append(rows)
        room[0] -= len(rows.tokens)
        room[1] -= rows.wanted
        if generation.media and self.decoder.media is not None:
            room[2] -= len(self.decoder.media.of(rows.tokens))

    def _set_aside(self, generation: Generation, chosen: list[Rows]) -> bool:
        """Take the pages of the youngest; False if that is the one who needs them. They are read again later."""
        placed = [rows.owner for rows in chosen]
        younger = self.running[self.running.index(generation) + 1 :]
        victim = next((g for g in reversed(younger) if g not in placed and g.sequence.pages), generation)
        if victim is generation and len(self.running) == 1:
            held = self.pool.count * self.pool.size
            victim.fail(HightideError(f"there is no room for more than {held} tokens in all sequences"))
            self._retire(victim)
            return False
        victim.sequence.truncate(0)
        self.running.remove(victim)
        self.waiting.appendleft(victim)
        self.counters.set_aside += 1
        return victim is not generation

    def _admit(self, chosen: list[Rows], room: list[int]) -> None:
        for generation in list(self.waiting):
            if len(self.running) >= self.max_sequences or not room[0] or self._short:
                return
            leader = generation.leader
            if leader is not None and not leader.ended and not leader.answering:
                continue  # the prompt is being read
            if leader is not None and self._can_fork(leader, generation):
                generation.sequence = leader.sequence.fork()
                generation.sequence.truncate(generation.prompt - 1)
            elif self.share_prefixes:
                generation.sequence.share_prefix(generation.tokens)
            spare = self.pool.free - len(self.running)
            if self.running and generation.sequence.needs(generation.reading) > spare:
                generation.sequence.truncate(0)  # who waits holds nothing
                return
            if self.share_prefixes and self.store is not None:
                self._load_pages(generation, self.store)
            self.counters.found += generation.sequence.filled
            self.waiting.remove(generation)
            self.running.append(generation)
            generation.begin(generation.sequence.filled)
            self._place(generation, chosen, room)

    def _can_fork(self, leader: Generation, follower: Generation) -> bool:
        """Whether the leader has the keys and values of the prompt, in pages that can be copied."""
        known, held = follower.prompt - 1, leader.sequence
        if not known or leader.ended or held.filled < known or leader.tokens[:known] != follower.tokens[:known]:
            return False
        at, rows = divmod(known, self.pool.size)
        return not rows or self.pool.can_copy(held.pages[at], rows)

    # ---- pages on disk

    def _load_pages(self, generation: Generation, store: PrefixStore) -> None:
        """Bring the next pages of its tokens into the pool, as far as they are on disk and there is room."""
        sequence, pool = generation.sequence, self.pool
        names = list(sequence.next_names(generation.tokens))[: pool.free]
        found = store.read(names)
        if not found:
            return
        self.copy_pages()  # they may be from pages that are taken now
        pages: list[int] = []
        for _ in found:
            pages.append(pool.take(pages[-1] if pages else sequence.pages[-1] if sequence.pages else -1))
        self.decoder.write_pages(pages, [np.concatenate(parts, axis=1) for parts in zip(*found, strict=True)])
        for page, name in zip(pages, names, strict=False):
            pool.give_name(page, name)
        self.counters.from_disk += sequence.share_prefix(generation.tokens)
        for page in pages:
            pool.release(page)

    def _save_pages(self) -> None:
        """Save some of the pages that are not on disk."""
        if self.store is None:
            return
        size, named = self.pool.size, self.store.unsaved(self.pool.names())[-SAVED_AT_ONCE:]
        if named:
            arrays = self.decoder.read_pages([page for _, page in named], len(named) * size)
            pages = [[array[:, n * size : (n + 1) * size] for array in arrays] for n in range(len(named))]
            # The last ones first: they are older then, and deleted before those that they need.
            self.store.save([(name, page) for (name, _), page in zip(named, pages, strict=True)][::-1])
        self.store.keep_known(name for name, _ in self.pool.names())

    # ---- running it

    def _launch(self, batch: Batch) -> None:
        self.copy_pages()
        self._under_way.append((self.decoder.launch(batch), batch))
        self._before = None
        self.pool.unwritten.clear()
        self._fed, wanted = {}, 0
        for rows in batch.rows:
            rows.owner.under_way += 1
            wanted += rows.wanted
            if rows.wanted:
                self._fed[rows.owner] = wanted - 1
        self.counters.steps += 1
        self.counters.rows += batch.count

    def copy_pages(self) -> None:
        """Copy what has to be before the next step."""
        if self.pool.copies:
            self.decoder.copy_pages(self.pool.copies)
            self.pool.copies = []

    def _collect(self) -> list[Generation]:
        ticket, batch = self._under_way.popleft()
        step = self.decoder.collect(ticket)
        at, odd = 0, []
        for rows in batch.rows:
            generation: Generation = rows.owner
            generation.under_way -= 1
            made, wanted = len(generation.tokens), slice(at, at + rows.wanted)
            at += rows.wanted
            try:
                generation.take(rows, step.ids[wanted].tolist(), None if step.logits is None else step.logits[wanted])
            except OddLogits:
                odd.append(generation)
            except Exception as error:  # what it calls, or its options, are wrong: the others go on
                generation.fail(error)
            self.counters.new_tokens += max(0, len(generation.tokens) - made)
            self._retire(generation)
        for generation in odd:
            self._explain(generation)
        return [rows.owner for rows in batch.rows]

    def _retire(self, generation: Generation) -> None:
        """Let go of one that has ended."""
        if generation.ended and generation in self.running:
            self.running.remove(generation)
            if self.drafter is not None:
                self.drafter.drop(generation)
            if self.share_prefixes:
                generation.sequence.name_pages(generation.tokens)
                generation.sequence.truncate(0)

    # ---- when something goes wrong

    def _mend(self) -> None:
        """After a step that was torn: nothing is under way, and every page is counted anew."""
        if not self._torn:
            return
        for sequence, filled in (self._before or {}).items():
            sequence.filled = min(sequence.filled, filled)
        self._before = None
        self._under_way.clear()
        self._fed = {}
        with suppress(DeviceLostError):
            self.decoder.abandon()
        for generation in (*self.running, *self.waiting):
            generation.under_way = 0
            generation.sequence.filled = min(generation.sequence.filled, len(generation.tokens) - 1)
            if not generation.ended:
                generation.fail(HightideError("the answer was interrupted"))
        self.running.clear()
        self.waiting.clear()
        self.pool.recount()
        self._torn = False

    def _recover(self, error: DeviceLostError) -> list[Generation]:
        """Go on with a new device: every sequence is read again."""
        made = self.counters.new_tokens
        self._losses = self._losses + 1 if made == self._made_at_loss else 1
        self._made_at_loss = made
        self.forget()
        if self._losses > MAX_LOSSES:
            self._losses = 0
            failed = [*self.running, *self.waiting]
            for generation in failed:
                generation.fail(error)
            self.running.clear()
            self.waiting.clear()
            return failed
        if self.running or self.waiting:
            warnings.warn(f"{error}; the answer goes on with a new one", stacklevel=4)
        try:
            self.decoder.recover()
            if self.drafter is not None:
                self.drafter.recover()
        except DeviceLostError as again:
            return self._recover(again)
        return []

    def forget(self) -> None:
        """All pages are empty, and nothing is under way."""
        self._under_way.clear()
        self._fed, self._before, self._short = {}, None, False
        for generation in self.running:
            generation.under_way = 0
        self.pool.clear()
        if self.drafter is not None:
            self.drafter.forget()

    def _explain(self, generation: Generation) -> None:
        """Fail with the op that gave NaN first, if it can be told. The sequence is forgotten: it may be no better."""
        straight = Straight(self.decoder, list(generation.sequence.pages))
        read = generation.tokens[: generation.sequence.filled]
        generation.fail(odd_logits(None))
        while self._under_way:
            self._collect()
        generation.fail(odd_logits(straight.first_odd(read)))
        generation.sequence.truncate(0)
        self._retire(generation)


def odd_logits(call: OpCall | None) -> HightideError:
    """The error for logits that are not numbers; `call` is the first op that gave such."""
    first = f": {call} is the first to give NaN or infinity" if call else ""
    where = "`hightide verify` tells whether the adapter or the model is at fault"
    return HightideError(f"the model's logits are not numbers{first}; {where}")
