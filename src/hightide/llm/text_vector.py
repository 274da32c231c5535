"""The vector of a text: its tokens are read as a prompt is, and the vectors of its rows are pooled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.gguf import GgufFile
from hightide.llm.batch import GREEDY, Rows
from hightide.llm.decoder import Decoder
from hightide.llm.generation import Generation, OddLogits
from hightide.llm.options import GenerationOptions
from hightide.llm.page_pool import PagedSequence

POOLINGS = ("last", "mean")
_NUMBERS = {0: "", 1: "mean", 3: "last"}  # of a GGUF file; "" for none


def pooling_of(file: GgufFile) -> str:
    """How the file says that the rows of a text are pooled; "" for a model that gives answers."""
    number = file.get("pooling_type", 0)
    if isinstance(number, bool) or not isinstance(number, int):
        raise ProgramError(f"{file.path}: {file.architecture}.pooling_type is {number!r}, not an integer")
    if number not in _NUMBERS:
        known = "mean (1) and last (3)"
        raise UnsupportedError(f"{file.path} pools its rows in the way {number}; {known} are supported")
    return _NUMBERS[number]


class PrivateSequence(PagedSequence):
    """A sequence that reads all of its tokens itself, and whose pages nobody finds."""

    def next_names(self, tokens: Sequence[int]) -> Iterator[bytes]:
        return iter(())

    def name_pages(self, tokens: Sequence[int]) -> None:
        pass


class TextVector(Generation):
    """The state of one text. The decoder's logits are the vectors of rows."""

    def __init__(self, decoder: Decoder, sequence: PagedSequence, ids: Sequence[int], mean: bool) -> None:
        """`mean`: of all rows; else of the last one. With `mean` the sequence is a private one."""
        super().__init__(decoder, sequence, ids, GenerationOptions(max_tokens=1), (), None)
        self._mean = mean
        self._sum = np.zeros(0)

    @property
    def host_chooses(self) -> bool:  # so that logits are brought back
        return True

    def rows(self, most: int, wanted: int, fed: int | None) -> Rows:
        filled = self.sequence.filled
        if not filled:  # also when all is read again
            self._sum = np.zeros(0)
        if not self._mean:
            return super().rows(most, wanted, fed)
        known = self.tokens[filled : filled + min(most, wanted)]
        return Rows(known, filled, self.sequence.pages, len(known), [GREEDY] * len(known), (), self)

    def take(self, rows: Rows, ids: Sequence[int], logits: np.ndarray | None) -> None:
        if self.ended or not rows.wanted:
            return
        assert logits is not None
        if min(ids) < 0:
            raise OddLogits("the vectors of the model are not numbers")
        self._sum = logits.sum(0, dtype=np.float64) + (self._sum if self._sum.size else 0)
        if rows.position + len(rows.tokens) == len(self.tokens):
            self.vector = (self._sum / max(float(np.linalg.norm(self._sum)), 1e-12)).astype(np.float32)
            self.finish("stop")
