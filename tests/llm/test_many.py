"""Many sequences at once: whatever else is in its batches, an answer is that of the request alone.

Every test runs on the NumPy references, and on the GPU where there is an adapter.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from schedules_of_requests import Alone, Asked, Told, requests, run_alone, run_schedule

from hightide.gpu.device import adapters
from hightide.llm.model import Model, Placement, open_model

TESTS = Path(__file__).parents[1]
CONTEXT, CHUNK, SEQUENCES = 64, 12, 5
TOLERANCE = 2e-5  # of the range of the logits

GGUF = ("llama.gguf", "gemma3.gguf", "qwen2.gguf", "qwen3.gguf", "phi3.gguf")


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def where(request: pytest.FixtureRequest) -> str | None:
    if request.param == "cpu":
        return "cpu"
    if not adapters():
        pytest.skip("no WebGPU adapter")
    return None


@cache
def opened(name: str, where: str | None, alike: bool) -> tuple[Model, list[tuple[Asked, Alone]]]:
    """A model with pages for two sequences only, and requests with what they give alone."""
    folder = "conformance" if name.endswith(".pte") else "models"
    placement = Placement(where, sequences=SEQUENCES, pages=10, alike=alike)
    context = CONTEXT if name.endswith(".gguf") else None
    model = open_model(TESTS / folder / name, None, context, CHUNK, placement)
    asked = requests(np.random.default_rng(11), 24, model.decoder.vocab_size, min(model.decoder.context, CONTEXT))
    return model, [(one, run_alone(model, one)) for one in asked]


def run_schedules(name: str, where: str | None, alike: bool, seeds: range) -> Told:
    model, known = opened(name, where, alike)
    total = Told()
    for seed in seeds:
        told = run_schedule(model, known, np.random.default_rng(seed), SEQUENCES, exact=alike)
        for field in ("answers", "cancelled", "forks", "found", "set_aside"):
            setattr(total, field, getattr(total, field) + getattr(told, field))
        total.worst = max(total.worst, told.worst)
    return total


@pytest.mark.parametrize("alike", [False, True], ids=["any", "reproducible"])
@pytest.mark.parametrize("name", GGUF)
def test_random_schedules_answer_as_alone(name: str, where: str | None, alike: bool) -> None:
    told = run_schedules(name, where, alike, range(4, 6))
    assert told.worst <= TOLERANCE
    assert told.answers and told.forks and told.cancelled and told.found and told.set_aside


@pytest.mark.slow
@pytest.mark.parametrize("alike", [False, True], ids=["any", "reproducible"])
@pytest.mark.parametrize("name", GGUF)
def test_many_random_schedules_answer_as_alone(name: str, where: str | None, alike: bool) -> None:
    """1,000 schedules, over models, devices and ways."""
    assert run_schedules(name, where, alike, range(100, 150)).worst <= TOLERANCE
