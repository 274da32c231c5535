"""Ragged decoders on the GPU: rows of many sequences give what each sequence gives alone in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ragged_batches import SIZES, Batches, alone, decoder, untouched, vocabulary_of

from hightide.fuse.ragged import RAGGED_DYNAMIC, RAGGED_INPUTS, ragged
from hightide.gpu.device import Device
from hightide.runtime.gpu_session import GpuSession

TESTS = Path(__file__).parents[1]
MODELS = ["models/llama.gguf", "models/gemma3.gguf", "models/lfm2.gguf"]
FILES = [*MODELS, "conformance/qwen3.pte", "conformance/llama_static.pte"]


@pytest.mark.parametrize("file", FILES)
def test_rows_of_many_sequences_give_what_each_gives_alone(file: str, device: Device) -> None:
    graph, lengths = decoder(TESTS / file), (19, 1, 11, 6)
    batches = Batches(vocabulary_of(graph), lengths)
    expected = [alone(graph, tokens) for tokens in batches.tokens]
    session = GpuSession(ragged(graph, SIZES), device, RAGGED_DYNAMIC, RAGGED_INPUTS)
    session.write_state([np.full_like(pool, np.nan) for pool in session.read_state()])
    for step in batches.steps():
        logits, ids = session.run(step.inputs)
        wanted = np.array([expected[sequence][position] for sequence, position in step.wanted])
        assert np.abs(logits[0] - wanted).max() <= 1e-4 * np.ptp(wanted)
        np.testing.assert_array_equal(ids[0], np.where(step.allowed, logits[0], -np.inf).argmax(axis=-1))
    assert all(untouched(pool, batches) for pool in session.read_state())
