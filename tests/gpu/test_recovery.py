"""A lost device is opened again, and what was on it is brought back or said to be gone."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_vocabularies
from schedules import PROGRAMS, steps
from smollm2 import smollm2_file

import hightide
from hightide.errors import DeviceLostError
from hightide.gpu import device as devices
from hightide.gpu.device import Device
from hightide.gpu.recorder import Recorder

TESTS = Path(__file__).parents[1]
PROMPT = [3, 17, 9, 40, 5, 22, 8, 11, 2, 30, 7]


@pytest.fixture(autouse=True)
def own_device(monkeypatch: pytest.MonkeyPatch, device: Device) -> Iterator[None]:
    """These tests lose their own device, not the one that other tests use."""
    monkeypatch.setattr(devices, "_opened", {})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the device .* was lost")
        yield


class Losses:
    """Loses the device at chosen submits, counted from 1, before or after the submit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.at, self.after = 0, frozenset[int](), False
        submit = Recorder.submit

        def lossy(recorder: Recorder, *given: Any) -> Any:
            self.count += 1
            lost = self.count in self.at
            if lost and not self.after:
                recorder.device.wgpu.destroy()
            submission = submit(recorder, *given)
            if lost and self.after:
                recorder.device.wgpu.destroy()
            return submission

        monkeypatch.setattr(Recorder, "submit", lossy)

    def plan(self, *at: int, after: bool = False) -> None:
        self.count, self.at, self.after = 0, frozenset(at), after


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> Losses:
    return Losses(monkeypatch)


def lose() -> None:
    (device,) = devices._opened.values()
    device.wgpu.destroy()
    assert device.lost


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["two_dims", "symints_between"])
def test_a_method_without_state_goes_on(name: str, after: bool, losses: Losses) -> None:
    given = [inputs for _, inputs, _ in steps(name)][:3]
    with hightide.load(PROGRAMS / f"{name}.pte").method() as method:
        wanted = [method(*inputs) for inputs in given]
        for at in (1, 3):
            losses.plan(at, after=after)
            for inputs, want in zip(given, wanted, strict=True):
                assert all(np.array_equal(a, b) for a, b in zip(method(*inputs), want, strict=True))


@pytest.mark.parametrize("name", ["llama_chunks", "counter"])
def test_a_method_with_state_says_that_it_is_gone(name: str) -> None:
    given = [inputs for method, inputs, _ in steps(name) if method == "forward"][:2]
    method = hightide.load(PROGRAMS / f"{name}.pte").method()
    on_device = any(session.planner.aliases.state for session in method.sessions)
    wanted = [method(*inputs) for inputs in given]
    method.reset()
    method(*given[0])
    lose()
    if on_device:
        for _ in range(2):  # until somebody resets it: going on without its caches would be silently wrong
            with pytest.raises(DeviceLostError, match=r"its state \(KV caches and other buffers\) is gone: call reset"):
                method(*given[1])
        method.reset()
        method(*given[0])
    assert np.array_equal(method(*given[1])[0], wanted[1][0])


def test_a_lost_device_is_lost_for_nobody_else() -> None:
    given = next(steps("two_dims"))[1]
    program = hightide.load(PROGRAMS / "two_dims.pte")
    wanted = program.method()(*given)[0]
    lose()
    assert np.array_equal(hightide.load(PROGRAMS / "two_dims.pte").method()(*given)[0], wanted)
    program.method().close()
    assert np.array_equal(program.method()(*given)[0], wanted)


OPTIONS = [{}, {"temperature": 0.9, "seed": 5}, {"speculate": True}, {"logprobs": 2}]
MODELS = ["models/llama.gguf", "conformance/llama_all_logits.pte"]
QUICK = [("models/llama.gguf", OPTIONS[1], 9), ("models/lfm2.gguf", OPTIONS[1], 9)]
ALL = [(name, options, 3) for name in MODELS for options in OPTIONS]


@pytest.mark.parametrize(
    ("name", "options", "step"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in ALL)], ids=str
)
def test_an_answer_goes_on(name: str, options: dict[str, Any], step: int, losses: Losses) -> None:
    with hightide.LLM(TESTS / name, **({"context": 48, "chunk": 5} if name.endswith("gguf") else {})) as llm:
        losses.plan()
        wanted = llm.generate(PROMPT, max_tokens=8, **options)
        for at in range(1, losses.count + 1, step):
            llm.reset()
            losses.plan(at, at + 3, after=at % 2 == 0)
            got = llm.generate(PROMPT, max_tokens=8, **options)
            assert got.tokens == wanted.tokens and got.finish_reason == wanted.finish_reason, at
            if "logprobs" in options:
                logprobs = [[piece.logprob for piece in one.pieces] for one in (got, wanted)]
                np.testing.assert_allclose(*logprobs, rtol=1e-5)  # tokens are read again, several at a time


