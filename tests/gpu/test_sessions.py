"""Sessions as objects: closed, shown, looked into and timed, without a change to what they compute."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from llamas import INPUTS, call, llama_session, small_llama
from wgpu.backends.wgpu_native._helpers import generate_report

from hightide.errors import HightideError
from hightide.gpu.device import Device
from hightide.gpu.recorder import Recorder
from hightide.gpu.recording import Watch
from hightide.graph.graph import OpCall, output_ids
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession


def cpu_session() -> CpuSession:
    return CpuSession(small_llama(), **INPUTS)


CALLS: dict[str, Callable[[Any], object]] = {
    "run": lambda session: session.run(call(1, 0)),
    "launch": lambda session: session.launch(call(1, 0)),
    "level": lambda session: session.level(call(1, 0)),
    "reset": lambda session: session.reset(),
    "snapshot": lambda session: session.snapshot(),
    "read_state": lambda session: session.read_state(),
    "write_state": lambda session: session.write_state([]),
    "copy_rows": lambda session: session.copy_rows([(0, 1, 1)]),
    "read_rows": lambda session: session.read_rows(0, 1),
    "write_rows": lambda session: session.write_rows(0, []),
    "run_into": lambda session: session.run_into(call(1, 0), session, 0, 0),
    "fill_rows": lambda session: session.fill_rows(0, 0, np.zeros((1, 1), np.float32)),
    "sibling": lambda session: session.sibling(),
    "device_bytes": lambda session: session.device_bytes(),
    "with": lambda session: session.__enter__(),
}
ON_GPU = {
    "recording": lambda session: session.recording(call(1, 0)),
    "poison": lambda session: session.poison(),
    "timer": lambda session: session.timer(),
    "timed": lambda session: session.timed().__enter__(),
}


def test_a_closed_session_refuses_every_call(device: Device) -> None:
    for session in (llama_session(device), cpu_session()):
        session.run(call(3, 0))
        ticket = session.launch(call(1, 3))
        session.close()
        session.close()
        calls = {**CALLS, "collect": lambda closed, ticket=ticket: closed.collect(ticket)}
        for what, attempt in (calls | ON_GPU if isinstance(session, GpuSession) else calls).items():
            with pytest.raises(HightideError, match="is closed") as refused:
                attempt(session)
            assert "\n" not in str(refused.value), what


def test_closing_frees_buffers_and_leaves_other_sessions_alone(device: Device) -> None:
    def held() -> int:
        gc.collect()
        device.flush()
        return int(generate_report()["hub"]["buffers"]["kept"])

    other = llama_session(device)
    expected = [other.run(inputs)[0].tobytes() for inputs in (call(5, 0), call(1, 5), call(1, 6))]
    other.reset()
    before = held()
    session = llama_session(device)
    for inputs in (call(5, 0), call(1, 5), call(1, 6)):  # the last has a step encoded ahead
        session.run(inputs)
    session.snapshot()
    count = len(session.memory.buffers())
    assert held() - before > count > 20
    session.close()
    assert held() - before <= 2 and session.memory.buffers() == []  # parameters and SymInts, of the object that is left
    assert [other.run(inputs)[0].tobytes() for inputs in (call(5, 0), call(1, 5), call(1, 6))] == expected


def test_a_session_is_a_context_and_says_what_it_is(device: Device) -> None:
    with llama_session(device) as session, cpu_session() as reference:
        inputs = "(tokens: int32[1, ≤24], input_pos: int32[1])"
        assert repr(session) == f"<GpuSession on {device.adapter.name}: {len(session.graph.calls)} ops {inputs}>"
        assert repr(reference) == f"<CpuSession on NumPy: {len(reference.graph.calls)} ops {inputs}>"
        np.testing.assert_allclose(session.run(call(3, 0))[0], reference.run(call(3, 0))[0], rtol=1e-3, atol=1e-4)
    assert session.closed and reference.closed
    assert repr(session) == f"<GpuSession on {device.adapter.name}: closed>"


def test_any_tensor_is_read_and_written(device: Device) -> None:
    session = llama_session(device)
    outputs = session.run(call(3, 0))
    plan = session.level(call(3, 0))[1]
    logits = session.graph.outputs[0]
    np.testing.assert_array_equal(session.memory.read(logits, plan.dims[logits]), outputs[0])
    (state, *_) = session.memory.state
    written = np.full(session.memory.tensor(state).dims, 7, np.float32)
    session.memory.write(state, written)
    np.testing.assert_array_equal(session.read_state()[0], written)
    session.memory.upload(state)
    assert not session.memory.read(state).any()


def test_state_is_kept_whatever_runs_and_so_is_the_snapshot(device: Device) -> None:
    session = llama_session(device)
    session.run(call(4, 0))
    snapshot, first = session.snapshot(), session.read_state()
    session.run(call(2, 4))
    second = session.read_state()
    with pytest.raises(ZeroDivisionError), session.memory.state_kept():
        session.run(call(9, 0, seed=3))
        raise ZeroDivisionError
    assert [a.tobytes() for a in session.read_state()] == [a.tobytes() for a in second]
    session.restore(snapshot)
    assert [a.tobytes() for a in session.read_state()] == [a.tobytes() for a in first]


def test_a_watch_is_told_of_every_call_and_changes_nothing(device: Device) -> None:
    session, plain = llama_session(device), llama_session(device)
    plan = session.level(call(5, 0))[1]

    class Seen(Watch):
        def __init__(self) -> None:
            self.begun: list[OpCall] = []
            self.sums: dict[int, float] = {}

        def before(self, call: OpCall) -> None:
            self.begun.append(call)

        def after(self, call: OpCall) -> None:
            assert self.begun[-1] is call
            for id in output_ids(session.graph, call):
                self.sums[id] = float(session.memory.read(id, plan.dims[id]).sum())

    seen = Seen()
    (got,) = session.collect(session.launch(call(5, 0), watch=seen))
    assert got.tobytes() == plain.run(call(5, 0))[0].tobytes()
    assert seen.begun == list(dict.fromkeys(step.call for step in plan.steps))
    assert seen.sums[session.graph.outputs[0]] == pytest.approx(float(got.sum()), rel=1e-5)


def test_timing_ends_with_its_context_even_if_it_fails(device: Device) -> None:
    session, plain = llama_session(device), llama_session(device)
    for position in range(3):  # the next one is encoded ahead
        assert session.run(call(1, position))[0].tobytes() == plain.run(call(1, position))[0].tobytes()
    with pytest.raises(ZeroDivisionError), session.timed() as timer:
        timer.prepare()
        assert session.run(call(1, 3))[0].tobytes() == plain.run(call(1, 3))[0].tobytes()
        assert len(timer.times().durations) == len(session.level(call(1, 3))[1].steps)
        assert {span.name for span in timer.spans} == {"plan", "write", "encode", "submit", "wait", "read"}
        raise ZeroDivisionError
    assert type(session.recorder) is Recorder
    for position in range(4, 8):
        assert session.run(call(1, position))[0].tobytes() == plain.run(call(1, position))[0].tobytes()


def test_what_runs_write_and_read_is_counted(device: Device) -> None:
    session = llama_session(device)
    session.run(call(1, 0))
    before = session.counters.written_bytes, session.counters.read_bytes
    (logits,) = session.run(call(1, 1))
    assert session.counters.read_bytes - before[1] == logits.nbytes
    assert 8 <= session.counters.written_bytes - before[0] <= 8 + 12  # a token, a position, two SymInts
