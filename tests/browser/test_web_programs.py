"""Programs of tests/conformance in Chromium: every step of their schedules, as in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from schedules import PROGRAMS, error_of_range, steps
from web_engine import HALVES, Engine, engine_of

from hightide.web.export_file import export_program

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("webgpu")]
LLAMAS = [
    "gemma_norms",
    "llama_8da4w",
    "llama_all_logits",
    "llama_chunks",
    "llama_e8",
    "llama_fp16",
    "llama_fp32",
    "llama_g64",
    "llama_gqa",
    "llama_half_rope",
    "llama_int8",
    "llama_mqa",
    "llama_nokv",
    "llama_static",
    "qwen2",
    "qwen3",
    "smollm2",
]
OTHERS = ["bert", "portable", "slices", "symints_between", "two_dims"]
TOLERANCE = {"llama_fp16": 1e-3, "llama_8da4w": 5e-3}  # the eager model rounds to halves, or to 8 bits
PLAIN = {"without": ["subgroups", "shader-f16"], "variant": "plain"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, Path] = {}

    def export(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            export_program(PROGRAMS / f"{name}.pte", made[name])
        return made[name]

    return export


def check_schedule(engine: Engine, name: str) -> None:
    for number, (_, inputs, expected) in enumerate(steps(name)):
        got = engine.forward(inputs, expected)
        for g, e in zip(got, expected, strict=True):
            assert error_of_range(g, e) < TOLERANCE.get(name, 1e-4), f"step {number}"


@pytest.mark.parametrize("name", [*LLAMAS, *OTHERS])
def test_a_schedule_on_what_the_adapter_offers(name: str, browser: Any, exported: Any) -> None:
    with engine_of(browser, exported(name)) as engine:
        assert engine.load_program()["leftOut"] == []
        check_schedule(engine, name)


@pytest.mark.parametrize("name", ["llama_gqa", "qwen3"])
def test_a_schedule_without_features(name: str, browser: Any, exported: Any) -> None:
    with engine_of(browser, exported(name)) as engine:
        assert engine.load_program(**PLAIN)["plan"] == "plain"
        check_schedule(engine, name)


@pytest.mark.parametrize("plan", HALVES)
@pytest.mark.parametrize("name", ["llama_fp16", "llama_gqa", "bert"])
def test_a_schedule_with_halves(name: str, plan: str, browser_with_halves: Any, exported: Any) -> None:
    with engine_of(browser_with_halves, exported(name)) as engine:
        about = engine.load_program(variant=plan)
        assert (about["plan"], about["leftOut"]) == (plan, [])
        check_schedule(engine, name)


def test_bad_inputs_lose_nothing(browser: Any, exported: Any) -> None:
    (_, inputs, expected), (_, second, then), *_ = steps("llama_gqa")
    tokens, position = inputs
    bad = [
        ([tokens], "takes 2 inputs"),
        ([np.zeros((1, 48), np.int64), position], "dim 1 of input tokens is 48; the program takes at most 47"),
        ([np.zeros(4, np.int64), position], "takes rank 2"),
        ([tokens + 10_000, position], "token id|index|must be in"),
        ([tokens, position + 10_000], "context"),
        ([tokens + 0.5, position], "not a 32-bit integer"),
    ]
    with engine_of(browser, exported("llama_gqa")) as engine:
        engine.load_program()
        got = engine.forward(inputs, expected)
        for given, message in bad:
            with pytest.raises(Exception, match=f"InputError.*({message})"):
                engine.forward(given, expected)
        assert error_of_range(got[0], expected[0]) < 1e-4
        assert error_of_range(engine.forward(second, then)[0], then[0]) < 1e-4


def test_state_is_reset(browser: Any, exported: Any) -> None:
    _, inputs, expected = next(steps("llama_gqa"))
    with engine_of(browser, exported("llama_gqa")) as engine:
        engine.load_program()
        first = engine.forward(inputs, expected)
        engine.page.evaluate("() => window.engine.reset()")
        np.testing.assert_array_equal(engine.forward(inputs, expected)[0], first[0])


def test_a_lost_device_takes_the_state_with_it(browser: Any, exported: Any) -> None:
    _, inputs, expected = next(steps("llama_gqa"))
    with engine_of(browser, exported("llama_gqa")) as engine:
        engine.load_program()
        engine.forward(inputs, expected)
        engine.lose_device()
        with pytest.raises(Exception, match=r"DeviceLostError.*give its inputs from the start"):
            engine.forward(inputs, expected)
        assert error_of_range(engine.forward(inputs, expected)[0], expected[0]) < 1e-4
