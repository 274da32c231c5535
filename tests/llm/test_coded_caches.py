"""Programs whose KV caches are 8-bit codes: many sequences at once or in turns, and saved conversations."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import hightide

PROGRAMS = Path(__file__).parents[1] / "conformance" / "model_exports"
ROWS, ONE_SCALE = "quantized_cache_xnnpack", "static_quantized_cache"
PROMPTS = ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 9, 8], [11, 13, 17, 19, 23, 29, 31, 3, 8, 4, 4, 2])


def answers(llm: hightide.LLM) -> list[list[int]]:
    return [list(llm.generate(prompt, max_tokens=5, temperature=0).tokens) for prompt in PROMPTS]


def served(engine: hightide.Engine) -> list[list[int]]:
    requests = [engine.submit(prompt, max_tokens=5, temperature=0) for prompt in PROMPTS]
    return [list(request.result().tokens) for request in requests]


def test_codes_with_scales_by_row_are_served_at_once(where: str | None) -> None:
    path = PROGRAMS / f"{ROWS}.pte"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "in turns"
        engine = hightide.Engine(path, device=where, max_sequences=3)
    with engine, hightide.LLM(path, device=where) as llm:
        assert served(engine) == answers(llm)
        assert llm.decoder.state_layout(3).kinds.count("i") == 4  # codes of keys and values, in two layers


def test_codes_with_one_scale_are_served_in_turns(where: str | None) -> None:
    path = PROGRAMS / f"{ONE_SCALE}.pte"
    with pytest.warns(UserWarning, match="in turns"):
        engine = hightide.Engine(path, device=where, max_sequences=2)
    with engine, hightide.LLM(path, device=where) as llm:
        assert served(engine) == answers(llm)


@pytest.mark.parametrize("name", [ROWS, ONE_SCALE])
def test_a_saved_conversation_has_the_codes(name: str, where: str | None, tmp_path: Path) -> None:
    path = PROGRAMS / f"{name}.pte"
    with hightide.LLM(path, device=where) as llm, hightide.LLM(path, device=where) as other:
        answers(llm)
        llm.save_state(tmp_path / "state")
        other.load_state(tmp_path / "state")
        longer = [*llm.tokens, 5, 6]
        ways = [model.generate(longer, max_tokens=5, temperature=0) for model in (llm, other)]
        assert ways[0].tokens == ways[1].tokens and ways[1].stats.reused_tokens
