"""What is refused, in one sentence, before anything is written; and GPU errors as exceptions, never as numbers."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from llamas import call, llama_session
from planted import change_kernels
from schedules import PROGRAMS, steps

import hightide
from hightide import DeviceError, HightideError, InputError
from hightide.gpu.device import Device, find_adapter
from hightide.graph.graph import Graph
from hightide.ops.builder import GraphBuilder
from hightide.pte.program import load
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession

ONE = np.ones((1, 1), np.int64)
# llama_gqa takes up to 47 tokens of 160, over a context of 96.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "wrong rank": ((np.ones(3, np.int64), [3]), "input tokens has rank 1 [3]; the program takes rank 2 [1, 47]"),
    "a float for an integer": ((np.ones((1, 2)), [3]), "input tokens is float64; the program takes int64"),
    "not numbers": ((["a"], [3]), "input tokens is <U1; the program takes int64"),
    "ragged lists": (([[1, 2], [3]], [3]), "input tokens is not an array"),
    "a dim over its max": (([[1] * 48], [3]), "dim 1 of input tokens is 48; the program takes at most 47"),
    "a static dim over its max": (([[1], [2]], [3]), "dim 0 of input tokens is 2; the program takes at most 1"),
    "a static input of another size": ((ONE, [3, 4]), "input input_pos is [2]; the program takes exactly [1]"),
    "an empty static input": ((ONE, np.zeros(0, np.int64)), "input input_pos is [0]; the program takes exactly [1]"),
    "too many inputs": ((ONE, [3], [4]), "the program takes 2 inputs (tokens, input_pos); 3 were given"),
    "too few inputs": ((ONE,), "the program takes 2 inputs (tokens, input_pos); 1 was given"),
    "no tokens": (
        (np.ones((1, 0), np.int64), [3]),
        "input tokens is [1, 0], with 0 along dim 1: method forward takes at least 1 there",
    ),
    "past the context": (
        (np.ones((1, 47), np.int64), [50]),
        "position 50 plus 47 tokens is outside the context of 96",
    ),
    "at the context": ((ONE, [96]), "position 96 plus 1 token is outside the context of 96"),
    "a negative position": ((ONE, [-1]), "position -1 plus 1 token is outside the context of 96"),
    "a position over 32 bits": ((ONE, [2**32 + 3]), "input input_pos has 4294967299, which does not fit"),
    "an unknown token": ((np.array([[5, 160, 7]]), [3]), "input tokens has token id 160; it must be in 0..159"),
    "a negative token": ((np.array([[5, -7]]), [3]), "input tokens has token id -7; it must be in 0..159"),
    "a token over 32 bits": ((np.array([[2**32 + 5]]), [3]), "input tokens has token id 4294967301"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_call_is_one_sentence_and_changes_nothing(what: str, device: Device) -> None:
    """A twin that never saw the bad call goes on with the same bytes: logits that depend on the whole cache."""
    inputs, sentence = REFUSED[what]
    forward, twin = (load(PROGRAMS / "llama_gqa.pte").method() for _ in range(2))
    history = [(np.arange(9)[None] + 3, [0]), (ONE, [9]), (ONE * 4, [10])]
    for step in history:
        forward(*step)
        twin(*step)
    with pytest.raises(InputError) as refused:
        forward(*inputs)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)
    for step in [(ONE * 7, [11]), (ONE * 8, [12]), (np.arange(30)[None], [13])]:
        assert forward(*step)[0].tobytes() == twin(*step)[0].tobytes()


@pytest.mark.parametrize("tokens", [[[2**32 + 5]], [[-(2**31) - 1]], [[2**63]]])
def test_plain_numbers_that_do_not_fit_are_not_wrapped(tokens: Any, device: Device) -> None:
    session = llama_session(device)  # takes int32
    with pytest.raises(InputError, match=r"input tokens has -?\d+, which does not fit int32"):
        session.run([tokens, [0]])
    with pytest.raises(InputError, match="input tokens is int64; the program takes int32"):
        session.run([np.ones((1, 2), np.int64), [0]])


def test_an_unknown_device_is_refused_at_load_with_what_there_is(device: Device) -> None:
    for name in ("no such gpu", 99, "99"):
        with pytest.raises(DeviceError) as refused:
            load(PROGRAMS / "llama_gqa.pte", device=name)
        message = str(refused.value)
        assert message.startswith(f"there is no device {name!r}; there are 'cpu' and 0: ") and "\n" not in message


def test_an_unknown_method_is_refused_with_what_there_is(device: Device) -> None:
    with pytest.raises(InputError, match=r"^counter.pte has no method 'backward'; it has forward, project, "):
        load(PROGRAMS / "counter.pte").method("backward")


def divided_rows(pinned: bool) -> Graph:
    """x [12, 4] viewed as [12 / n, -1], or just 12 / n, for an input n."""
    b = GraphBuilder()
    x, n = b.input((12, 4)), b.input((1,), "int32")
    rows = b.call("floordiv", b.call("sym_size.int", x, 0), b.call("et_vk.select_as_symint.default", n, 0, 0))
    if not pinned:
        return b.graph(rows)
    return b.graph(b.call("aten.view_copy.default", x, [rows, -1], dims=[(12, 48)]))


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("build", [GpuSession, CpuSession])
def test_a_symint_divided_by_zero_is_a_sentence(build: Any, pinned: bool, device: Device) -> None:
    graph = divided_rows(pinned)
    session = build(graph, device) if build is GpuSession else build(graph)
    x = np.arange(48, dtype=np.float32).reshape(12, 4)
    for n in (2, 0, 3, 0, 12):
        if n == 0:
            with pytest.raises(InputError, match="divides 12 by 0"):
                session.run([x, np.array([n], np.int32)])
        else:
            (got,) = session.run([x, np.array([n], np.int32)])
            assert got.shape == (12 // n, 4 * n) if pinned else int(got) == 12 // n


# ---- the GPU's own errors


def test_a_validation_error_is_an_exception_and_the_next_step_is_good(
    device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    """A bind group of another layout: raised when the step is encoded, in one sentence, logged nowhere."""
    session, twin = llama_session(device), llama_session(device)
    for s in (session, twin):
        s.run(call(6, 0))
    recording = session.recording(call(1, 6))
    entries = recording.native
    groups = [entry[1] for entry in entries]
    layouts = [command.pipeline.layout for command in recording.commands]
    entries[0][1] = next(group for group, layout in zip(groups, layouts, strict=True) if layout is not layouts[0])
    for _ in range(2):
        with (
            caplog.at_level(logging.WARNING),
            pytest.raises(DeviceError, match=r"encoding the step: .*layout") as error,
        ):
            session.run(call(1, 6))
        assert "\n" not in str(error.value)
    assert not caplog.records
    entries[0][1] = groups[0]
    for position in range(6, 10):
        assert session.run(call(1, position))[0].tobytes() == twin.run(call(1, position))[0].tobytes()


def test_the_checked_path_names_the_op_of_a_validation_error(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHTIDE_DEBUG", "1")
    session = llama_session(device)
    commands = session.recording(call(1, 6)).commands
    broken = next(c for c in commands if "rms_norm" in c.call.name)
    broken.group = next(c.group for c in commands if "embedding" in c.call.name)
    with pytest.raises(DeviceError, match=r"^op \d+ \(et_vk.rms_norm.default\) rms_norm_vec4: .*layout"):
        session.run(call(1, 6))


@pytest.mark.parametrize("name", ["llama_gqa", "qwen3", "llama_static", "two_dims", "llama_int8", "value_shape"])
@pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")
def test_the_checked_path_gives_the_same_bytes(name: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, checked = (load(PROGRAMS / f"{name}.pte").method() for _ in range(2))
    for n, (_, inputs, _) in enumerate(steps(name)):
        monkeypatch.setenv("HIGHTIDE_DEBUG", "0")
        expected = fast(*inputs)
        monkeypatch.setenv("HIGHTIDE_DEBUG", "1")
        assert [a.tobytes() for a in checked(*inputs)] == [a.tobytes() for a in expected], f"step {n}"


def with_fault(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    change_kernels(monkeypatch, change)


def test_wgsl_that_does_not_compile_is_shown_with_line_numbers(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with_fault(monkeypatch, lambda source: source + "\nfn oops() -> f32 { return 1u; }\n")
    b = GraphBuilder()
    graph = b.graph(b.call("aten.neg.default", b.input((4,))))
    with pytest.raises(DeviceError) as error:
        GpuSession(graph, Device(device.adapter))  # a device of its own: kernels are compiled once per device
    message = str(error.value)
    assert message.startswith("kernel ") and "does not compile" in message
    lines = message.splitlines()
    number = next(int(line.split()[0]) for line in reversed(lines) if line.endswith("fn oops() -> f32 { return 1u; }"))
    assert f":{number}:" in message, "the compiler's place is that of the numbered line"
    assert sum(line.split()[:1] == [str(n)] for n, line in enumerate(lines[-number:], 1)) == number


def test_a_kernel_of_another_layout_is_an_exception(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with_fault(monkeypatch, lambda source: source.replace("@binding(2)", "@binding(9)"))
    b = GraphBuilder()
    graph = b.graph(b.call("aten.neg.default", b.input((4,))))
    with pytest.raises(DeviceError, match=r"kernel .* does not compile"):
        GpuSession(graph, Device(device.adapter))


def test_a_tensor_over_the_adapters_limit_is_refused_before_anything_is_allocated(device: Device) -> None:
    for build in ("input", "between"):
        b = GraphBuilder()
        count = device.max_binding // 4 + 1
        x = b.input((count,) if build == "input" else (1,))
        y = b.call("aten.neg.default", x if build == "input" else b.call("aten.expand_copy.default", x, [count]))
        created = device.created
        with pytest.raises(DeviceError, match=rf"needs {count * 4} bytes; .* at most {device.max_binding}") as error:
            GpuSession(b.graph(y), device)
        assert device.created == created and "\n" not in str(error.value)


LOSE = """
import faulthandler, logging, sys
sys.path = {path!r}
faulthandler.dump_traceback_later(60, exit=True)  # a hang is a failure
logging.disable()
from hightide.errors import DeviceError
from hightide.gpu.device import Device, find_adapter
from llamas import call, llama_session

