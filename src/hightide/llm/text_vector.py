"""The vector of a text: its tokens are read as a prompt is, and the vectors of its rows are pooled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.gguf import GgufFile
from hightide.llm.batch import GREEDY, Rows
from hightide.llm.decoder import Decoder
from hightide.llm.generation import Generation, OddLogits
from hightide.llm.models import is_encoder
from hightide.llm.options import GenerationOptions
from hightide.llm.page_pool import PagedSequence
from hightide.llm.rank_head import RankHead, has_rank_head

POOLINGS = ("auto", "mean", "cls", "last", "rank")
DECODER_POOLINGS = ("", "mean", "last")
_NUMBERS = {0: "", 1: "mean", 2: "cls", 3: "last", 4: "rank"}  # of a GGUF file; "" for none


def pooling_of(file: GgufFile, asked: str | None) -> str:
    """How the rows of a text are pooled: as asked, else as the file says. "" for a model that gives answers.

    "auto" asks for embeddings: where the file says nothing, of the last row of a decoder.
    """
    number = file.get("pooling_type")
    if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
        raise ProgramError(f"{file.path}: {file.architecture}.pooling_type is {number!r}, not an integer")
    encoder, said = is_encoder(file), _NUMBERS.get(0 if number is None else number)
    possible = (*DECODER_POOLINGS, "rank") if has_rank_head(file) else DECODER_POOLINGS
    known = "mean (1), cls (2), last (3) and rank (4)" if encoder else "mean (1) and last (3)"
    if said is None or not (encoder or said in possible):
        raise UnsupportedError(f"{file.path} pools its rows in the way {number}; {known} are supported")
    if encoder:
        said = said or ("rank" if has_rank_head(file) else "mean")
        return said if asked in (None, "", "auto") else asked
    if asked not in (None, "auto", *possible):
        raise UnsupportedError(f"{file.path} is a decoder, which cannot pool by {asked!r}; {known} are supported")
    return said or "last" if asked == "auto" else asked or said


@dataclass(frozen=True)
class Pooled:
    """What becomes of the rows of a text."""

    mean: bool  # of all rows; else of one
    head: RankHead | None = None  # gives a score, not a vector
    normalize: bool = True  # to length 1
    types: Sequence[int] = ()  # of which of two texts each row is; () for one text

    def finished(self, vector: np.ndarray) -> np.ndarray:
        if self.head is not None:
            return self.head.score(vector)
        scale = max(float(np.linalg.norm(vector)), 1e-12) if self.normalize else 1.0
        return (vector / scale).astype(np.float32)


class PrivateSequence(PagedSequence):
    """A sequence that reads all of its tokens itself, and whose pages nobody finds."""

    def next_names(self, tokens: Sequence[int]) -> Iterator[bytes]:
        return iter(())

    def name_pages(self, tokens: Sequence[int]) -> None:
        pass


class TextVector(Generation):
    """The state of one text. The decoder's logits are the vectors of rows."""

    def __init__(self, decoder: Decoder, sequence: PagedSequence, ids: Sequence[int], how: Pooled) -> None:
        """The sequence is a private one where all rows are needed: those of an encoder, and of a mean."""
        super().__init__(decoder, sequence, ids, GenerationOptions(max_tokens=1), (), None)
        self._how = how
        self._sum = np.zeros(0)

    @property
    def host_chooses(self) -> bool:  # so that logits are brought back
        return True

    def rows(self, most: int, wanted: int, fed: int | None) -> Rows:
        filled = self.sequence.filled
        if not filled:  # also when all is read again
            self._sum = np.zeros(0)
        if self.decoder.whole:
            return self._whole(most, wanted)
        if not self._how.mean:
            return super().rows(most, wanted, fed)
        known = self.tokens[filled : filled + min(most, wanted)]
        return Rows(known, filled, self.sequence.pages, len(known), [GREEDY] * len(known), (), self)

    def _whole(self, most: int, wanted: int) -> Rows:
        """All of the text, or nothing in a step that has no room for it."""
        count = len(self.tokens)
        needed = count if self._how.mean else 1
        if count > most or needed > wanted:
            return Rows((), 0, self.sequence.pages, 0, (), (), self)
        return Rows(self.tokens, 0, self.sequence.pages, needed, (), (), self, types=self._how.types)

    def take(self, rows: Rows, ids: Sequence[int], logits: np.ndarray | None) -> None:
        if self.ended or not rows.wanted:
            return
        assert logits is not None
        if min(ids) < 0:
            raise OddLogits("the vectors of the model are not numbers")
        self._sum = logits.sum(0, dtype=np.float64) + (self._sum if self._sum.size else 0)
        if rows.position + len(rows.tokens) == len(self.tokens):
            self.vector = self._how.finished(self._sum / (len(self.tokens) if self._how.mean else 1))
            self.finish("stop")
