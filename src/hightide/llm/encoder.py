"""An encoder on a session: the rows of whole texts in, the vectors of rows out. It is driven as a decoder is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hightide.formats.gguf import GgufFile
from hightide.graph.graph import OpCall
from hightide.graph.values import Dims, TensorValue
from hightide.llm.batch import Batch
from hightide.llm.decoder import StepResult
from hightide.llm.media import Media
from hightide.llm.models import build_encoder
from hightide.llm.models.encoder_builder import ENCODER_INPUTS
from hightide.llm.state_file import StateLayout
from hightide.ops.pages.work_lists import TILE
from hightide.ops.sampling.sampling import NO_NUMBERS
from hightide.runtime.build import SessionOptions, build_session
from hightide.runtime.session import Session


class Encoder:
    """Texts of several sequences in one run. Nothing is kept between steps, so pages only count sequences."""

    whole = True

    def __init__(self, session: Session, *, context: int, rows: int, sequences: int, vocab_size: int, first: bool):
        """`first`: where one row of a text is wanted it is the first, not the last."""
        self.session, self.context, self.vocab_size, self._first = session, context, vocab_size, first
        self.page, self.pages = context, 2 * sequences  # as many wait for their step as are in one
        self.max_rows = self.max_wanted = self.max_keep = rows
        self.max_media = 0
        self.media: Media | None = None  # it takes text only
        self.device = session.name
        vectors = session.graph.values[session.graph.outputs[0]]
        assert isinstance(vectors, TensorValue)
        self.width = vectors.dims[-1]

    def launch(self, batch: Batch) -> Any:
        return self.session.launch(self._inputs(batch))

    def collect(self, ticket: Any) -> StepResult:
        (vectors,) = self.session.collect(ticket)
        fine = np.isfinite(vectors[0]).all(axis=-1)
        return StepResult(np.where(fine, 0, NO_NUMBERS), vectors[0])

    def _inputs(self, batch: Batch) -> list[np.ndarray]:
        tokens: list[int] = []
        positions: list[int] = []
        wanted: list[int] = []
        types: list[int] = []
        tiles: list[tuple[int, int, int, int]] = []
        for rows in batch.rows:
            start, count = len(tokens), len(rows.tokens)
            tokens += rows.tokens
            positions += range(count)
            tiles += [(start + at, min(TILE, count - at), start, count) for at in range(0, count, TILE)]
            chosen = (
                range(start, start + rows.wanted) if self._first else range(start + count - rows.wanted, start + count)
            )
            wanted += chosen
            types += rows.types or [0] * count
        given = {"tokens": [tokens], "positions": positions, "wanted": wanted, "types": types}
        arrays = {name: np.array(numbers, np.int32) for name, numbers in given.items()}
        arrays["tiles"] = np.array(tiles, np.int32).reshape(-1, 4)
        return [arrays[spec.name] for spec in self.session.specs]

    def abandon(self) -> None:
        self.session.abandon()

    def recover(self) -> None:
        self.session.recover()

    def first_odd(self, batch: Batch) -> OpCall | None:
        return self.session.first_odd(self._inputs(batch))

    def copy_pages(self, pairs: Sequence[tuple[int, int]]) -> None:
        """There is nothing in a page."""

    def read_pages(self, pages: Sequence[int], length: int) -> list[np.ndarray]:
        return []

    def write_pages(self, pages: Sequence[int], arrays: Sequence[np.ndarray]) -> None:
        """There is nothing in a page."""

    def state_layout(self, length: int) -> StateLayout:
        return StateLayout((), "")

    def device_bytes(self) -> dict[str, int]:
        return self.session.device_bytes()

    def close(self) -> None:
        self.session.close()


def open_encoder(
    file: GgufFile,
    gpu: Any,
    *,
    context: int,
    rows: int,
    sequences: int,
    first: bool,
    routes: dict[str, str],
    progress: Any = None,
) -> Encoder:
    """An encoder whose steps have `rows` rows at most, which every text fits, of up to `sequences` texts."""
    rows = max(rows, context) + sequences
    graph = build_encoder(file, context, rows, sequences)
    names = ENCODER_INPUTS[: len(graph.inputs)]
    options = SessionOptions(choices=routes, levels=[_level(names, n) for n in (1, 16, 64, 256) if n <= rows])
    session = build_session(graph, gpu, [True] * len(names), names, options, progress)
    vocabulary = file.tensors["token_embd.weight"].dims[0]
    return Encoder(session, context=context, rows=rows, sequences=sequences, vocab_size=vocabulary, first=first)


def _level(names: Sequence[str], rows: int) -> tuple[Dims, ...]:
    """The dims of the inputs for one text of so many tokens."""
    dims: dict[str, Dims] = {"tokens": (1, rows), "tiles": (-(-rows // TILE), 4)}
    return tuple(dims.get(name, (rows,)) for name in names)
