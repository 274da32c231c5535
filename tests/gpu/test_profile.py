"""Timing on a real adapter: every dispatch, by every means, without a change to what is computed."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llamas import call, llama_session
from schedules import PROGRAMS
from traces import check_trace

from hightide import InputError, UnsupportedError
from hightide.gpu import limits as limits_module
from hightide.gpu.device import Device
from hightide.gpu.limits import Limits, known_limits, measure_limits
from hightide.gpu.queries import SET_SIZE, Queries
from hightide.gpu.recorder import Recorder
from hightide.gpu.timestamps import Timing, finest_timing
from hightide.ops.builder import GraphBuilder
from hightide.pte.program import load
from hightide.runtime.gpu_session import GpuSession
from hightide.tools.opened_file import open_file
from hightide.tools.profile import profile, profile_file

MODELS = Path(__file__).parents[1] / "models"
TIMINGS = list(Timing)
pytestmark = pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")


@pytest.fixture(autouse=True)
def some_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Limits take seconds to measure, and are tested by themselves."""
    monkeypatch.setattr("hightide.gpu.measurements.cache_folder", lambda: tmp_path)
    made_up = Limits(10.0, 10.0, 100.0, 10.0, 50.0, 200.0)
    monkeypatch.setattr(limits_module, "_measure", lambda device: made_up)


def possible(device: Device, timing: Timing) -> Timing:
    if TIMINGS.index(timing) < TIMINGS.index(finest_timing(device)):
        pytest.skip(f"{device.adapter.name} has no {timing.value}")
    return timing


def timed_run(session: GpuSession, inputs: list[np.ndarray], timing: Timing) -> tuple[Any, Any, int, int]:
    with session.timed(session.timer(timing)) as timer:
        timer.prepare()
        begin = time.perf_counter_ns()
        outputs = session.collect(session.launch(inputs))
        end = time.perf_counter_ns()
    return outputs, timer, begin, end


@pytest.mark.parametrize("timing", TIMINGS, ids=lambda timing: timing.name)
def test_every_dispatch_is_timed_and_computes_what_it_always_does(device: Device, timing: Timing) -> None:
    session, plain = llama_session(device), llama_session(device)
    for inputs in (call(9, 0), call(1, 9), call(4, 10)):
        outputs, recorder, begin, end = timed_run(session, inputs, possible(device, timing))
        for got, expected in zip(outputs, plain.run(inputs), strict=True):
            np.testing.assert_array_equal(got, expected)
        times = recorder.times()
        assert times.timing is timing and len(times.begin) == len(session.level(inputs)[1].steps)
        assert (times.durations >= 0).all() and (np.diff(times.begin) >= 0).all()
        assert (times.begin[1:] >= times.end[:-1]).all()  # one after the other
        assert begin - times.error <= times.begin[0] and times.end[-1] <= end + times.error
        assert {span.name for span in recorder.spans} == {"plan", "write", "encode", "submit", "wait", "read"}
        assert all(begin <= span.begin <= span.end <= end for span in recorder.spans)
    assert type(session.recorder) is Recorder and session.run(call(1, 14))


def test_a_long_dispatch_is_told_from_the_short_ones_around_it(device: Device) -> None:
    b = GraphBuilder()
    x, small = b.input((384, 384)), b.input((4,))
    before = b.call("aten.neg.default", small)
    product = b.call("aten.mm.default", x, x)  # a million times the work of the others
    after = b.call("aten.neg.default", before)
    session = GpuSession(b.graph(product, after), device)
    inputs = [np.ones((384, 384), np.float32), np.ones(4, np.float32)]
    session.run(inputs)
    best = np.min([timed_run(session, inputs, finest_timing(device))[1].times().durations for _ in range(5)], axis=0)
    routes = [step.dispatch.kernel.name for step in session.level(inputs)[1].steps]
    assert best.argmax() == routes.index("matmul_tall") == 1