def test_an_answer_by_a_grammar_goes_on(losses: Losses) -> None:
    options = {"grammar": hightide.Grammar.regex("[ab]{4}(abc|12){3,}x"), "temperature": 1.0, "seed": 3}
    tokenizer = small_vocabularies.byte_level(131)
    with hightide.LLM(TESTS / "models/llama.gguf", context=64, chunk=5, tokenizer=tokenizer) as llm:
        losses.plan()
        wanted = llm.generate(PROMPT, max_tokens=40, **options)
        for at in range(2, losses.count + 1, 9):
            llm.reset()
            losses.plan(at, at + 3, after=at % 2 == 0)
            got = llm.generate(PROMPT, max_tokens=40, **options)
            assert (got.text, got.finish_reason) == (wanted.text, wanted.finish_reason), at


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [1, 2, 5, 9, 14])
def test_many_answers_go_on(step: int, after: bool, losses: Losses) -> None:
    prompts = [PROMPT, PROMPT[:3], [5] * 30, PROMPT[4:], [9, 8]]
    options = {"context": 64, "chunk": 16, "max_sequences": 3}
    with hightide.Engine(TESTS / "models" / "llama.gguf", **options) as engine:
        wanted = [answer.tokens for answer in engine.generate(prompts, max_tokens=9)]
    with hightide.Engine(TESTS / "models" / "llama.gguf", **options) as engine:
        losses.plan(step, after=after)
        assert [answer.tokens for answer in engine.generate(prompts, max_tokens=9)] == wanted
        assert losses.count > step and engine.stats().pages_used == 0


def test_an_answer_longer_than_the_context_goes_on(losses: Losses) -> None:
    options = {"max_tokens": 40, "on_full": "shift", "temperature": 0.9, "seed": 5}
    with hightide.LLM(TESTS / "models/llama.gguf", context=24, chunk=5) as llm:
        wanted = llm.generate(PROMPT, **options).tokens
        for at in (2, 45):
            llm.reset()
            losses.plan(at)
            assert llm.generate(PROMPT, **options).tokens == wanted, at


@pytest.mark.slow
def test_a_conversation_goes_on(tmp_path: Path) -> None:
    with hightide.LLM(TESTS / "models/llama.gguf", context=48, chunk=5) as llm:
        first = llm.generate(PROMPT, max_tokens=5).tokens
        second = llm.generate([*PROMPT, *first, 4], max_tokens=5).tokens
        llm.save_state(tmp_path / "wanted")
        llm.reset()
        llm.generate(PROMPT, max_tokens=5)
        lose()
        assert llm.generate([*PROMPT, *first, 4], max_tokens=5).tokens == second
        lose()
        llm.save_state(tmp_path / "state")  # the tokens are known, so they are read again
        lose()
        llm.load_state(tmp_path / "state")
        with np.load(tmp_path / "wanted") as a, np.load(tmp_path / "state") as b:
            assert a["tokens"].tolist() == b["tokens"].tolist()
            for name in a.files:
                if name.startswith("state"):
                    np.testing.assert_allclose(a[name], b[name], atol=1e-5)


@pytest.mark.slow
def test_a_device_that_is_lost_again_and_again(losses: Losses) -> None:
    with hightide.LLM(TESTS / "models/llama.gguf", context=48) as llm:
        wanted = llm.generate(PROMPT, max_tokens=5).tokens
        losses.plan(*range(1, 50))
        with pytest.raises(DeviceLostError, match="was lost"):
            llm.generate(PROMPT, max_tokens=5)
        losses.plan()
        assert llm.generate(PROMPT, max_tokens=5).tokens == wanted


@pytest.mark.slow
def test_answers_of_smollm2_at_random_steps(losses: Losses) -> None:
    """12 of them; HIGHTIDE_LOSSES says how many else, and HIGHTIDE_SEED which. Each leaves memory behind."""
    chance, wanted, lost = np.random.default_rng(int(os.environ.get("HIGHTIDE_SEED", "11"))), {}, 0
    questions = ["What is the capital of France?", "Name three colours.", "Why is the sky blue?"]
    prompts = [[{"role": "user", "content": question}] for question in questions]
    with hightide.LLM(smollm2_file(), context=256) as llm:
        for n, prompt in enumerate(prompts):
            llm.reset()
            losses.plan()
            wanted[n] = llm.generate(prompt, max_tokens=24).tokens, losses.count
        while lost < int(os.environ.get("HIGHTIDE_LOSSES", "12")):
            n = int(chance.integers(len(prompts)))
            tokens, count = wanted[n]
            places = sorted(chance.choice(np.arange(1, count + 1), 2, replace=False).tolist())
            llm.reset()
            losses.plan(*places, after=bool(chance.integers(2)))
            assert llm.generate(prompts[n], max_tokens=24).tokens == tokens, (n, places)
            lost += len(places)