place, warm = sys.argv[1], int(sys.argv[2])
device = Device(find_adapter(None))
session = llama_session(device)
for position in range(warm):
    session.run(call(1, position))
owner = session if hasattr(session, place) else session.recorder
step = getattr(owner, place)

def lost(*args):
    device.wgpu.destroy()
    return step(*args)

setattr(owner, place, lost)
for attempt in (session.run, session.run, lambda inputs: session.reset(), lambda inputs: session.snapshot(),
                lambda inputs: device.flush(), lambda inputs: device.buffer(64), lambda inputs: llama_session(device)):
    try:
        attempt(call(1, warm))
    except DeviceError as error:
        assert "lost" in str(error) and "\\n" not in str(error), error
    else:
        raise SystemExit("no error")
print("ok")
"""


@pytest.mark.parametrize("place", ["run", "submit", "_encode_ahead", "read"])
@pytest.mark.parametrize("warm", [pytest.param(1, marks=pytest.mark.slow), 4])  # without and with a step encoded ahead
def test_a_lost_device_is_an_exception_wherever_it_is_lost(place: str, warm: int, device: Device) -> None:
    """In a process of its own: wgpu-native ends the process when a lost device is submitted to."""
    code = LOSE.format(path=sys.path)
    done = subprocess.run([sys.executable, "-c", code, place, str(warm)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr[-2000:]


def test_every_error_is_of_one_family() -> None:
    errors = [getattr(hightide, name) for name in hightide.__all__ if name.endswith("Error")]
    assert len(errors) == 6 and all(issubclass(error, HightideError) for error in errors)
    assert find_adapter(None) is find_adapter(0)
