"""hightide.Engine as a caller sees it: requests from any thread and from asyncio, and what goes wrong.

Every test runs on the NumPy references, and on the GPU where there is an adapter.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hightide import LLM, Engine
from hightide.errors import HightideError, InputError
from hightide.llm.batcher import Batcher
from hightide.llm.generation import Generation

TESTS = Path(__file__).parents[1]
LLAMA = TESTS / "models" / "llama.gguf"
CONTEXT, VOCAB = 64, 131
PROMPTS = [[3, 14, 15, 92, 65], [35, 89], [79, 32, 38, 46, 26, 43, 38, 32, 79, 50] * 3, [7] * 20, [1, 2, 3]]


def open_engine(where: str | None, model: Path = LLAMA, **options: Any) -> Engine:
    return Engine(model, device=where, **{"context": CONTEXT, "chunk": 16, "max_sequences": 4} | options)


@pytest.fixture
def engine(where: str | None) -> Iterator[Engine]:
    with open_engine(where) as engine:
        yield engine
        stats = engine.stats()
        assert (stats.running, stats.waiting, stats.pages_used) == (0, 0, 0)


@cache
def alone(where: str | None, prompt: tuple[int, ...], **options: Any) -> list[int]:
    """The answer of a model that does nothing else."""
    llm = shared_llm(where)
    llm.reset()
    return llm.generate(list(prompt), **options).tokens


@cache
def shared_llm(where: str | None) -> LLM:
    return LLM(LLAMA, device=where, context=CONTEXT, chunk=16)


def expected(where: str | None, **options: Any) -> list[list[int]]:
    return [alone(where, tuple(prompt), **options) for prompt in PROMPTS]


# ---- right answers


def test_a_list_in_a_list_out(engine: Engine, where: str | None) -> None:
    done = engine.generate(PROMPTS, max_tokens=9)
    assert [answer.tokens for answer in done] == expected(where, max_tokens=9)
    assert {answer.finish_reason for answer in done} == {"length"}
    assert engine.generate([]) == []


def test_pieces_arrive_one_by_one_and_again_as_a_result(engine: Engine, where: str | None) -> None:
    request = engine.submit(PROMPTS[0], max_tokens=7)
    assert [piece.token for piece in request] == alone(where, tuple(PROMPTS[0]), max_tokens=7)
    assert list(request) == []
    done = request.result()
    assert done.tokens == alone(where, tuple(PROMPTS[0]), max_tokens=7) and done.finish_reason == "length"
    assert done.stats.prompt_tokens == 5 and done.stats.new_tokens == 7 and request.finish_reason == "length"


def test_more_requests_than_sequences(engine: Engine, where: str | None) -> None:
    requests = [engine.submit(prompt, max_tokens=5) for _ in range(5) for prompt in PROMPTS]
    assert [request.result(60).tokens for request in requests] == expected(where, max_tokens=5) * 5


def test_samples_share_the_prompt(engine: Engine, where: str | None) -> None:
    prompt = PROMPTS[2]
    request = engine.submit(prompt, n=4, temperature=1.0, seed=3, max_tokens=6)
    by_sample: dict[int, list[int]] = {n: [] for n in range(4)}
    for piece in request:
        by_sample[piece.sample].append(piece.token)
    want = [alone(where, tuple(prompt), temperature=1.0, seed=3 + n, max_tokens=6) for n in range(4)]
    assert list(by_sample.values()) == want == [done.tokens for done in request.results()]
    assert engine.stats().rows <= len(prompt) + 3 + 4 * 6


def ask_alike(engine: Engine, length: int) -> None:
    """16 requests with one prompt: it is read once."""
    prompt = np.random.default_rng(0).integers(0, VOCAB, length).tolist()
    requests = [engine.submit(prompt, max_tokens=4) for _ in range(16)]
    answers = {tuple(request.result(300).tokens) for request in requests}
    stats = engine.stats()
    assert len(answers) == 1 and stats.prefix_tokens >= 15 * (length - 2)
    assert stats.rows <= length + 15 * 2 + 16 * 3


def test_an_equal_prompt_is_read_once(where: str | None) -> None:
    with open_engine(where, context=256, max_sequences=16, chunk=64) as engine:
        ask_alike(engine, 240)


@pytest.mark.slow
@pytest.mark.gpu
def test_an_equal_prompt_of_a_real_model_is_read_once(device: object) -> None:
    with Engine("default", context=544, max_sequences=16) as engine:
        ask_alike(engine, 512)


@pytest.mark.parametrize("draft", ["llama.gguf", "llama_tied.gguf"])
def test_a_draft_model_changes_nothing_but_the_steps(draft: str, where: str | None) -> None:
    with open_engine(where, draft=TESTS / "models" / draft) as engine:
        for options in ({"max_tokens": 20}, {"max_tokens": 20, "temperature": 0.8, "seed": 2}):
            assert [done.tokens for done in engine.generate(PROMPTS, **options)] == expected(where, **options)
        new, steps = engine.stats().new_tokens, engine.stats().steps
        if draft == "llama.gguf":  # which always guesses right where the largest logit is taken
            assert steps < new


def test_a_draft_of_another_vocabulary_is_refused(where: str | None) -> None:
    other = TESTS / "conformance" / "llama_gqa.pte"
    with pytest.raises(InputError, match=r"llama_gqa.pte has a vocabulary of \d+ tokens, and llama.gguf one of 131"):
        open_engine(where, draft=other)


# ---- threads and asyncio


def test_from_many_threads(engine: Engine, where: str | None) -> None:
    want, wrong = expected(where, max_tokens=6), []

    def ask(n: int) -> None:
        for at in range(n, n + 3):
            got = [piece.token for piece in engine.submit(PROMPTS[at % 5], max_tokens=6)]
            if got != want[at % 5]:
                wrong.append(got)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        sys.setswitchinterval(interval)
    assert not wrong and not any(thread.is_alive() for thread in threads)


def test_from_asyncio(engine: Engine, where: str | None) -> None:
    async def ask(prompt: list[int]) -> list[int]:
        return [piece.token async for piece in engine.submit(prompt, max_tokens=6)]

    async def all_of_them() -> list[list[int]]:
        return list(await asyncio.gather(*(ask(prompt) for prompt in PROMPTS)))

    assert asyncio.run(all_of_them()) == expected(where, max_tokens=6)


def test_one_result_for_asyncio(engine: Engine, where: str | None) -> None:
    done = asyncio.run(engine.submit(PROMPTS[0], max_tokens=6).result_async())
    assert done.tokens == alone(where, tuple(PROMPTS[0]), max_tokens=6)


# ---- ends


def test_cancel_frees_the_pages_and_leaves_the_others(
    engine: Engine, where: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled, step = threading.Event(), Batcher.step

    def gated_step(batcher: Batcher) -> list[Generation]:
        """The step behind the first tokens waits, so that the answer is not over before it is cancelled."""
        if batcher.counters.new_tokens > 4:
            cancelled.wait(60)
        return step(batcher)

    monkeypatch.setattr(Batcher, "step", gated_step)
    long = engine.submit(PROMPTS[0], max_tokens=55)
    other = engine.submit(PROMPTS[1], max_tokens=12)
    next(long)
    long.cancel()
    cancelled.set()
    assert len(list(long)) < 55 and long.finish_reason == "closed"
    assert other.result(60).tokens == alone(where, tuple(PROMPTS[1]), max_tokens=12)
    long.cancel()  # again is fine
    assert engine.stats().pages_used == 0


def test_a_full_context_ends_an_answer(engine: Engine, where: str | None) -> None:
    done = engine.submit(PROMPTS[2]).result(60)
    assert done.finish_reason in ("context", "stop") and done.tokens == alone(where, tuple(PROMPTS[2]))


def test_a_timeout_is_one(engine: Engine) -> None:
    request = engine.submit(PROMPTS[0], max_tokens=50)
    with pytest.raises(TimeoutError, match="not complete after 0 s"):
        request.result(0)
    request.cancel()
    list(request)


def test_closing_ends_all_requests(where: str | None) -> None:
    engine = open_engine(where)
    requests = [engine.submit(prompt, max_tokens=50) for prompt in PROMPTS]
    engine.close()
    engine.close()
    for request in requests:
        with pytest.raises(HightideError, match="the engine was closed"):
            request.result(10)
    with pytest.raises(HightideError, match=r"the engine of llama.gguf is closed"):
        engine.submit(PROMPTS[0])
    assert "closed" in repr(engine)


def test_an_engine_that_nobody_holds_ends_its_thread(where: str | None) -> None:
    engine = open_engine(where)
    engine.generate(PROMPTS[:2], max_tokens=2)
    del engine
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name == "hightide engine" and thread.is_alive()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_fork_is_told_at_once(engine: Engine) -> None:
    child = os.fork()
    if not child:
        try:
            engine.submit(PROMPTS[0])
        except HightideError as error:
            os._exit(0 if "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ---- what is refused


BAD: list[tuple[dict[str, Any], str]] = [
    ({"prompt": [1] * (CONTEXT + 1)}, "the prompt has 65 tokens; the context holds 64"),
    ({"prompt": []}, "the prompt is empty"),
    ({"prompt": [VOCAB]}, "token id 131 is outside the vocabulary of 131"),
    ({"max_token": 3}, "there is no option 'max_token'"),
    ({"max_tokens": "3"}, "max_tokens must be an integer, not '3'"),
    ({"n": 0}, "n must be at least 1, not 0"),
    ({"n": 65}, "n must be at most 64, not 65"),
    ({"speculate": True, "logprobs": 1}, "no penalties and no logprobs"),
    ({"stop": ["x"]}, "stop strings need a tokenizer"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_requests_leave_the_others_untouched(
    engine: Engine, where: str | None, options: dict[str, Any], message: str
) -> None:
    good = engine.submit(PROMPTS[0], max_tokens=8)
    with pytest.raises(InputError, match=message):
        engine.submit(**{"prompt": PROMPTS[1], **options})
    assert good.result(60).tokens == alone(where, tuple(PROMPTS[0]), max_tokens=8)


def test_a_request_that_fails_leaves_the_others_untouched(engine: Engine, where: str | None) -> None:
    nothing = engine.submit(PROMPTS[1], logit_bias=dict.fromkeys(range(VOCAB), -float("inf")))
    good = engine.submit(PROMPTS[0], max_tokens=8)
    with pytest.raises(InputError, match="leave no token to choose"):
        nothing.result(60)
    assert nothing.finish_reason == "error"
    assert good.result(60).tokens == alone(where, tuple(PROMPTS[0]), max_tokens=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_memory": "2 bananas"}, "kv_memory must be bytes, or text such as '2 GiB', not '2 bananas'"),
        ({"kv_memory": 10}, "10 bytes do not hold the keys and values of 16 tokens"),
        ({"max_sequences": 0}, "max_sequences must be at least 1, not 0"),
        ({"reproducible": 1}, "reproducible must be True or False, not 1"),
        ({"draft": 3}, "draft must be the path of a file, not 3"),
    ],
)
def test_bad_options_of_an_engine(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_engine("cpu", **options)


def test_too_many_that_wait_are_refused(where: str | None) -> None:
    with open_engine(where, max_sequences=1, max_waiting=2) as engine:
        first = engine.submit(PROMPTS[0], max_tokens=50)
        next(first)
        waiting = []
        with pytest.raises(HightideError, match="2 requests are waiting already"):
            for _ in range(4):
                waiting.append(engine.submit(PROMPTS[1], max_tokens=2))
        assert len(waiting) >= 2
        assert engine.stats().waiting <= 2
        first.cancel()
        assert [request.result(60).tokens for request in waiting] == [
            alone(where, tuple(PROMPTS[1]), max_tokens=2) for _ in waiting
        ]


def test_who_gives_up_does_not_wait(where: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_engine(where, max_sequences=1, max_waiting=1) as engine:
        step, begun, free = engine._loop.batcher.step, threading.Event(), threading.Event()

        def held() -> Any:
            heard = step()
            begun.set()
            assert free.wait(60)
            return heard

        monkeypatch.setattr(engine._loop.batcher, "step", held)
        first = engine.submit(PROMPTS[0], max_tokens=5)
        assert begun.wait(60)
        for _ in range(3):
            first.cancel()
        assert engine.stats().waiting == 0
        second = engine.submit(PROMPTS[1], max_tokens=2)
        assert engine.stats().waiting == 1
        free.set()
        assert second.result(60).tokens == alone(where, tuple(PROMPTS[1]), max_tokens=2)


def test_little_memory_sets_sequences_aside(where: str | None) -> None:
    with open_engine(where, kv_memory=16 * 1024 * 5) as engine:
        requests = [engine.submit(prompt, max_tokens=30) for prompt in PROMPTS]
        answers = [request.result(60).tokens for request in requests]
        context = engine.context
    llm = LLM(LLAMA, device=where, context=context, chunk=16)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        llm.reset()
        assert llm.generate(prompt, max_tokens=30).tokens == answer
