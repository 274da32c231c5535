"""Models with short convolutions: whatever a sequence was before, answers are those of a model just opened."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from hightide import LLM, Engine

MODELS = Path(__file__).parents[1] / "models"
LFM2 = MODELS / "lfm2.gguf"
LONG = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 38, 32, 79, 50, 28, 84, 19]
# Each shares its beginning with the one before, but for the last: a convolution of 4 looks back over where they part.
PROMPTS = (LONG[:7], [*LONG[:5], 9, 8], LONG, LONG[:12], [*LONG[:13], 2], LONG[:17], [1])


def opened(where: str | None) -> LLM:
    return LLM(LFM2, device=where, context=48, chunk=5)


@cache
def alone(where: str | None) -> list[list[int]]:
    """The answers of models that have seen nothing else."""
    made = []
    for prompt in PROMPTS:
        with opened(where) as fresh:
            made.append(fresh.generate(prompt, max_tokens=6).tokens)
    return made


def test_a_conversation_goes_back(where: str | None) -> None:
    with opened(where) as llm:
        answers = [llm.generate(prompt, max_tokens=6) for prompt in PROMPTS]
        assert [answer.tokens for answer in answers] == alone(where)
        assert answers[1].stats.reused_tokens == 5  # its beginning is not read again


def test_a_saved_conversation(where: str | None, tmp_path: Path) -> None:
    with opened(where) as llm, opened(where) as other:
        llm.generate(LONG, max_tokens=4)
        llm.save_state(tmp_path / "state")
        other.load_state(tmp_path / "state")
        longer = [*llm.tokens, 5, 6]
        answer = other.generate(longer, max_tokens=4)
        assert answer.tokens == llm.generate(longer, max_tokens=4).tokens
        assert answer.stats.reused_tokens == len(longer) - 2


def test_many_sequences_share_their_beginnings(where: str | None) -> None:
    with Engine(LFM2, device=where, context=48, chunk=5, max_sequences=3) as engine:
        answers = engine.generate(PROMPTS, max_tokens=6)
        assert [answer.tokens for answer in answers] == alone(where)


@pytest.mark.parametrize("draft", ["lfm2.gguf", "lfm2moe.gguf"], ids=["right", "wrong"])
def test_guesses_that_are_taken_back(draft: str, where: str | None) -> None:
    with Engine(LFM2, device=where, context=48, chunk=8, max_sequences=2, draft=MODELS / draft) as engine:
        assert [answer.tokens for answer in engine.generate(PROMPTS, max_tokens=6)] == alone(where)
        if draft == "lfm2.gguf":
            assert engine.stats().steps < engine.stats().new_tokens
