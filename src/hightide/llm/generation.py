"""One answer being made: which rows it brings to a step, and what it makes of what the step gives."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Sequence
from itertools import takewhile

import numpy as np

from hightide.errors import HightideError, InputError
from hightide.llm.answer import Piece, Stats
from hightide.llm.batch import GREEDY, Rows
from hightide.llm.constraint import Constraint, draft_masks, next_mask, token_bits
from hightide.llm.decoder import Decoder
from hightide.llm.media import Medium
from hightide.llm.options import GenerationOptions
from hightide.llm.page_pool import PagedSequence
from hightide.llm.text_stream import TextStream
from hightide.llm.token_sampling import ChosenToken, find_draft
from hightide.ops.sampling.sampling import NO_NUMBERS, NONE_ALLOWED

MAX_DRAFT = 7  # tokens guessed at once by prompt lookup


class OddLogits(HightideError):
    """Logits that are not numbers."""


class Generation:
    """The state of one answer. A sequence is its tokens: with them, it can be read again at any time.

    `tokens` are the prompt and what was made so far. The sequence has the keys and values of the first `filled` of them
    in its pages; where `filled` is all of them, the next one is being chosen on the device.
    """

    def __init__(
        self,
        decoder: Decoder,
        sequence: PagedSequence,
        ids: Sequence[int],
        options: GenerationOptions,
        ends: Collection[int],
        text: TextStream | None,
        constraint: Constraint | None = None,
        made: Sequence[int] = (),
        strengths: np.ndarray | None = None,
    ) -> None:
        """`ends` are the tokens that end the answer; `text` spells it, if there is a tokenizer.

        `made` are the first tokens of the answer, which somebody has already; HightideError if the constraint does not
        allow them. `strengths`: how much of each adapter it has.
        """
        self.decoder, self.sequence, self.strengths = decoder, sequence, strengths
        self.options, self.sampling = options, options.sampling
        self.ends, self.text = frozenset(ends), text
        self.media: Sequence[Medium] = ()  # of the prompt, kept as long as it may have to be read again
        self.constraint, self._end_bits = constraint, token_bits(ends, decoder.vocab_size)
        self.tokens = list(ids)
        self.prompt = len(ids)  # of the tokens
        self.under_way = 0  # steps that it has rows in
        self.draft: list[int] = []  # tokens that are guessed to come next, to be checked in the next step
        self.leader: Generation | None = None  # another answer to the same prompt, which reads it
        self.pieces: deque[Piece] = deque()
        self.finish_reason = ""  # "stop", "length", "context", "closed" or "error" once it has ended
        self.error: BaseException | None = None
        self.vector: np.ndarray | None = None  # see `text_vector.py`
        self.stats = Stats(prompt_tokens=len(ids))
        self.limit = decoder.context if options.max_tokens is None else options.max_tokens
        self.speculates = options.speculate and decoder.max_keep > 1 and self.sampling.on_device
        self._first_made = len(ids)  # where in the tokens the answer begins, or would if all were there
        self._rng = np.random.default_rng(options.seed)
        self._draws: list[float] = []  # one per token of the answer
        self._started = self._first = 0.0
        if self.limit == 0:
            self.finish("length")
        self._go_on(made)

    @property
    def ended(self) -> bool:
        return bool(self.finish_reason)

    @property
    def reading(self) -> int:
        """Tokens that are known and have no keys and values yet; one of them if it decodes."""
        return len(self.tokens) - self.sequence.filled

    @property
    def answer_length(self) -> int:
        """In tokens, so far."""
        return len(self.tokens) - self._first_made

    @property
    def answering(self) -> bool:
        """Whether the prompt was read."""
        return bool(self._first)

    @property
    def host_chooses(self) -> bool:
        return not self.sampling.on_device

    def begin(self, shared: int) -> None:
        """The keys and values of the first `shared` tokens are there."""
        if not self._started:  # else the context was shifted
            self._started = time.perf_counter()
            self.stats.reused_tokens = min(shared, self.prompt)

    # ---- rows of a step

    def wants(self) -> int:
        """How many rows it could bring to the next step."""
        if self.ended:
            return 0
        if self.reading > 1 or not self.under_way:
            return self.reading + len(self.draft)
        return int(self._can_run_ahead())

    def within(self, media: int) -> int:
        """How many of the tokens to be read may be in a step with room for so many images and audio."""
        known, most = self.decoder.media, self.decoder.max_rows
        if known is None or not self.media:
            return most
        unread = self.tokens[self.sequence.filled : self.sequence.filled + most]
        leading = known.leading(unread, media)
        return leading if leading < len(unread) else most

    def _can_run_ahead(self) -> bool:
        """Whether its next token is being chosen on the device, and more are wanted after it."""
        host_decides = self.host_chooses or self.speculates or self.constraint is not None
        room = self.sequence.filled < self.decoder.context
        return not self.reading and not host_decides and room and self.answer_length + 1 < self.limit

    @property
    def checks_draft(self) -> bool:
        """Whether it can check a draft in the next step."""
        return self.speculates and self.reading == 1 and not self.under_way and self.answering

    def look_up_draft(self) -> None:
        """What followed the newest tokens when they came before."""
        most = min(MAX_DRAFT, self.decoder.max_keep - 1, self.decoder.max_rows - 1)
        draft = find_draft(self.tokens, min(most, self.decoder.context - len(self.tokens)))
        self.draft = list(takewhile(lambda token: token < self.decoder.vocab_size, draft))  # else it is an image

    def rows(self, most: int, wanted: int, fed: int | None) -> Rows:
        """The next rows, at most `most`, of which at most `wanted` ids can be had.

        `fed` is the number of its id in the step before, which it has not heard of yet.
        """
        filled = self.sequence.filled
        if not self.reading:
            assert fed is not None
            return self._rows([-1 - fed], 1)
        known = self.tokens[filled : filled + most]
        if not wanted:  # the last one waits for a step that has room for its id
            known = known[: self.reading - 1]
        if filled + len(known) < len(self.tokens):
            return self._rows(known, 0)
        draft = self.draft[: min(most - 1, wanted - 1)] if len(known) == 1 else []
        self.draft = []
        masks: list[np.ndarray] = []
        if self.constraint is not None and not self.host_chooses:
            masks = draft_masks(self.constraint, draft, self._end_bits)
            draft = draft[: len(masks) - 1]
        return self._rows([*known, *draft], 1 + len(draft), masks)

    def _rows(self, tokens: list[int], wanted: int, masks: Sequence[np.ndarray] = ()) -> Rows:
        position = self.sequence.filled
        first = position + len(tokens) - wanted + 1  # the position that the first id is for
        settings = [self._settings(first + n) for n in range(wanted)]
        return Rows(tokens, position, self.sequence.pages, wanted, settings, masks, self, self.strengths)

    def _settings(self, position: int) -> np.ndarray:
        # One draw per token: the same seed gives the same text however much of the prompt has to be read.
        return GREEDY if self.host_chooses else self.sampling.settings(self._draw(position))

    def _draw(self, position: int) -> float:
        """The random number that chooses the token at this position, the same however often it is chosen."""
        if not self.sampling.temperature:
            return 0.0
        index = position - self._first_made
        while len(self._draws) <= index:
            self._draws.append(self._rng.uniform())
        return self._draws[index]

    # ---- what a step gave

    def take(self, rows: Rows, ids: Sequence[int], logits: np.ndarray | None) -> None:
        """The ids that were wanted of these rows."""
        if self.ended:
            return
        if not rows.wanted:
            if not self._first:
                self._tell(rows.position + len(rows.tokens))
            return
        self._count_time()
        agreed, draft = 0, list(rows.tokens[len(rows.tokens) - rows.wanted + 1 :])
        while agreed < len(draft) and draft[agreed] == ids[agreed]:
            agreed += 1
        if draft:  # the rows behind are of tokens that did not come
            self.sequence.filled = rows.position + 1 + agreed
        for n in range(agreed + 1):
            if self.ended:
                return
            self._append(self._chosen(int(ids[n]), None if logits is None else logits[n]))
        self._append_forced(self._forced())

    def _chosen(self, token: int, logits: np.ndarray | None) -> ChosenToken:
        if token == NO_NUMBERS:
            raise OddLogits("the model's logits are not numbers")
        if token == NONE_ALLOWED:
            raise HightideError("of the tokens that the grammar allows next, the model rules out all")
        if not self.host_chooses:
            return ChosenToken(token)
        assert logits is not None
        mask = None if self.constraint is None else next_mask(self.constraint, self._end_bits)
        return self.sampling.choose(logits, self.tokens, self._draw(len(self.tokens)), mask)

    def _forced(self) -> list[int]:
        """Tokens that need not be chosen: with the constraint, they are known."""
        return [] if self.constraint is None or self.ended else self.constraint.forced()

    def _append_forced(self, tokens: Sequence[int]) -> None:
        """Also those that are forced after them. They are read with the next token, as a prompt is."""
        while tokens and not self.ended:
            for token in tokens:
                if not self.ended:
                    self._append(self.sampling.certain(token))
            tokens = self._forced()

    def _go_on(self, made: Sequence[int]) -> None:
        """Behind tokens that were made before, as if they had been made here. Also where there are none."""
        try:
            forced = self._forced()
            for token in made:
                if self.ended:
                    break
                self._append(ChosenToken(token))
                forced = forced[1:] if forced[:1] == [token] else []  # a run of them may end in its midst
                forced = forced or self._forced()
            while self.pieces and self.pieces[0].token >= 0:  # the caller has them
                self.pieces.popleft()
            self.stats.new_tokens = 0
            if self.constraint is not None and self.constraint.complete:
                self.finish("stop")
            self._append_forced(forced)
        except HightideError as error:
            raise InputError(f"the tokens in made do not fit: {error}" if made else str(error)) from None

    def _append(self, choice: ChosenToken) -> None:
        self.tokens.append(choice.token)
        if choice.token in self.ends:
            self.finish("stop")
            return
        self.stats.new_tokens += 1
        text = self.text.feed(choice.token) if self.text else ""
        self.pieces.append(Piece(text, choice.token, choice.logprob, choice.alternatives))
        if self.constraint is not None:
            self.constraint.accept(choice.token)
        if (self.text and self.text.stopped) or (self.constraint is not None and self.constraint.complete):
            self.finish("stop")
        elif self.answer_length >= self.limit:
            self.finish("length")
        elif len(self.tokens) > self.decoder.context:
            if self.options.on_full == "shift":
                self._shift()
            else:
                self.finish("context")

    def _shift(self) -> None:
        """Go on with a full context: its first eighth and its newest half are read again, from the start."""
        context, made = self.decoder.context, len(self.tokens) - self._first_made
        self.tokens = self.tokens[: context // 8] + self.tokens[-max(1, context // 2) :]
        self._first_made = len(self.tokens) - made
        self.prompt = len(self.tokens)
        if self._started:
            self.sequence.truncate(0)

    def finish(self, reason: str) -> None:
        if self.ended:
            return
        self.finish_reason = reason
        if self.text and reason != "closed" and (rest := self.text.flush()):
            self.pieces.append(Piece(rest, -1))
        if self._started:  # else the sequence may be another's still
            self.sequence.filled = min(self.sequence.filled, len(self.tokens))

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.finish_reason = "error"

    def _count_time(self) -> None:
        now = time.perf_counter()
        if not self._first:
            self._first = now
            self._tell(self.prompt)
            self.stats.prefill_seconds = now - self._started
        else:
            self.stats.calls += 1
            self.stats.decode_seconds = now - self._first

    def _tell(self, done: int) -> None:
        if self.options.progress:
            self.options.progress(min(done, self.prompt), self.prompt)
