"""Programs whose state cannot go back (recurrent layers, ring caches): answers are those of a program just opened."""

from __future__ import annotations

from pathlib import Path

import pytest

import hightide

PROGRAMS = Path(__file__).parents[1] / "conformance" / "model_exports"
NAMES = ("lfm2_xnnpack", "qwen3_5_xnnpack", "ring_cache_portable")
LONG = [1, 2, 3, 4, 5, 6, 7, 11, 13, 17, 19, 23, 29, 31, 3, 8]
PROMPTS = ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 9, 8], LONG, LONG[:12], [*LONG[:13], 2], [1])


def opened(name: str, where: str | None) -> hightide.LLM:
    return hightide.LLM(PROGRAMS / f"{name}.pte", device=where)


def answer(llm: hightide.LLM, prompt: list[int]) -> list[int]:
    return list(llm.generate(prompt, max_tokens=5, temperature=0).tokens)


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_that_shares_a_start_with_the_last_one(name: str, where: str | None) -> None:
    with opened(name, where) as llm:
        for prompt in PROMPTS:
            with opened(name, where) as fresh:
                assert answer(llm, prompt) == answer(fresh, prompt), prompt


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_conversation(name: str, where: str | None, tmp_path: Path) -> None:
    with opened(name, where) as llm, opened(name, where) as other:
        answer(llm, LONG)
        llm.save_state(tmp_path / "state")
        other.load_state(tmp_path / "state")
        longer = [*llm.tokens, 5, 6]
        assert other.tokens == llm.tokens
        assert answer(other, longer) == answer(llm, longer)


@pytest.mark.parametrize("name", NAMES)
def test_sequences_in_turns(name: str, where: str | None) -> None:
    path = PROGRAMS / f"{name}.pte"
    with pytest.warns(UserWarning, match="in turns"):
        engine = hightide.Engine(path, device=where, max_sequences=2)
    with opened(name, where) as llm, engine:
        requests = [engine.submit(prompt, max_tokens=5, temperature=0) for prompt in PROMPTS]
        for prompt, request in zip(PROMPTS, requests, strict=True):
            assert list(request.result().tokens) == answer(llm, prompt), prompt
