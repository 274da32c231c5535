"""What does not fit is refused before anything is allocated, with what would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wgpu

from hightide import LLM
from hightide.errors import TooLargeError
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


class SmallDevice:
    """Has room for so many bytes; what is destroyed makes room again."""

    def __init__(self, device: Device, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room, self.asked = room, 0
        create = device.wgpu.create_buffer

        def create_buffer(*, size: int, **options: Any) -> Any:
            self.asked += 1
            if size > self.room:
                raise wgpu.GPUOutOfMemoryError("Not enough memory left")
            self.room -= size
            buffer = create(size=size, **options)
            destroy = buffer.destroy

            def destroyed() -> None:
                self.room += size
                destroy()

            buffer.destroy = destroyed
            return buffer

        monkeypatch.setattr(device.wgpu, "create_buffer", create_buffer)


def test_memory_that_runs_out_while_buffers_are_made(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallDevice(device, 100_000, monkeypatch)
    with pytest.raises(TooLargeError, match=r"needs .* KiB .*Not enough memory left; .*a context of 64 needs"):
        LLM(MODEL, context=128, kv="f32")
    assert small.room == 100_000, "what was made before is freed"


def test_memory_that_is_enough_for_smaller_chunks(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with LLM(MODEL, context=128, chunk=128) as llm:
        wanted = llm.generate([1, 2, 3], max_tokens=4).tokens
        needs = llm.decoder.device_bytes()
    SmallDevice(device, sum(needs.values()) - needs["activations"] // 4, monkeypatch)  # half of them are the sampler's
    with pytest.warns(UserWarning, match="prompts are read in chunks of 32 tokens, not 128"):
        llm = LLM(MODEL, context=128, chunk=128)
    assert llm.generate([1, 2, 3], max_tokens=4).tokens == wanted
    llm.close()


def test_the_references_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SMALL", 0)
    monkeypatch.setattr(room, "free_memory", lambda: 450_000)
    with pytest.raises(TooLargeError, match=r"439.5 KiB are free; a context of \d+ needs"):
        LLM(MODEL, context=256, device="cpu")
