"""Steps that a thread encodes ahead: whatever comes of them, the next step computes what it is given."""

from __future__ import annotations

import subprocess
import sys
from threading import Lock
from typing import Any

import numpy as np
import pytest
from llamas import call, llama_session

from hightide.errors import DeviceError
from hightide.gpu import encoding
from hightide.gpu.device import Device
from hightide.gpu.encoding import Ahead, StepEncoder
from hightide.ops.builder import GraphBuilder
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.session import Fed

STEPS = [call(5, 0), *(call(1, position) for position in range(5, 12)), call(3, 12), call(1, 15), call(1, 16)]


def outputs(session: GpuSession) -> list[bytes]:
    session.reset()
    return [session.run(given)[0].tobytes() for given in STEPS]


@pytest.fixture
def busy() -> Any:
    """The thread is busy with something else as long as the test runs."""
    free = Lock()
    free.acquire()
    encoding._jobs().put(lambda: free.acquire() and free.release())
    yield
    free.release()


def test_a_thread_that_never_comes_to_it_is_not_waited_for(device: Device, busy: None) -> None:
    session = llama_session(device)
    first = outputs(session)
    assert outputs(session) == first


def test_a_step_is_encoded_ahead_and_waited_for(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a thread that takes its time: what it made is what runs."""
    session = llama_session(device)
    expected = outputs(session)
    taken: list[bool] = []
    encode, take = StepEncoder.encode, Ahead.take

    def slow(self: StepEncoder, *given: Any) -> Any:
        device.wait()
        return encode(self, *given)

    def noted(self: Ahead) -> Any:
        commands = take(self)
        taken.append(commands is not None)
        return commands

    monkeypatch.setattr(StepEncoder, "encode", slow)
    monkeypatch.setattr(Ahead, "take", noted)
    assert outputs(session) == expected
    assert any(taken)


def test_what_cannot_be_encoded_ahead_is_encoded_in_its_turn(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    session = llama_session(device)
    expected = outputs(session)

    def fails(self: Ahead) -> None:
        raise DeviceError("no")

    monkeypatch.setattr(Ahead, "_encode", fails)
    assert outputs(session) == expected


def test_ids_fed_on_by_a_step_that_was_dropped_do_not_reach_the_next(device: Device) -> None:
    """Dropped commands run over nothing, but their copies copy: the next inputs are written after that."""
    b = GraphBuilder()
    x = b.input((4,))
    session = GpuSession(b.graph(b.call("aten.neg.default", x)), device)
    ones = np.ones(4, np.float32)
    for step in range(3):  # the third is encoded ahead, and a fourth behind it
        given = ones if step == 0 else Fed((4,))
        (got,) = session.collect(session.launch([given], feed={0: 0}))
        assert (got == (-1) ** (step + 1)).all()
    (got,) = session.run([7 * ones])
    assert (got == -7).all()


def test_a_process_ends_while_a_step_is_encoded() -> None:
    code = f"""
import sys
sys.path = {sys.path!r}
from hightide.gpu.device import Device, find_adapter
from llamas import call, llama_session
session = llama_session(Device(find_adapter(None)))
for position in range(5):
    session.launch(call(1, position)) if position == 4 else session.run(call(1, position))
print("ok")
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr[-2000:]
