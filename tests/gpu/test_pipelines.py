"""Pipelines: compiled in threads while a session is built, and dispatched once over nothing before its first step."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from planted import change_kernels

from hightide.errors import DeviceError
from hightide.gpu.compile_ahead import CompileAhead, _Blank, helpers
from hightide.gpu.device import Device
from hightide.gpu.pipelines import Pipelines, compiling, pipelines
from hightide.graph.graph import Graph
from hightide.ops.builder import GraphBuilder
from hightide.runtime.gpu_session import GpuSession
from hightide.wgsl.shader import Shader


def small_graph() -> Graph:
    b = GraphBuilder()
    x = b.input((9, 12))
    return b.graph(b.call("aten._softmax.default", b.call("aten.relu.default", x), -1, False))


def shaders(device: Device) -> list[Shader]:
    session = GpuSession(small_graph(), device)
    steps = session.level([np.ones((9, 12), np.float32)])[1].steps
    return [step.dispatch.kernel.shader() for step in steps]


def test_they_are_compiled_in_other_threads_and_found_again(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = shaders(device)
    fresh = Device(device.adapter)
    made = Pipelines(fresh)
    seen: list[str] = []
    create = fresh.wgpu.create_compute_pipeline

    def watched(**settings: object) -> object:
        seen.append(threading.current_thread().name)
        return create(**settings)

    monkeypatch.setattr(fresh.wgpu, "create_compute_pipeline", watched)
    made.start([*wanted, *wanted])
    first = [made.get(shader) for shader in wanted]
    assert len(seen) == len(wanted) == 2 and all(name.startswith("pipelines") for name in seen)
    made.start(wanted)
    assert [made.get(shader) for shader in wanted] == first and len(seen) == 2


def test_those_that_no_session_holds_go_in_time(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hightide.gpu.pipelines.KEPT", 1)
    fresh = Device(device.adapter)
    made, (first, second) = Pipelines(fresh), shaders(device)
    made.start([first, second])
    held = made.get(first)
    made.get(second)
    before = fresh.created
    assert made.get(first) is held and made.has(second) and fresh.created == before
    del held
    assert not made.has(first)
    made.get(first)
    assert fresh.created == before + 1 and not made.has(second)


def test_another_device_compiles_the_last_ones_first(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, done, begun, free = shaders(device), [], threading.Event(), threading.Event()
    run = _Blank.run

    def watched(work: _Blank, shader: Shader) -> None:
        assert work.device is not device
        run(work, shader)
        done.append(shader)
        begun.set()
        assert free.wait(60)

    monkeypatch.setattr(_Blank, "run", watched)
    ahead = CompileAhead(device.adapter, wanted, 1)
    ahead.start()
    assert begun.wait(60)
    ahead.meet(wanted[0])  # compiled elsewhere, and so left out
    ahead.meet(wanted[0])
    free.set()
    ahead.meet(wanted[1])
    ahead.stop()
    assert done == [wanted[1]]


def test_a_kernel_that_takes_long_calls_for_help(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proven kernels may be gone from the driver's cache."""
    wanted, done = shaders(device), []
    monkeypatch.setattr(_Blank, "run", lambda work, shader: done.append(shader))
    monkeypatch.setattr("hightide.gpu.compile_ahead.SLOW_SECONDS", math.inf)
    ahead = CompileAhead(device.adapter, wanted, 1)
    ahead.meet(wanted[0])
    ahead.meet(wanted[0])
    assert not done
    monkeypatch.setattr("hightide.gpu.compile_ahead.SLOW_SECONDS", -1.0)
    ahead.meet(wanted[0])
    while not done:
        time.sleep(0.01)
    ahead.stop()
    assert done == [wanted[1]]


def test_a_kernel_that_another_device_refuses_is_nobodys_error(device: Device) -> None:
    broken = Shader("broken", "fn main( {\n", shaders(device)[0].interface, (("", 0),))
    ahead = CompileAhead(device.adapter, [broken], 1)
    ahead.start()
    ahead.meet(broken)
    ahead.stop()


def test_only_a_driver_that_compiles_in_its_queue_is_helped(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MESA_SHADER_CACHE_DISABLE", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    names = ("llvmpipe (LLVM 15)", "SwiftShader Device", "AMD Radeon")
    assert [helpers(replace(device.adapter, name=name)) for name in names] == [3, 0, 0]
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert helpers(replace(device.adapter, name=names[0])) == 0
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setenv("MESA_SHADER_CACHE_DISABLE", "1")
    assert helpers(replace(device.adapter, name=names[0])) == 0


def test_a_kernel_that_does_not_compile_shows_its_lines(device: Device) -> None:
    made = Pipelines(Device(device.adapter))
    declared, places = shaders(device)[0].interface, (("", 0), ("ops/none.wgsl", 7))
    broken = [Shader(f"broken{n}", "// first\nfn main( {\n", declared, places) for n in range(2)]
    made.start(broken)
    for shader in broken:
        with pytest.raises(DeviceError, match=r"kernel broken\d does not compile") as raised:
            made.get(shader)
        assert "   2 none.wgsl:7 fn main( {" in str(raised.value)


def test_a_session_that_cannot_be_built_says_so_each_time(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = Device(device.adapter)
    with monkeypatch.context() as patch:
        change_kernels(patch, lambda text: "fn main( {")
        for _ in range(2):
            with pytest.raises(DeviceError, match="does not compile"):
                GpuSession(small_graph(), fresh)
    (out,) = GpuSession(small_graph(), fresh).run([np.zeros((9, 12), np.float32)])
    np.testing.assert_allclose(out, 1 / 12, rtol=1e-6)


def test_a_new_session_has_dispatched_its_pipelines(device: Device) -> None:
    fresh = Device(device.adapter)
    told: list[tuple[int, int]] = []
    token = compiling.set(lambda done, total: told.append((done, total)))
    try:
        session = GpuSession(small_graph(), fresh)
        GpuSession(small_graph(), fresh)  # nothing is left to compile
    finally:
        compiling.reset(token)
    assert told == [(1, 2), (2, 2)] and len(pipelines(fresh).warm) == 2
    before = fresh.created
    session.run([np.ones((9, 12), np.float32)])
    session.run([np.ones((1, 12), np.float32)])
    assert fresh.created == before and told == [(1, 2), (2, 2)]


def test_warming_up_writes_nothing(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """State keeps what the program says it is, though the ops that write it were dispatched."""
    b = GraphBuilder()
    cache = b.constant(np.full((1, 8, 2, 4), 7, np.float32))
    x = b.input((1, 3, 2, 4))
    at = b.call("et_vk.select_as_symint.default", b.input((1,), "int32"), 0, -1)
    b.call("update_cache.default", x, cache, at, dims=[(1,)])
    graph = b.graph(b.call("aten.neg.default", cache))
    session = GpuSession(graph, Device(device.adapter))
    (state,) = session.read_state()
    np.testing.assert_array_equal(state, 7)
    (out,) = session.run([np.ones((1, 1, 2, 4), np.float32), np.array([2], np.int32)])
    assert (out[0, 2] == -1).all() and (np.delete(out[0], 2, 0) == -7).all()
