"""Buffers: no two tensors alive at once share one, views keep what they saw, weights stream, grids fold."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
import weakref
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from op_cases import CASES
from op_runner import Built
from schedules import INDEX, PROGRAMS

from hightide.gpu.device import Device
from hightide.graph.graph import Graph, input_ids, output_ids
from hightide.graph.values import TensorValue
from hightide.ops.builder import GraphBuilder
from hightide.ops.contract import Scratch
from hightide.planning.levels import MaxElements
from hightide.planning.memory import gpu_bytes, plan_memory
from hightide.planning.planner import Planner
from hightide.pte.program import load
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.upload import CHUNK_ITEMS

# ---- lifetimes


def check_sharing(graph: Graph) -> int:
    """No shared buffer holds two things at once; how many buffers there are."""
    planner = Planner(graph)
    plan = planner.plan_max(MaxElements())
    memory = plan_memory(graph, planner.aliases, plan.scratch_sizes)
    root = planner.aliases.root

    # Lives from scratch, by what the calls do: [first, last] call that touches a tensor or an alias of it.
    lives: dict[Any, list[int]] = {}
    for call in graph.calls:
        for id in (*input_ids(graph, call), *output_ids(graph, call)):
            if id in root:
                lives.setdefault(root[id], []).append(call.index)
    for id in graph.outputs:
        if id in root:
            lives.setdefault(root[id], []).append(len(graph.calls))
    for scratch in plan.scratch_sizes:
        lives[scratch] = [scratch.call]

    for a, b in combinations(memory.shared, 2):
        if memory.shared[a] == memory.shared[b]:
            assert max(lives[a]) < min(lives[b]) or max(lives[b]) < min(lives[a]), f"{a} and {b} share a buffer"
    for what, buffer in memory.shared.items():
        size = plan.scratch_sizes[what] if isinstance(what, Scratch) else tensor_bytes(graph, what)
        assert memory.shared_sizes[buffer] >= size
    for id in lives:
        if isinstance(id, int):
            value = graph.values[id]
            assert isinstance(value, TensorValue)
            kept = value.constant is not None or id in graph.inputs
            assert (id in memory.own) == kept and (id in memory.shared) != kept
    return len(memory.shared_sizes)


def tensor_bytes(graph: Graph, id: int) -> int:
    value = graph.values[id]
    assert isinstance(value, TensorValue)
    return gpu_bytes(value.dtype, value.dims)


@pytest.mark.parametrize("name", INDEX)
@pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")
def test_tensors_alive_at_once_have_buffers_of_their_own(name: str) -> None:
    program = load(PROGRAMS / f"{name}.pte", device="cpu")
    for method in dict.fromkeys(INDEX[name]["steps"]):
        for session in program.method(method).sessions:
            check_sharing(session.graph)


def test_buffers_are_shared_over_time() -> None:
    """A chain of any length takes two."""
    b = GraphBuilder()
    x = b.input((100,))
    for _ in range(20):
        x = b.call("aten.neg.default", x)
    assert check_sharing(b.graph(x)) == 2


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_tensors_and_scratch_of_each_op_have_buffers_of_their_own(case: Any) -> None:
    check_sharing(Built(case, np.random.default_rng(0)).graph)


# ---- views and state


def zeros_cache(b: GraphBuilder) -> TensorValue:
    return b.constant(np.zeros((1, 6, 1, 4), np.float32))


def update(b: GraphBuilder, x: TensorValue, cache: TensorValue, position: int = 0) -> None:
    b.call("update_cache.default", x, cache, position)


def run(graph: Graph, device: Device, *calls: list[np.ndarray]) -> list[list[np.ndarray]]:
    """Outputs of each call, the same on the GPU (its memory poisoned before each) and on the references."""
    gpu, cpu = GpuSession(graph, device), CpuSession(graph)
    results = []
    for inputs in calls:
        gpu.poison()
        got = gpu.run(inputs)
        for a, b in zip(got, cpu.run(inputs), strict=True):
            np.testing.assert_array_equal(a, b)
        results.append(got)
    return results


K = np.arange(8, dtype=np.float32).reshape(1, 2, 1, 4) + 1


def test_a_view_of_state_keeps_what_it_saw_when_the_state_is_written(device: Device) -> None:
    b = GraphBuilder()
    k, cache = b.input((1, 2, 1, 4)), zeros_cache(b)
    before = b.call("aten.view_copy.default", cache, [6, 4])
    again = b.call("aten.view_copy.default", before, [24])  # a view of a view
    update(b, k, cache)
    after = b.call("aten.view_copy.default", cache, [6, 4])
    update(b, b.call("aten.neg.default", k), cache)
    last = b.call("aten.neg.default", b.call("aten.view_copy.default", cache, [24]))
    graph = b.graph(before, again, after, last)
    first, second = run(graph, device, [K], [K * 10])
    for (early, flat, middle, end), old, new in ((first, np.zeros((2, 4)), K), (second, -K, K * 10)):
        np.testing.assert_array_equal(early[:2], old.reshape(2, 4))
        np.testing.assert_array_equal(flat, early.reshape(-1))
        np.testing.assert_array_equal(middle[:2], new.reshape(2, 4))
        np.testing.assert_array_equal(end[:8], new.reshape(-1))


@pytest.mark.parametrize("through_view", [False, True])
def test_state_behind_prepack_and_views_is_kept_and_reset(through_view: bool, device: Device) -> None:
    b = GraphBuilder()
    k, cache = b.input((1, 2, 1, 4)), b.constant(np.zeros((6, 4) if through_view else (1, 6, 1, 4), np.float32))
    cache = b.call("et_vk.prepack.default", cache)
    if through_view:
        cache = b.call("aten.view_copy.default", cache, [1, 6, 1, 4])
    before = b.call("aten.clone.default", cache, None)
    update(b, k, cache, 3)
    for session in (GpuSession(b.graph(before), device), CpuSession(b.graph(before))):
        assert not session.run([K])[0].any()
        (kept,) = session.run([K])
        np.testing.assert_array_equal(kept[0, 3:5], K[0])
        session.reset()
        assert not session.run([K])[0].any()


def test_a_view_of_an_input_that_is_written_in_place_keeps_what_it_saw(device: Device) -> None:
    b = GraphBuilder()
    k, cache = b.input((1, 2, 1, 4)), b.input((1, 6, 1, 4))
    before = b.call("aten.view_copy.default", cache, [24])
    update(b, k, cache)
    after = b.call("aten.neg.default", cache)
    given = np.full((1, 6, 1, 4), 5, np.float32)
    ((early, late),) = run(b.graph(before, after), device, [K, given])
    assert (early == 5).all() and (given == 5).all()
    np.testing.assert_array_equal(late[0, :2], -K[0])


def test_outputs_may_be_inputs_constants_views_and_each_other(device: Device) -> None:
    b = GraphBuilder()
    x = b.input((4, 3))
    constant = b.constant(np.arange(5, dtype=np.float32))
    numbers = b.constant(np.array([2**31 - 1, -7], np.int64))
    y = b.call("aten.neg.default", x)
    of_input = b.call("aten.view_copy.default", x, [-1, 1])
    of_view = b.call("aten.unsqueeze_copy.default", b.call("aten.view_copy.default", y, [-1]), 0)
    of_constant = b.call("aten.view_copy.default", constant, [5, 1])
    dead = b.call("aten.exp.default", y)  # nobody reads it
    graph = b.graph(y, of_input, of_view, constant, numbers, y, x, of_constant, of_view)
    assert dead.id not in graph.outputs
    for rows in (4, 1, 3):
        given = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        (got,) = run(graph, device, [given])
        flat = given.reshape(-1)
        want = [-given, flat[:, None], -flat[None], np.arange(5), [2**31 - 1, -7], -given, given, np.arange(5)[:, None]]
        for a, e in zip(got, [*want, -flat[None]], strict=True):
            np.testing.assert_array_equal(a, e)
        got[0][:] = 99  # outputs are the caller's, each its own
        assert not (got[5] == 99).any() and (got[6] == given).all()


def test_a_graph_without_ops_gives_back_its_inputs(device: Device) -> None:
    b = GraphBuilder()
    x, flags = b.input((3, 5)), b.input((7,), "bool")
    given = [np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32), np.arange(5) % 2 == 0]
    ((first, second),) = run(b.graph(x, flags), device, given)
    assert (first == given[0]).all() and (second == given[1]).all()
    assert GpuSession(b.graph(), device).run(given) == []


# ---- weights on their way to the GPU


def weights_graph(path: Path, megabytes: int) -> Graph:
    """Four constants of a file; each op takes the last element of one."""
    from dataclasses import replace

    from hightide.formats.source_file import SourceFile
    from hightide.graph.blob import Blob

    count = megabytes * (1 << 20) // 16
    with path.open("w+b") as file:
        file.truncate(count * 16)  # zeros that take no place
        for n in range(1, 5):
            file.seek(n * count * 4 - 4)
            file.write(np.float32(n).tobytes())
    source = SourceFile(path)
    b = GraphBuilder()
    weights = [b.constant(np.zeros(0, np.float32)) for _ in range(4)]
    for n, value in enumerate(weights):
        blob = Blob(source, n * count * 4, count * 4)
        b.values[value.id] = weights[n] = replace(value, dims=(count,), constant=blob)
    return b.graph(*(b.call("aten.slice_copy.Tensor", w, 0, -1, None, 1, dims=[(1,)]) for w in weights))


def test_weights_go_to_the_gpu_in_chunks(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python and NumPy allocate while 64 MB are uploaded stays near one chunk; no write is larger."""
    graph = weights_graph(tmp_path / "weights", 64)
    sizes: list[int] = []
    write = Device.write

    def counted(self: Device, buffer: Any, offset: int, data: Any) -> None:
        sizes.append(memoryview(data).nbytes)
        write(self, buffer, offset, data)

    monkeypatch.setattr(Device, "write", counted)
    tracemalloc.start()
    try:
        session = GpuSession(graph, device)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [float(a[0]) for a in session.run([])] == [1, 2, 3, 4]
    assert max(sizes) <= CHUNK_ITEMS * 4 and sum(sizes) >= 64 << 20
    assert peak <= CHUNK_ITEMS * 4 + (4 << 20)


