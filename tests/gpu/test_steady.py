"""Counted, not timed: what a steady step does on the host, and that cost follows the live shape."""

from __future__ import annotations

import gc
from itertools import product
from threading import Lock
from typing import Any

import numpy as np
import pytest
from llamas import MAX_TOKENS, call, llama_session, small_llama
from schedules import INDEX, PROGRAMS
from wgpu.backends.wgpu_native._helpers import generate_report

from hightide.gpu import encoding
from hightide.gpu.device import Device
from hightide.gpu.recorder import Recorder
from hightide.graph.symbols import evaluate
from hightide.ops.builder import GraphBuilder
from hightide.planning.explain import explain
from hightide.planning.levels import MaxElements
from hightide.planning.planner import Plan, Planner
from hightide.pte.program import load
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.step_block import GAP, SMALL_INPUT, SYMINTS, StepBlock

pytestmark = pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")


def native_objects() -> dict[str, int]:
    """wgpu-native's own count of what it holds for us, by kind."""
    return {kind: n["kept"] for kind, n in generate_report()["hub"].items()}


def wait_for_thread() -> None:
    """Until the thread that encodes ahead has done what it was given."""
    done = Lock()
    done.acquire()
    encoding._jobs().put(done.release)
    assert done.acquire(timeout=60)


class Writes:
    """Every write to the GPU, (buffer, bytes), whichever way it goes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[Any, int]] = []
        for owner in (Recorder, Device):
            monkeypatch.setattr(owner, "write", self._counting(owner.write))

    def _counting(self, write: Any) -> Any:
        def counted(owner: Any, buffer: Any, offset: int, data: Any) -> None:
            self.made.append((buffer, memoryview(data).nbytes))
            write(owner, buffer, offset, data)

        return counted


def test_a_steady_decode_step_creates_no_gpu_object(device: Device) -> None:
    session = llama_session(device)
    session.run(call(9, 0))
    for position in range(9, 12):  # the commands of the third are encoded ahead
        session.run(call(1, position))
    gc.collect()
    created, kept, planned = device.created, native_objects(), session.levels.planned
    for position in range(12, 62):
        session.run(call(1, position))
        wait_for_thread()
        assert device.created == created and native_objects() == kept, f"position {position}"
    assert session.levels.planned == planned


def test_an_input_is_written_unless_its_buffer_holds_it(device: Device) -> None:
    """Whatever was written to it in between, less or more. A large one is written every time."""
    for most in (16, 40):
        b = GraphBuilder()
        x = b.input((most, 1024))
        session = GpuSession(b.graph(b.call("aten.relu.default", x)), device)
        rng, small = np.random.default_rng(most), most * 4096 <= SMALL_INPUT
        inputs = {rows: rng.normal(size=(rows, 1024)).astype(np.float32) for rows in (1, 3, most)}
        last = 0
        for rows in (1, 1, most, 1, 3, 1, most, most, 3, 3):
            before = session.counters.input_bytes
            (got,) = session.run([inputs[rows]])
            assert (got == np.maximum(inputs[rows], 0)).all(), f"{rows} rows after {last}"
            kept = rows == last and small
            assert session.counters.input_bytes - before == (0 if kept else inputs[rows].nbytes)
            last = rows


class StepWrites:
    """Stands in for a recorder: what it is given to write, and what the buffer holds then."""

    def __init__(self, size: int) -> None:
        self.made: list[tuple[int, int]] = []
        self.held = np.zeros(size, np.uint8)
        self.torn = False

    def write(self, buffer: Any, offset: int, data: np.ndarray) -> None:
        if self.torn:
            raise KeyboardInterrupt
        self.made.append((offset, data.nbytes))
        self.held[offset : offset + data.nbytes] = data


def test_small_inputs_are_one_write_that_spares_what_others_wrote(device: Device) -> None:
    """Random inputs, in any order, of any length; now and then the GPU writes one itself, or a write is torn."""
    rng = np.random.default_rng(9)
    sizes = {id: int(rng.choice((16, 300, 1000, 9000))) for id in range(8)}
    block = StepBlock(device, sizes)
    recorder: Any = StepWrites(block.buffer.size)
    wanted: dict[int, bytes] = {}
    for turn in range(300):
        given = []
        for id in (*rng.permutation(8)[: rng.integers(0, 9)], SYMINTS):
            words = rng.integers(0, 3, rng.integers(1, min(sizes.get(id, 40), 64) // 4 + 1)).astype(np.int32)
            given.append((id, words))
            wanted[id] = words.tobytes() + wanted.get(id, b"")[words.nbytes :]
        recorder.made = []
        changed = block.write(recorder, given)
        assert len(recorder.made) <= len(changed) and set(changed) <= {id for id, _ in given}
        assert block.write(recorder, given) == {}
        for id, data in wanted.items():
            start = block.regions[id].offset
            assert recorder.held[start : start + len(data)].tobytes() == data, (turn, id)
        if turn % 3 == 0:
            id = int(rng.integers(8))
            place = block.regions[id]
            recorder.held[place.offset : place.offset + place.size] = 99
            block.forget(id)
            wanted[id] = bytes([99]) * place.size
        if turn % 50 == 0:
            recorder.torn = True
            with pytest.raises(KeyboardInterrupt):
                block.write(recorder, [(id, words + 1) for id, words in given])
            recorder.torn = False
            wanted.clear()


def test_small_inputs_that_lie_close_are_one_write(device: Device) -> None:
    block, word = StepBlock(device, {0: 16, 1: 300, 2: 2 * GAP, 3: 16}), np.array([7], np.int32)
    recorder: Any = StepWrites(block.buffer.size)
    block.write(recorder, [(1, word), (0, word), (SYMINTS, word), (3, word)])
    assert recorder.made == [(0, 260), (block.regions[3].offset, 260)]


def test_commands_and_memory_do_not_leak(device: Device) -> None:
    """Not over jumps of level and position, which find their step encoded ahead in vain, nor over sessions."""
    gc.collect()
    device.flush()
    before = native_objects()
    for _ in range(3):
        session = llama_session(device)
        for position in range(1, 75):  # attention's grid grows at 64 keys
            session.run(call(1, position))
            if position % 10 == 0:
                session.run(call(5, 0))
            if position % 7 == 0:
                session.run(call(1, 79 - position))
            assert native_objects()["commandBuffers"] - before["commandBuffers"] <= 1
        del session
        gc.collect()
    device.flush()
    after = native_objects()
    for kind in ("buffers", "bindGroups", "commandBuffers", "commandEncoders"):
        assert after.get(kind, 0) == before.get(kind, 0), kind


@pytest.mark.parametrize("name", ["llama_gqa", "qwen3", "llama_fp16", "llama_e8"])
def test_a_steady_decode_step_has_one_write(name: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = load(PROGRAMS / f"{name}.pte").method()
    session = forward.sessions[-1]
    assert isinstance(session, GpuSession)
    for position in range(3):
        forward([[1]], [position])
    for position in range(3, INDEX[name]["context"]):  # also where a grid that follows the position changes
        writes = Writes(monkeypatch)
        forward([[position]], [position])
        monkeypatch.undo()
        ((buffer, size),) = writes.made
        assert buffer is session.memory.step.buffer and size <= 2 * GAP


def test_a_symint_is_written_only_when_it_changed(device: Device) -> None:
    session = llama_session(device)
    session.run(call(1, 5))
    written = session.counters.symint_bytes
    session.run(call(1, 5, seed=1))
    assert session.counters.symint_bytes == written
    session.run(call(1, 6))
    assert 4 <= session.counters.symint_bytes - written <= 12  # the position, and the end that follows it


@pytest.mark.parametrize("name", [None, *(n for n, e in INDEX.items() if e.get("max_s", 1) > 1)])
def test_every_route_that_any_level_takes_exists_after_build(name: str | None, device: Device) -> None:
    """All S in 1..max; the graph's own example has two layers, the committed programs all their forms."""
    if name is None:
        session = llama_session(device)
        calls = [call(tokens, 0) for tokens in range(1, MAX_TOKENS + 1)]
        run = session.run
    else:
        program = load(PROGRAMS / f"{name}.pte")
        forward, entry = program.method(), INDEX[name]
        calls = [[np.ones((1, tokens), np.int64), np.array([0])] for tokens in range(1, entry["max_s"] + 1)]
        calls = [inputs[: len(forward.inputs)] for inputs in calls]

        def run(inputs: Any) -> Any:
            return forward(*inputs)

    gc.collect()
    created, kept = device.created, native_objects()
    for inputs in calls:
        run(inputs)
        assert device.created == created, f"S = {inputs[0].shape[1]}"
    assert {**native_objects(), "commandBuffers": 0} == {**kept, "commandBuffers": 0}


