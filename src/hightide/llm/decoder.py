"""A language model on a session: rows of many sequences in, the next ids (and logits) out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hightide.errors import HightideError, InputError
from hightide.fuse.ragged import MEDIA, RaggedSizes
from hightide.graph.graph import OpCall
from hightide.graph.values import TensorValue
from hightide.llm.batch import GREEDY, Batch, Rows, tables
from hightide.llm.media import Media, MediaSlots
from hightide.llm.state_file import StateLayout
from hightide.runtime.session import Fed, Session

Progress = Callable[[int, int], None]  # (done, in all)


@dataclass(frozen=True)
class StepResult:
    """What a step gave: ids [wanted], and logits [wanted, vocabulary] where they were asked for.

    An id of -1 stands for logits that are not numbers, -2 for a mask that leaves no token.
    """

    ids: np.ndarray
    logits: np.ndarray | None


class Decoder(Protocol):
    """What the step loop needs of a model. Steps are launched and collected in order, two under way at most."""

    context: int  # tokens of a sequence, at most
    page: int  # tokens of a page of keys and values
    pages: int  # in all
    max_rows: int  # of a step
    max_wanted: int  # ids of a step
    max_keep: int  # ids that one sequence can have of a step
    max_media: int  # images and audio that a step can have rows of
    media: Media | None  # those that the model was given, if it takes any
    vocab_size: int
    device: str
    whole: bool  # a sequence has all of its rows in one step

    def launch(self, batch: Batch) -> Any:
        """Start a step."""

    def collect(self, ticket: Any) -> StepResult: ...

    def abandon(self) -> None:
        """Forget the steps that are under way."""

    def recover(self) -> None:
        """Go on after a device was lost; the pages are empty."""

    def first_odd(self, batch: Batch) -> OpCall | None:
        """Make a step again, and give the first op whose output has NaN or +infinity, if that can be told."""

    def copy_pages(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy pages (from, to), one after the other, before the next step."""

    def read_pages(self, pages: Sequence[int], length: int) -> list[np.ndarray]:
        """The keys and values of the first `length` tokens in these pages, layer by layer."""

    def write_pages(self, pages: Sequence[int], arrays: Sequence[np.ndarray]) -> None:
        """Put back what `read_pages` gave."""

    def state_layout(self, length: int) -> StateLayout:
        """What `read_pages` gives for `length` tokens."""

    def device_bytes(self) -> dict[str, int]: ...

    def close(self) -> None:
        """Free what it holds on its device."""


