"""HIGHTIDE_DEBUG=1 names the op that broke; what is right gives the same bytes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from llamas import call, llama_session, small_llama
from planted import one_buffer_for, plant

from hightide import DeviceError
from hightide.gpu.device import Device
from hightide.graph.graph import OpCall
from hightide.ops.builder import GraphBuilder
from hightide.runtime.debug_checks import tag
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.session import Fed


@pytest.fixture(autouse=True)
def debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHTIDE_DEBUG", "1")


# Each makes NaN, of poison or of nothing: a kernel's text and what replaces it, or a change of attention's shape.
FAULTS: dict[str, Any] = {
    "a row beyond the live length": ("let value = load_x(start + i);", "let value = load_x(start + params.width + i);"),
    "an output that is left out": ("if (i >= params.numel) { return; }", "if (i + 1u >= params.numel) { return; }"),
    "a scale that is not a number": lambda shape: replace(shape, scale=math.nan),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_op_that_broke_is_named(fault: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = plant(monkeypatch, FAULTS[fault])
    session = llama_session(Device(device.adapter))
    with pytest.raises(DeviceError) as error:
        session.run(call(5, 0))
    expected = planted.first_call(session.level(call(5, 0))[1])
    message = str(error.value)
    assert message.startswith(f"{expected} "), message
    assert "NaN" in message and "where its inputs are finite and so is its reference" in message
    assert "\n" not in message
    if device.adapter.kind == "CPU":  # whose arithmetic lets the bits of a NaN through
        causes = {
            "a row beyond the live length": f"from what {expected_writer(session, expected)} did not write",
            "an output that is left out": "it was not written, or comes from scratch that was not",
            "a scale that is not a number": "and so is its reference",
        }
        assert causes[fault] in message, message


def expected_writer(session: GpuSession, call: OpCall) -> OpCall:
    return next((c for c in session.graph.calls if c.out == call.args.get("x")), call)


@pytest.mark.parametrize("other", ["sigmoid", "linear"])
def test_memory_that_was_overwritten_is_seen_by_who_reads_it(
    other: str, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The residual shares its buffer with a tensor that is written before the residual is added."""
    graph = small_llama()
    adds = [c for c in graph.calls if c.name == "aten.add.Tensor"]
    between = next(c for c in graph.calls if other in c.name and c.index > adds[0].index)
    one_buffer_for(monkeypatch, adds[0].out, between.out)
    with pytest.raises(DeviceError) as error:
        llama_session(device, graph).run(call(5, 0))
    assert f"{adds[1]} reads value {adds[0].out}, which is not what was written by {adds[0]}" in str(error.value)


def test_a_broken_run_leaves_state_as_it_was(device: Device) -> None:
    """The keys of the first layer are written before the second layer breaks, on a weight that was damaged."""
    session = llama_session(device)
    session.run(call(6, 0))
    before = session.read_state()
    norm = [c for c in session.graph.calls if "rms_norm" in c.name][2]
    session.memory.write(norm.args["weight"], np.array([np.inf], np.float32))
    with pytest.raises(DeviceError) as error:
        session.run(call(1, 6))
    assert str(error.value).startswith(f"{norm} ")
    assert [a.tobytes() for a in session.read_state()] == [a.tobytes() for a in before]
    session.memory.upload(norm.args["weight"])
    twin = llama_session(device)
    twin.run(call(6, 0))
    assert session.run(call(1, 6))[0].tobytes() == twin.run(call(1, 6))[0].tobytes()


def test_infinities_that_the_op_means_are_nobodys_fault(device: Device) -> None:
    b = GraphBuilder()
    x = b.input((4, 8))
    y = b.call("aten.exp.default", b.call("aten.mul.Scalar", x, 100.0))
    graph = b.graph(b.call("aten.neg.default", y))
    session = GpuSession(graph, device)
    given = np.ones((2, 8), np.float32)
    (got,) = session.run([given])
    assert np.isneginf(got).all()
    (got,) = session.run([np.full((3, 8), np.nan, np.float32)])
    assert np.isnan(got).all()


def test_a_right_model_gives_the_same_bytes_and_feeds_on(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs that the run before left on the GPU are not poisoned."""
    b = GraphBuilder()
    ids = b.input((1, 4), "int32")
    doubled = b.call("aten.add.Tensor", ids, ids, 1, dtype="int32")
    session = GpuSession(b.graph(doubled), device)
    first = session.collect(session.launch([np.array([[3]], np.int32)], feed={0: 0}))
    again = session.collect(session.launch([Fed((1, 1))]))
    assert (first[0].tolist(), again[0].tolist()) == ([[6]], [[12]])
    checked = llama_session(device)
    runs = [call(7, 0), call(1, 7), call(3, 8)]
    got = [checked.run(inputs)[0] for inputs in runs]
    monkeypatch.setenv("HIGHTIDE_DEBUG", "0")
    plain: Any = llama_session(device)
    assert [a.tobytes() for a in got] == [plain.run(inputs)[0].tobytes() for inputs in runs]


def test_a_validation_error_names_the_op_and_its_dispatch(device: Device) -> None:
    session = llama_session(device)
    commands = session.recording(call(1, 6)).commands
    attention = next(c.call for c in commands if "sdpa" in c.call.name)
    *others, broken = [c for c in commands if c.call is attention]
    broken.group = next(c.group for c in commands if "embedding" in c.call.name)
    with pytest.raises(DeviceError) as error:
        session.run(call(1, 6))
    assert str(error.value).startswith(f"{attention} {broken.pipeline.shader.name} (dispatch {len(others) + 1} of ")


def test_poison_is_nan_however_it_is_read_and_names_its_op() -> None:
    words = np.array([tag(n) for n in range(20_000)], np.uint32)
    assert np.isnan(words.view(np.float32)).all() and np.isnan(words.view(np.float16)).all()
    assert len(set(words.tolist())) == 20_000
