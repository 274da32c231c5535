"""What does not fit is refused before anything is allocated, with what would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hightide import LLM
from hightide.errors import DeviceError, TooLargeError
from hightide.gpu.device import Device
from hightide.runtime import room

MODEL = Path(__file__).parents[1] / "models" / "llama.gguf"


@pytest.fixture
def created(device: Device) -> Iterator[int]:
    """No GPU object is made."""
    before = device.created
    yield before
    assert device.created == before


def test_a_cache_over_the_binding_limit_says_which_context_fits(
    device: Device, created: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = 256 * 2 * 16 * 4  # 2 kv heads of 16 elements
    monkeypatch.setattr(device, "max_binding", cache - 1)
    with pytest.raises(TooLargeError, match=rf"needs {cache} bytes; .* at most {cache - 1}; .*a context of 128 needs"):
        LLM(MODEL, context=256, chunk=8, kv="f32")


def test_a_model_over_the_free_memory_says_what_fits(
    device: Device, created: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not device.traits.software:
        pytest.skip("the adapter has memory of its own")
    monkeypatch.setattr(room, "SMALL", 0)
    monkeypatch.setattr(room, "free_memory", lambda: 250_000)
    with pytest.raises(TooLargeError, match=r"needs .* KiB .*weights .*; 244.1 KiB are free; .*a context of \d+ needs"):
        LLM(MODEL, context=256, chunk=8, kv="f32")


def test_weights_that_do_not_fit_say_so(device: Device, created: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not device.traits.software:
        pytest.skip("the adapter has memory of its own")
    monkeypatch.setattr(room, "SMALL", 0)
    monkeypatch.setattr(room, "free_memory", lambda: 1000)
    with pytest.raises(TooLargeError, match="for its weights alone, so a smaller one is needed"):
        LLM(MODEL, context=64)


def test_memory_that_runs_out_while_buffers_are_made(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    make, made = device.buffer, []

    def buffer(*args: object, **options: object) -> object:
        if len(made) == 5:
            raise DeviceError("Not enough memory left")
        made.append(make(*args, **options))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(device, "buffer", buffer)
    with pytest.raises(TooLargeError, match=r"needs .* KiB .*Not enough memory left; .*a context of 64 needs"):
        LLM(MODEL, context=128, kv="f32")
    assert len(made) == 5


def test_the_references_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SMALL", 0)
    monkeypatch.setattr(room, "free_memory", lambda: 450_000)
    with pytest.raises(TooLargeError, match=r"439.5 KiB are free; a context of \d+ needs"):
        LLM(MODEL, context=256, device="cpu")
