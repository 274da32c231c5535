"""Calls of a GGUF model's session, as the tests of this folder make them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hightide.formats.gguf import GgufFile
from hightide.gpu.device import Device
from hightide.graph.graph import Graph
from hightide.llm.models import build_of
from hightide.llm.models.model_builder import INPUTS, ModelBuilder
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession

DYNAMIC = [True, False, False, False]
GREEDY = np.zeros(5, np.float32)


def gpu_session(graph: Graph, device: Device) -> GpuSession:
    return GpuSession(graph, device, DYNAMIC, INPUTS)


def exact_session(graph: Graph) -> CpuSession:
    return CpuSession(graph, DYNAMIC, INPUTS, dtype="float64")


def cpu_session(graph: Graph) -> CpuSession:
    return CpuSession(graph, DYNAMIC, INPUTS)


def graph_in_parts(file: GgufFile, context: int, max_tokens: int, part_bytes: int) -> Graph:
    """The graph of an adapter that binds no more than `part_bytes`."""
    builder = ModelBuilder(file, context, max_tokens, part_bytes)
    return builder.finish(build_of(file.architecture)(builder))


def step(
    session: CpuSession | GpuSession, tokens: Sequence[int] | np.ndarray, position: int, keep: int
) -> tuple[np.ndarray, np.ndarray]:
    """Logits [keep, vocabulary] and ids [keep] of the last `keep` of the tokens."""
    given = [np.array([tokens], np.int32), np.array([position], np.int32), np.array([keep], np.int32), GREEDY]
    logits, ids = session.run(given)
    assert logits.shape[:2] == ids.shape == (1, keep)
    return logits[0], ids[0]


def all_logits(session: CpuSession | GpuSession, tokens: np.ndarray, sizes: Iterable[int]) -> np.ndarray:
    """Logits of every token, fed in chunks of the given sizes; the ids chosen must be the largest logits."""
    rows, position = [], 0
    for size in sizes:
        chunk = tokens[position : position + size]
        if not len(chunk):
            break
        logits, ids = step(session, chunk, position, len(chunk))
        np.testing.assert_array_equal(ids, logits.argmax(axis=-1))
        rows.append(logits)
        position += len(chunk)
    assert position == len(tokens)
    return np.concatenate(rows)


def greedy(session: CpuSession | GpuSession, prompt: Sequence[int], count: int, max_tokens: int) -> list[int]:
    """`count` ids after a prompt that is fed in chunks."""
    for start in range(0, len(prompt), max_tokens):
        chunk = prompt[start : start + max_tokens]
        _, ids = step(session, chunk, start, int(start + len(chunk) == len(prompt)))
    out = [int(ids[-1])]
    while len(out) < count:
        _, ids = step(session, out[-1:], len(prompt) + len(out) - 1, 1)
        out.append(int(ids[-1]))
    return out


def error_of_range(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(got - expected).max() / np.ptp(expected))