PEAK = """
import resource, sys
sys.path = {path!r}
from pathlib import Path
from hightide.gpu.device import find_adapter, open_device
from hightide.runtime.gpu_session import GpuSession
from test_memory import softmax_rows, weights_graph

device = open_device(find_adapter(None))
GpuSession(softmax_rows(8), device)  # the driver's own memory is not counted
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
before = peak()
session = GpuSession(weights_graph(Path(sys.argv[1]), int(sys.argv[2])), device)
assert [float(a[0]) for a in session.run([])] == [1, 2, 3, 4]
print(peak() - before - sum(session.device_bytes().values()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads peak memory as Linux reports it")
def test_loading_takes_the_largest_tensor_and_a_constant_besides_the_gpu(device: Device, tmp_path: Path) -> None:
    """The peak of a process that uploads 200 MB of weights, 50 MB the largest.

    A software adapter's buffers are memory of this process, so they are taken off; a real GPU has its own, and the
    figure is then the whole.
    """
    code = PEAK.format(path=[str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", code, str(tmp_path / "weights"), "200"]
    extra = int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout)
    assert extra <= (50 << 20) + (40 << 20)


# ---- grids past 65,535


def softmax_rows(rows: int) -> Graph:
    b = GraphBuilder()
    return b.graph(b.call("aten._softmax.default", b.input((rows, 2)), -1, False))


def test_rows_past_the_grid_limit_are_all_computed(device: Device) -> None:
    """One workgroup per row: 70,001 of them fold into two dimensions."""
    session = GpuSession(softmax_rows(70_001), device)
    for rows in (70_001, 65_535, 65_536, 3, 65_537):
        x = np.random.default_rng(rows).standard_normal((rows, 2)).astype(np.float32)
        (got,) = session.run([x])
        exp = np.exp(x.astype(np.float64))
        np.testing.assert_allclose(got, exp / exp.sum(-1, keepdims=True), rtol=1e-5)


def test_elements_past_the_grid_limit_are_all_computed(device: Device) -> None:
    """65,535 workgroups of 64 threads of 4 elements are 16,776,960 elements; here are a few more."""
    count = 65_535 * 256 + 12_345
    b = GraphBuilder()
    session = GpuSession(b.graph(b.call("aten.neg.default", b.input((count,)))), device)
    x = np.arange(count, dtype=np.float32)
    np.testing.assert_array_equal(session.run([x])[0], -x)


def test_a_session_that_nobody_holds_is_freed_at_once(device: Device) -> None:
    b = GraphBuilder()
    x = b.input((4, 8))
    session = GpuSession(b.graph(b.call("aten.relu.default", x)), device)
    for _ in range(3):
        session.run([np.zeros((4, 8), np.float32)])
    held = weakref.ref(session)
    gc.disable()
    try:
        del session
        assert held() is None
    finally:
        gc.enable()
