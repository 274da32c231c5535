"""Random ragged batches: sequences that grow in steps of many rows, their pages shuffled; and each sequence alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import hightide
from hightide.formats.gguf import read_gguf
from hightide.fuse.ragged import RAGGED_DYNAMIC, RAGGED_INPUTS, RaggedSizes
from hightide.graph.graph import Graph
from hightide.graph.values import TensorValue
from hightide.llm.models import build_graph
from hightide.ops.pages.work_lists import TILE
from hightide.runtime.cpu_session import CpuSession

UNUSED = 99  # a code, which no row is full of

SIZES = RaggedSizes(rows=28, wanted=6, singles=7, tiles=9, page=4, pages=40, table=37)
GREEDY = np.zeros(5, np.float32)


@dataclass
class Step:
    """The inputs of a step, and of which (sequence, position) each wanted row is, and which tokens it may be."""

    inputs: list[np.ndarray]
    wanted: list[tuple[int, int]]
    allowed: np.ndarray  # [wanted, vocabulary]


@dataclass
class Batches:
    """Sequences of random tokens, and the pages that each has."""

    vocabulary: int
    lengths: tuple[int, ...]
    sizes: RaggedSizes = SIZES
    seed: int = 0
    tokens: list[np.ndarray] = field(init=False)
    pages: list[np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.tokens = [self.rng.integers(0, self.vocabulary, length) for length in self.lengths]
        shuffled, at = self.rng.permutation(self.sizes.pages), 0
        self.pages = []
        for length in self.lengths:
            count = -(-length // self.sizes.page)
            self.pages.append(shuffled[at : at + count])
            at += count

    def steps(self) -> Iterator[Step]:
        """Steps until every sequence has ended: each takes some tokens of some sequences, in any order."""
        done = [0] * len(self.tokens)
        while any(n < len(tokens) for n, tokens in zip(done, self.tokens, strict=True)):
            takes: dict[int, int] = {}
            for n in self.rng.permutation(len(self.tokens)).tolist():
                room = min(self.sizes.rows - sum(takes.values()), len(self.tokens[n]) - done[n])
                if room and len(takes) < self.sizes.singles:
                    takes[n] = int(self.rng.integers(1, room + 1)) if self.rng.random() < 0.6 else 1
            yield self._step(takes, done)
            for n, count in takes.items():
                done[n] += count

    def _step(self, takes: dict[int, int], done: list[int]) -> Step:
        sizes, page, rows = self.sizes, self.sizes.page, [(n, done[n] + i) for n in takes for i in range(takes[n])]
        table, offsets, lists = [], {}, ([], [])  # type: ignore[var-annotated]
        for n in takes:
            offsets[n] = len(table)
            table += self.pages[n].tolist()
        table += [0] * (sizes.table - len(table))
        first = 0
        for n, count in takes.items():
            for start in range(0, count, TILE):
                tile = (first + start, min(TILE, count - start), done[n] + start, offsets[n])
                lists[tile[1] > 1].append(tile)
            first += count
        chosen = self.rng.integers(0, self.vocabulary, sizes.wanted)
        tokens = np.array([self.tokens[n][position] for n, position in rows])
        fed = self.rng.permutation(len(rows))[: sizes.wanted // 2]
        chosen[: len(fed)] = tokens[fed]
        tokens[fed] = -1 - np.arange(len(fed))
        wanted = self.rng.permutation(len(rows))[: int(self.rng.integers(1, sizes.wanted + 1))]
        positions = [position for _, position in rows]
        places = [self.pages[n][position // page] * page + position % page for n, position in rows]
        settings = np.zeros((len(wanted), 5), np.float32)
        allowed = self.rng.random((sizes.wanted, self.vocabulary)) < 0.1
        allowed[:, 0] |= ~allowed.any(axis=1)
        masked = np.where(self.rng.random(len(wanted)) < 0.5, self.rng.integers(0, sizes.wanted, len(wanted)), -1)
        bits = np.packbits(allowed, axis=1, bitorder="little")
        masks = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 4))).view("<i4")
        singles, tiles = (np.array(tile, np.int32).reshape(-1, 4) for tile in lists)
        rows_of = (tokens[None], chosen, positions, places, wanted, settings, masks, masked)
        given = (*rows_of, singles, tiles, table, [max(positions) + 1])
        inputs = [np.asarray(one, np.float32 if one is settings else np.int32) for one in given]
        return Step(inputs, [rows[row] for row in wanted], allowed[masked] | (masked < 0)[:, None])


def decoder(path: Path) -> Graph:
    """The graph of one sequence: of a GGUF model, or of a program's method `forward`."""
    if path.suffix == ".gguf":
        return build_graph(read_gguf(path), 48, 16)
    graph = hightide.load(path, device="cpu").single_graph("forward")
    assert graph is not None
    return graph


def alone(graph: Graph, tokens: np.ndarray) -> np.ndarray:
    """Logits [tokens, vocabulary] of one sequence, token by token in float64."""
    session = CpuSession(graph, dtype="float64")
    rest = [np.array([1], np.int32), GREEDY] if len(graph.inputs) == 4 else []
    rows = []
    for position, token in enumerate(tokens):
        logits, *_ = session.run([np.array([[token]], np.int32), np.array([position], np.int32), *rest])
        rows.append(logits.reshape(-1))
    return np.array(rows)


def ragged_session(graph: Graph) -> CpuSession:
    """The session of a ragged graph in float64, with NaN in every page, or a code that rows have not."""
    session = CpuSession(graph, RAGGED_DYNAMIC, RAGGED_INPUTS, dtype="float64")
    session.write_state(
        [np.full_like(array, np.nan if array.dtype.kind == "f" else UNUSED) for array in session.read_state()]
    )
    return session


def vocabulary_of(graph: Graph) -> int:
    logits = graph.values[graph.outputs[0]]
    assert isinstance(logits, TensorValue)
    return logits.dims[-1]


def untouched(state: np.ndarray, batches: Batches) -> bool:
    """Whether the pages that no sequence has, and the ends of those that one has, are as they were."""
    page = batches.sizes.page
    rows = np.ones(state.shape[1], bool)
    for tokens, pages in zip(batches.tokens, batches.pages, strict=True):
        at = np.arange(len(tokens))
        rows[pages[at // page] * page + at % page] = False
    is_unused = np.isnan(state) if state.dtype.kind == "f" else (state == UNUSED).all(axis=(2, 3), keepdims=True)
    return bool(is_unused[:, rows].all() and not is_unused[:, ~rows].any())