def test_more_dispatches_than_a_set_of_queries_has_room_for(device: Device) -> None:
    timing = Timing.PASSES
    b = GraphBuilder()
    value = first = b.input((4,))
    for _ in range(SET_SIZE // 2 + 20):
        value = b.call("aten.neg.default", value)
    session = GpuSession(b.graph(value), device)
    outputs, recorder, _, _ = timed_run(session, [np.arange(4, dtype=np.float32)], possible(device, timing))
    times = recorder.times()
    assert first is not value and len(times.begin) == SET_SIZE // 2 + 20
    assert (times.durations >= 0).all() and (np.diff(times.begin) >= 0).all()
    np.testing.assert_array_equal(outputs[0], np.arange(4))


def test_the_clocks_agree(device: Device) -> None:
    possible(device, Timing.PASSES)
    clock = Queries(device).align()
    assert clock.period > 0 and 0 <= clock.error < 50e6
    if "llvmpipe" in device.adapter.name and sys.platform == "linux":
        # Its timestamps are of the clock that perf_counter reads: the offset found is 0, within the error told.
        assert clock.period == 1 and abs(clock.offset) <= clock.error + 1000


@pytest.mark.parametrize("timing", TIMINGS, ids=lambda timing: timing.name)
def test_a_profile_leaves_the_session_as_it_was(device: Device, timing: Timing) -> None:
    session, plain = llama_session(device), llama_session(device)
    for one in (session, plain):
        one.run(call(9, 0))
    before, memory = session.read_state(), session.device_bytes()
    measured = profile(session, call(5, 0, seed=7), runs=2, timing=possible(device, timing))
    for got, expected in zip(session.read_state(), before, strict=True):
        np.testing.assert_array_equal(got, expected)
    for got, expected in zip(session.run(call(1, 9)), plain.run(call(1, 9)), strict=True):
        np.testing.assert_array_equal(got, expected)
    (level,) = measured.levels
    assert measured.timing is timing and len(level.runs) == len(level.untimed) == 2
    assert [d.index for d in level.dispatches] == [s.call.index for s in session.level(call(5, 0))[1].steps]
    assert session.device_bytes() == memory


def test_the_clock_of_a_profile_is_one(device: Device) -> None:
    measured = profile(llama_session(device), call(7, 3), runs=2)
    check_trace(measured.trace())
    for run in measured.levels[0].runs:
        waits = [span for span in run.spans if span.name == "wait"]
        submits = [span for span in run.spans if span.name == "submit"]
        assert len(waits) == len(submits) == 1
        if measured.timing is not Timing.SUBMITS:
            assert submits[0].begin - run.error <= run.dispatches[0][0]
            assert run.dispatches[-1][1] <= waits[0].end + run.error


def test_parts_follow_each_other(device: Device) -> None:
    measured = profile_file(PROGRAMS / "partial.pte", [{"S": 7}], runs=2)
    (level,) = measured.levels
    assert measured.parts == ("forward/0", "forward/1") and {d.part for d in level.dispatches} == set(measured.parts)
    for run in level.runs:
        begins = [begin for begin, _ in run.dispatches]
        assert begins == sorted(begins) and run.begin <= begins[0] + run.error
        assert [span.name for span in run.spans].count("wait") == 2


def test_a_gguf_model_is_profiled_at_a_prefill_and_a_decode_step(device: Device) -> None:
    measured = profile_file(MODELS / "llama.gguf", runs=1)
    prefill, decode = measured.levels
    assert prefill.at["pos"] == 0 and prefill.at["S"] == decode.at["pos"] and decode.at["S"] == 1
    assert prefill.total.cost.flops > 20 * decode.total.cost.flops


def test_a_length_of_1_is_left_out_where_the_program_does_not_take_it(device: Device) -> None:
    (level,) = profile_file(PROGRAMS / "symints.pte", runs=1).levels  # its S is even
    assert level.at == {"S": 20, "T": 9}
    with pytest.raises(InputError):
        profile_file(PROGRAMS / "symints.pte", [{"S": 1}], runs=1)


def test_what_has_no_dispatches_is_refused(device: Device) -> None:
    with pytest.raises(UnsupportedError, match=r"wide\.pte: method forward has no delegate"):
        profile_file(PROGRAMS / "wide.pte")
    with pytest.raises(UnsupportedError, match="the NumPy references cannot"):
        profile_file(open_file(PROGRAMS / "llama_gqa.pte", device="cpu"))
    method = load(PROGRAMS / "llama_gqa.pte").method("forward")
    assert profile(method, [np.ones((1, 3), np.int64), np.array([0])], runs=1).levels[0].dispatches


def test_a_finer_timing_than_the_adapter_has_is_refused(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hightide.gpu.timestamps.finest_timing", lambda device: Timing.PASSES)
    with pytest.raises(UnsupportedError, match="has no timestamps between dispatches"):
        profile(llama_session(device), call(1, 0), timing=Timing.INSIDE)
    assert profile(llama_session(device), call(1, 0), runs=1, timing=Timing.SUBMITS).timing is Timing.SUBMITS


def test_limits_are_measured_once(device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("hightide.gpu.measurements.cache_folder", lambda: tmp_path)
    for name, less in (("SECONDS", 0.001), ("LEAST_RUNS", 1), ("SHORT_RUNS", 3)):
        monkeypatch.setattr(limits_module, name, less)
    assert known_limits(device) is None
    found = measure_limits(device)
    assert min(found.read_gb_s, found.copy_gb_s, found.fma_gflop_s) > 0.01 and found.readback_us > 1
    with monkeypatch.context() as patched:
        patched.setattr(limits_module, "_measure", lambda device: pytest.fail("measured again"))
        assert measure_limits(device) == known_limits(device) == found
    file = tmp_path / limits_module.FILE
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({**kept, "another adapter": {"read_gb_s": 1}}))
    assert known_limits(device) == found  # what is not understood is left out
    file.write_text("no JSON")
    assert known_limits(device) is None
    monkeypatch.setattr(limits_module, "_measure", lambda device: found)
    assert measure_limits(device) == found and known_limits(device) == found  # and written anew


def test_the_command(device: Device, hightide: Any, tmp_path: Path) -> None:
    trace, page = tmp_path / "trace.json", tmp_path / "page.html"
    program = PROGRAMS / "llama_gqa.pte"
    code, out, err = hightide("profile", program, "--runs", 1, "--at", "S=5,pos=2", "--trace", trace, "--html", page)
    assert code == 0 and "S=5 pos=2" in out and "dispatches take" in out and "perfetto" in err
    assert json.loads(trace.read_text())["otherData"]["subject"] == "llama_gqa.pte"
    assert page.read_text().startswith("<!doctype html>")
    code, out, _ = hightide("profile", program, "--runs", 1, "--at", "S=1", "--timing", "submits", "--json")
    (level,) = json.loads(out)["levels"]
    assert code == 0 and level["at"] == {"S": 1, "pos": 0}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--at", "X=1"), "forward has no X; what varies in it: S (up to 47), pos (up to 95)"),
        (("--at", "S=99"), "S is 99; in forward it is 0 to 47"),
        (("--at", "S"), "'S' is not NAME=NUMBER"),
        (("--route", "nothing=1"), "there is no choice of routes 'nothing'"),
        (("--method", "backward"), "has no method 'backward'"),
    ],
)
def test_what_the_command_cannot_do_is_one_sentence(
    device: Device, hightide: Any, args: tuple[str, ...], message: str
) -> None:
    code, out, err = hightide("profile", PROGRAMS / "llama_gqa.pte", *args)
    assert code == 1 and not out and message in err and len(err.splitlines()) == 1
