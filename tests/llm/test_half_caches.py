"""Keys and values held as halves: half the memory, near the same logits, and talks that move between both."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from hightide import LLM
from hightide.cli import main
from hightide.errors import InputError, UnsupportedError
from hightide.gpu.device import Device

TESTS = Path(__file__).parents[1]
LLAMA = TESTS / "models" / "llama.gguf"
PROMPT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38]


@pytest.fixture(autouse=True)
def _needs_halves(device: Device) -> None:
    if not device.traits.f16:
        pytest.skip("the adapter has no halves")


def logits(llm: LLM, tokens: list[int], position: int) -> np.ndarray:
    straight = llm.straight()
    step = straight.collect(straight.launch(tokens, position, logits=True))
    assert step.logits is not None
    return step.logits


@pytest.mark.parametrize(
    "model", ["models/llama.gguf", "models/gemma3.gguf", "models/lfm2.gguf", "conformance/llama_gqa.pte"]
)
def test_halves_of_the_memory_and_near_the_same_logits(model: str) -> None:
    whole, half = (LLM(TESTS / model, context=48, kv=kv) for kv in ("f32", "f16"))
    assert half.decoder.device_bytes()["state"] * 2 == whole.decoder.device_bytes()["state"]
    for tokens, position in ((PROMPT, 0), ([5], 10), ([7, 8, 9], 11)):
        want = logits(whole, tokens, position)
        error = np.abs(logits(half, tokens, position) - want).max() / np.ptp(want)
        assert error < 2e-3
    assert error > 0


def test_by_default_a_software_adapter_keeps_floats(device: Device) -> None:
    state = {kv: LLM(LLAMA, context=48, kv=kv).decoder.device_bytes()["state"] for kv in (None, "f32", "f16")}
    assert state[None] == state["f32" if device.traits.software else "f16"]


@pytest.mark.parametrize("saved", ["f16", "f32"])
def test_a_talk_goes_on_in_the_other_type(saved: str, tmp_path: Path) -> None:
    first, other = LLM(LLAMA, context=48, kv=saved), LLM(LLAMA, context=48, kv="f32" if saved == "f16" else "f16")
    first.generate(PROMPT, max_tokens=4)
    first.save_state(tmp_path / "talk.npz")
    other.load_state(tmp_path / "talk.npz")
    assert other.tokens == first.tokens
    position = len(first.tokens)
    mine, theirs = (logits(llm, [5], position) for llm in (first, other))
    assert np.abs(mine - theirs).max() < 2e-3 * np.ptp(mine)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="need an adapter with 16-bit floats"):
        LLM(LLAMA, device="cpu", kv="f16")
    with pytest.raises(InputError, match="f16 or f32, not as 'int4'"):
        LLM(LLAMA, kv="int4")
    with pytest.raises(UnsupportedError, match="one graph with a cache"):
        LLM(TESTS / "conformance" / "llama_nokv.pte", kv="f16")


def test_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for kv in ("f32", "f16"):
        arguments = ["generate", str(LLAMA), "3 14 15", "--ids", "--context", "48", "--max-tokens", "4", "--kv", kv]
        monkeypatch.setattr(sys, "argv", ["hightide", *arguments, "--json"])
        with pytest.raises(SystemExit) as done:
            main()
        assert not done.value.code
        shown[kv] = json.loads(capsys.readouterr().out)["stats"]["device_bytes"]["state"]
    assert shown["f16"] * 2 == shown["f32"]
