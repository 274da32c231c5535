"""Many sequences at once: whatever else is in its batches, an answer is that of the request alone.

Every test runs on the NumPy references, and on the GPU where there is an adapter.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from schedules_of_requests import Alone, Asked, Told, answer, poison_pages, requests, run_alone, run_schedule

from hightide import LLM, Engine
from hightide.gpu.device import adapters
from hightide.llm.batcher import Batcher
from hightide.llm.decoder import RaggedDecoder
from hightide.llm.model import Model, Placement, open_model
from hightide.llm.options import GenerationOptions
from hightide.llm.page_pool import PagedSequence
from hightide.runtime.gpu_session import GpuSession

TESTS = Path(__file__).parents[1]
CONTEXT, CHUNK, SEQUENCES = 64, 12, 5
TOLERANCE = 2e-5  # of the range of the logits

PTE = ("llama_gqa.pte", "qwen2.pte", "qwen3.pte", "gemma_norms.pte")
DENSE = ("llama.gguf", "gemma3.gguf", "qwen2.gguf", "qwen3.gguf", "phi3.gguf", "gpt2.gguf", "mistral3.gguf")
GGUF = (*DENSE, "lfm2.gguf", "mixtral.gguf", "gpt_oss.gguf", "deepseek2.gguf")
KINDS = ("llama.gguf", "gemma3.gguf", "gpt2.gguf", "lfm2.gguf", "gpt_oss.gguf", "deepseek2.gguf", "llama_gqa.pte")


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
@pytest.mark.parametrize(
    "name", [name if name in KINDS else pytest.param(name, marks=pytest.mark.slow) for name in (*GGUF, *PTE)]
)
def test_random_schedules_answer_as_alone(name: str, where: str | None, alike: bool) -> None:
    told = run_schedules(name, where, alike, range(4, 6))
    assert told.worst <= TOLERANCE
    assert told.answers and told.forks and told.cancelled and told.found and told.set_aside


@pytest.mark.slow
@pytest.mark.parametrize("alike", [False, True], ids=["any", "reproducible"])
@pytest.mark.parametrize("name", [*GGUF, *PTE])
def test_many_random_schedules_answer_as_alone(name: str, where: str | None, alike: bool) -> None:
    """1,008 schedules, over models, devices and ways."""
    assert run_schedules(name, where, alike, range(100, 128)).worst <= TOLERANCE


@pytest.mark.parametrize("length", [31, 32, 33, 48])
def test_equal_prompts_in_one_step(length: int, where: str | None) -> None:
    """A page that one of them writes in this step is shared, but not copied before it is there."""
    model = open_model(TESTS / "models" / "llama.gguf", None, CONTEXT, 128, Placement(where, sequences=4))
    asked = Asked(tuple(range(3, 3 + length)), GenerationOptions(max_tokens=6))
    alone = run_alone(model, asked)
    batcher = Batcher(model.decoder, 4, share_prefixes=True)
    poison_pages(batcher)
    made = [model.generation(PagedSequence(batcher.pool), list(asked.ids), asked.options) for _ in range(4)]
    for generation in made:
        batcher.add(generation)
    while batcher.busy:
        batcher.step()
    assert [answer(generation) for generation in made] == [alone.tokens] * 4
    assert batcher.counters.found >= 3 * 16
    model.decoder.close()


# ---- what a step costs


@pytest.mark.gpu
def test_a_steady_step_of_many_writes_only_its_tables() -> None:
    if not adapters():
        pytest.skip("no WebGPU adapter")
    model, _ = opened("llama.gguf", None, False)
    batcher = Batcher(model.decoder, SEQUENCES, share_prefixes=True)
    generations = [
        model.generation(PagedSequence(batcher.pool), [3 + n, 5, 7], GenerationOptions(max_tokens=12))
        for n in range(SEQUENCES - 1)
    ]
    for generation in generations:
        batcher.add(generation)
    assert isinstance(model.decoder, RaggedDecoder) and isinstance(model.decoder.session, GpuSession)
    session = model.decoder.session
    for _ in range(4):
        batcher.step()
    created, planned, counters = session.device.created, session.levels.planned, replace(session.counters)
    for _ in range(4):
        batcher.step()
    assert (session.device.created, session.levels.planned) == (created, planned)
    assert session.counters.runs == counters.runs + 4
    assert session.counters.param_bytes == counters.param_bytes
    rows = len(generations)
    tables = rows * (4 + 4 + 4 * 4) + 4  # positions, places, tiles of one row; and the longest
    assert session.counters.written_bytes - counters.written_bytes <= 4 * (tables + 8)
    assert session.counters.read_bytes - counters.read_bytes == 4 * 4 * rows
    batcher.abandon()


@pytest.mark.slow
def test_10000_short_requests_leave_nothing_behind() -> None:
    with Engine(TESTS / "models" / "llama.gguf", context=32, chunk=16, max_sequences=16) as engine:
        rng = np.random.default_rng(0)

        def ask(count: int) -> None:
            prompts = [rng.integers(0, 131, int(rng.integers(1, 6))).tolist() for _ in range(count)]
            assert len(engine.generate(prompts, max_tokens=2)) == count

        ask(2000)
        gc.collect()
        before, held = resident(), engine.device_bytes()
        ask(8000)
        gc.collect()
        assert engine.stats().pages_used == 0 and engine.device_bytes() == held
        assert resident() - before < 64 << 20  # 8 KB a request would be as much


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# ---- programs that cannot be ragged


@pytest.mark.parametrize("name", ["llama_nokv.pte", "llama_int8.pte"])
@pytest.mark.filterwarnings("ignore:.* (serves its sequences in turns|runs outside its delegates)")
def test_programs_that_take_turns_answer_as_alone(name: str, where: str | None) -> None:
    path = TESTS / "conformance" / name
    prompts = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5]]
    with LLM(path, device=where) as llm:
        wanted = []
        for prompt in prompts:
            llm.reset()
            wanted.append(llm.generate(prompt, max_tokens=6).tokens)
    with Engine(path, device=where, max_sequences=2) as engine:
        assert [answer.tokens for answer in engine.generate(prompts, max_tokens=6)] == wanted
