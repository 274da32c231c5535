"""Sessions that share their constants: each has its own state, and the weights are on the device once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from llamas import INPUTS, call, llama_session, small_llama

from hightide.gpu import device as devices
from hightide.gpu.device import Device, open_device
from hightide.runtime import session_memory
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.proven_session import ProvenSession


@pytest.fixture(params=["gpu", "proven", "cpu"])
def first(request: pytest.FixtureRequest, device: Device) -> Iterator[Any]:
    if request.param == "cpu":
        made: Any = CpuSession(small_llama(), **INPUTS)
    else:
        made = llama_session(device) if request.param == "gpu" else ProvenSession(small_llama(), device, **INPUTS)
    with made:
        yield made


def answers(session: Any) -> list[bytes]:
    session.reset()
    return [session.run(call(tokens, at))[0].tobytes() for tokens, at in ((9, 0), (1, 9), (3, 10))]


def test_state_is_its_own(first: Any) -> None:
    expected = answers(first)
    state = [array.tobytes() for array in first.read_state()]
    with first.sibling() as second, second.sibling() as third:
        assert answers(second) == answers(third) == expected
        second.run(call(5, 20))
        assert [array.tobytes() for array in first.read_state()] == state
        ticket, other = first.launch(call(1, 13)), third.launch(call(1, 13))
        assert first.collect(ticket)[0].tobytes() == third.collect(other)[0].tobytes()
    assert answers(first) == expected


def test_weights_are_held_once_and_freed_with_the_last(first: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answers(first)
    weights = first.device_bytes()["weights"]
    assert weights
    uploaded = []
    upload = session_memory.upload
    monkeypatch.setattr(session_memory, "upload", lambda d, b, value: (uploaded.append(value.id), upload(d, b, value)))
    second = first.sibling()
    assert set(uploaded) <= first.planner.aliases.state
    assert second.device_bytes()["weights"] == 0 and first.device_bytes()["weights"] == weights
    assert second.device_bytes()["state"] == first.device_bytes()["state"]
    first.close()
    assert answers(second) == expected
    third = second.sibling()
    second.close()
    second.close()
    assert answers(third) == expected
    if hasattr(third, "memory"):
        assert (held := third.memory.weights()) is not None
        third.close()
        assert held.holders == 0
    else:
        references = third.references
        assert references.kept_bytes
        third.close()
        assert not references.kept_bytes


def test_a_lost_device_is_recovered_by_each(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_opened", {})
    first = llama_session(open_device(device.adapter))
    second = first.sibling()
    expected = answers(first)
    first.device.wgpu.destroy()
    for session in (second, first):
        session.recover()
        assert answers(session) == expected
    assert first.device is second.device
    assert first.memory.weights() is second.memory.weights()
    assert first.device_bytes()["weights"] == 0 != second.device_bytes()["weights"]
    second.close()
    assert answers(first) == expected
    first.close()
    assert np.array_equal(answers(llama_session(device)), expected)