def test_every_route_of_two_dims_that_vary_exists_after_build(device: Device) -> None:
    forward = load(PROGRAMS / "two_dims.pte").method()
    created = device.created
    for batch, rows in product(range(1, 5), (*range(1, 8), 32, 33)):
        forward(np.ones((batch, rows, 16), np.float32))
        assert device.created == created, (batch, rows)


# ---- cost follows the live shape


def planned(max_tokens: int, tokens: int, context: int = 2048) -> Plan:
    graph = small_llama(max_tokens, context, layers=1)
    return Planner(graph).plan(((1, tokens), (1,)), MaxElements(7))


def dispatches(plan: Plan) -> list[Any]:
    return [(s.dispatch.kernel, s.dispatch.groups, s.dispatch.params) for s in plan.steps]


@pytest.mark.parametrize("tokens", [1, 2, 13, 64])
def test_a_plan_is_that_of_a_graph_built_for_just_its_length(tokens: int) -> None:
    """Kernels, grids and parameters of S tokens do not know of the 2048 that the graph allows."""
    assert dispatches(planned(2048, tokens)) == dispatches(planned(tokens, tokens))


def test_a_session_for_2048_dispatches_one_token_as_a_session_for_one(device: Device) -> None:
    wide, narrow = (llama_session(device, small_llama(n, 2048, layers=1)) for n in (2048, 1))
    for position in (0, 5, 63, 64, 1000, 2047):
        inputs = call(1, position)
        a, b = explain(wide, inputs), explain(narrow, inputs)
        assert [(r.route, r.dims, r.grid, r.bytes) for r in a.rows] == [
            (r.route, r.dims, r.grid, r.bytes) for r in b.rows
        ]
        got, expected = wide.run(inputs)[0], narrow.run(inputs)[0]
        assert got.tobytes() == expected.tobytes()


def groups(plan: Plan) -> int:
    return sum(max(0, evaluate(step.dispatch.groups, MaxElements(7))) for step in plan.steps)


def test_the_number_of_workgroups_follows_the_live_length() -> None:
    """It grows with S, at most in proportion to it, and not at all with the max."""
    lengths = (1, 2, 4, 16, 64, 256)
    costs = [groups(planned(256, n)) for n in lengths]
    assert costs == [groups(planned(2048, n)) for n in lengths]
    assert costs == sorted(set(costs))
    assert costs[-1] <= costs[0] * 256
    assert costs[0] * 10 < costs[-1]