class RaggedDecoder:
    """A ragged graph: the rows of all sequences in one run."""

    whole = False

    def __init__(
        self,
        session: Session,
        sizes: RaggedSizes,
        *,
        context: int,
        alike: bool = False,
        vocab_size: int | None = None,
        slots: MediaSlots | None = None,
    ) -> None:
        """`alike`: rows are computed alike whatever else is in their batch. `vocab_size` is that of the logits, unless
        vectors stand in for them. `slots` hold the rows of images and audio."""
        self.session, self.sizes, self.alike = session, sizes, alike
        self.context, self.page, self.pages = context, sizes.page, sizes.pages
        self.max_rows, self.max_wanted, self.max_keep = sizes.rows, sizes.wanted, sizes.wanted
        self.device = session.name
        logits = session.graph.values[session.graph.outputs[0]]
        assert isinstance(logits, TensorValue)
        self.width = logits.dims[-1]  # of a row of logits
        self.vocab_size = self.width if vocab_size is None else vocab_size
        self._slots = slots
        self.max_media = 0 if slots is None else slots.count
        self.media = None if slots is None else slots.media
        self._fed = False  # whether the ids of a step before are on the device

    def launch(self, batch: Batch) -> Any:
        want = () if not batch.wanted else (0, 1) if batch.logits else (1,)
        ticket = self.session.launch(self.inputs(batch, self._fed), want, feed={1: 1})
        self._fed = True
        return ticket

    def inputs(self, batch: Batch, fed: bool = False) -> list[Any]:
        """`fed`: the ids of the step before are on the device."""
        made = tables(batch, self.page, self.alike)
        given: dict[str, Any] = made.arrays(self.sizes.table)
        chosen, masks = (self.sizes.wanted,), (self.sizes.wanted, -(-self.width // 32))
        if fed:
            given["chosen"], given["masks"] = Fed(chosen), Fed(masks, np.array(made.masks, np.int32))
        else:
            given["chosen"], given["masks"] = np.zeros(chosen, np.int32), np.zeros(masks, np.int32)
            given["masks"][: len(made.masks)] = made.masks or 0
        given["strengths"] = given["strengths"].reshape(len(made.strengths), self.sizes.adapters)
        if self._slots is not None:
            given["tokens"] = np.array([self._slots.placed(made.tokens)], np.int32)
            given[MEDIA] = self._slots.fed
        return [given[spec.name] for spec in self.session.specs]

    def collect(self, ticket: Any) -> StepResult:
        outputs = self.session.collect(ticket)
        if not outputs:
            return StepResult(np.zeros(0, np.int64), None)
        return StepResult(outputs[-1].reshape(-1), outputs[0][0] if len(outputs) == 2 else None)

    def abandon(self) -> None:
        self.session.abandon()

    def recover(self) -> None:
        self._fed = False
        self.session.recover()
        if self._slots is not None:
            self._slots.clear()
            self._slots.media.recover()

    def first_odd(self, batch: Batch) -> OpCall | None:
        return self.session.first_odd(self.inputs(batch))

    def copy_pages(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.session.copy_rows([(source * self.page, to * self.page, self.page) for source, to in pairs])

    def read_pages(self, pages: Sequence[int], length: int) -> list[np.ndarray]:
        parts = [self.session.read_rows(first, count) for first, count in self._runs(pages, length)]
        if not parts:
            return self.state_layout(0).empty()
        return [np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True)]

    def write_pages(self, pages: Sequence[int], arrays: Sequence[np.ndarray]) -> None:
        done = 0
        for first, count in self._runs(pages, arrays[0].shape[1]):
            self.session.write_rows(first, [array[:, done : done + count] for array in arrays])
            done += count

    def _runs(self, pages: Sequence[int], length: int) -> list[tuple[int, int]]:
        """(first row, rows) of pages that follow each other, for the first `length` tokens."""
        runs: list[tuple[int, int]] = []
        for at, page in enumerate(pages[: -(-length // self.page)]):
            first, count = page * self.page, min(self.page, length - at * self.page)
            if runs and sum(runs[-1]) == first:
                runs[-1] = (runs[-1][0], runs[-1][1] + count)
            else:
                runs.append((first, count))
        return runs

    def state_layout(self, length: int) -> StateLayout:
        return StateLayout.of_caches(self.session, length)

    def device_bytes(self) -> dict[str, int]:
        total = Counter(self.session.device_bytes())
        total.update({} if self.media is None else self.media.device_bytes())
        return dict(total)

    def close(self) -> None:
        self.session.close()
        if self.media is not None:
            self.media.close()


def check_state(saved: Sequence[np.ndarray], layout: StateLayout, length: int, context: int) -> None:
    """InputError unless these arrays are the state of `length` tokens."""
    fits = tuple(array.shape for array in saved) == layout.dims and length <= context
    if not fits or "".join(array.dtype.kind for array in saved) != layout.kinds:
        raise InputError("the saved state is from another model, or from a longer context")


class Straight:
    """Calls of a decoder for one sequence alone: what tools and scores are made of."""

    def __init__(self, decoder: Decoder, pages: Sequence[int]) -> None:
        """`pages` are those of the sequence."""
        self.decoder, self.pages = decoder, pages

    def launch(self, tokens: Sequence[int] | None, position: int, keep: int = 1, logits: bool = False) -> Any:
        """Start a step. No tokens: the id that the step before chose."""
        return self.decoder.launch(self._batch([-1] if tokens is None else tokens, position, keep, logits))

    def collect(self, ticket: Any) -> StepResult:
        return self.decoder.collect(ticket)

    def first_odd(self, tokens: Sequence[int]) -> OpCall | None:
        """The first op that gives NaN or +infinity for these tokens, if it can be told.

        They are read from the first on: what breaks down early may show late, through the KV cache.
        """
        most = self.decoder.max_rows
        with suppress(HightideError):  # the caller has an error to report already
            for first in range(0, len(tokens), most):
                batch = self._batch(tokens[first : first + most], first)
                if self.decoder.collect(self.decoder.launch(batch)).ids[-1] < 0:
                    return self.decoder.first_odd(batch)
        return None

    def _batch(self, tokens: Sequence[int], position: int, keep: int = 1, logits: bool = False) -> Batch:
        return Batch([Rows(list(tokens), position, self.pages, keep, (GREEDY,) * keep)], logits)
