"""CpuSession: a graph on the NumPy references."""

from __future__ import annotations

import numpy as np
import pytest
from schedules import PROGRAMS, relative_error, steps

from hightide.errors import HightideError, InputError, UnsupportedError
from hightide.graph.blob import Blob
from hightide.graph.graph import FileCall, Graph, GraphFile
from hightide.graph.values import Dims, ListValue, LiteralValue, SymIntValue, TensorValue, Value
from hightide.ops.binding import bind_graph
from hightide.ops.contract import REGISTRY, Context, Op, Tensor
from hightide.planning.planner import Planner
from hightide.pte.program import load
from hightide.runtime.cpu_session import CpuSession


class Accumulate(Op):
    """state += x, in place; gives the sum. Refuses 13, after it has written."""

    state: Tensor
    x: Tensor
    mutates = ("state",)

    def outputs(self, ctx: Context) -> list[Dims]:
        return [self.x.dims]

    @staticmethod
    def reference(state: np.ndarray, x: np.ndarray) -> np.ndarray:
        state += x
        if 13 in x:
            raise InputError("13")
        return state


class WrongDims(Op):
    x: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        return [self.x.dims]

    reference = staticmethod(lambda x: x[None])


def tensor(id: int, *dims: int, dtype: str = "float32", constant: np.ndarray | None = None) -> TensorValue:
    blob = None if constant is None else Blob(constant.tobytes(), 0, constant.nbytes)
    return TensorValue(id, dims, dtype, dtype, blob)


def graph(
    values: list[Value], calls: list[tuple[str, tuple[int, ...]]], inputs: list[int], outputs: list[int]
) -> Graph:
    """Each call has its arguments in order, then its output."""
    made = tuple(FileCall(n, name, ids) for n, (name, ids) in enumerate(calls))
    return bind_graph(GraphFile(tuple(values), made, tuple(inputs), tuple(outputs)))


@pytest.fixture
def stateful(monkeypatch: pytest.MonkeyPatch) -> CpuSession:
    monkeypatch.setitem(REGISTRY, "test.accumulate", Accumulate)
    first = np.array([1, 2, 3], np.float32)
    values: list[Value] = [tensor(0, 3, constant=first), tensor(1, 3), tensor(2, 3), tensor(3, 3), tensor(4, 3)]
    calls = [("et_vk.prepack.default", (0, 2)), ("test.accumulate", (2, 1, 3)), ("aten.mul.Tensor", (3, 1, 4))]
    return CpuSession(graph(values, calls, [1], [3, 4]))


def test_state_is_kept_and_reset(stateful: CpuSession) -> None:
    ones = np.ones(3, np.float32)
    assert stateful.run([ones])[0].tolist() == [2, 3, 4]
    assert stateful.run([ones])[0].tolist() == [3, 4, 5]
    stateful.reset()
    assert stateful.run([2 * ones])[0].tolist() == [3, 4, 5]


def test_failed_run_leaves_state(stateful: CpuSession) -> None:
    stateful.run([np.ones(3, np.float32)])
    with pytest.raises(InputError, match=r"op 1 \(test.accumulate\): 13"):
        stateful.run([np.full(3, 13, np.float32)])
    assert stateful.run([np.zeros(3, np.float32)])[0].tolist() == [2, 3, 4]


def test_outputs_are_the_callers(stateful: CpuSession) -> None:
    stateful.run([np.ones(3, np.float32)])[0][:] = 99
    assert stateful.run([np.zeros(3, np.float32)])[0].tolist() == [2, 3, 4]


def test_input_written_in_place_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "test.accumulate", Accumulate)
    session = CpuSession(
        graph([tensor(0, 2), tensor(1, 2), tensor(2, 2)], [("test.accumulate", (0, 1, 2))], [0, 1], [2])
    )
    given = np.ones(2, np.float32)
    assert session.run([given, given])[0].tolist() == [2, 2]
    assert given.tolist() == [1, 1]


def test_view_keeps_what_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    """A select of a buffer that is written later must not follow it."""
    monkeypatch.setitem(REGISTRY, "test.accumulate", Accumulate)
    values = [tensor(0, 2, constant=np.zeros(2, np.float32)), tensor(1, 2), tensor(2, 1), tensor(3, 2)]
    literals: list[Value] = [LiteralValue(4, 0), LiteralValue(5, 1), LiteralValue(6, 1)]
    calls = [("aten.slice_copy.Tensor", (0, 4, 4, 5, 6, 2)), ("test.accumulate", (0, 1, 3))]
    session = CpuSession(graph([*values, *literals], calls, [1], [2, 3]))
    before, after = session.run([np.ones(2, np.float32)])
    assert before.tolist() == [0] and after.tolist() == [1, 1]


def test_wrong_reference_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "test.wrong", WrongDims)
    session = CpuSession(graph([tensor(0, 2), tensor(1, 2)], [("test.wrong", (0, 1))], [0], [1]))
    with pytest.raises(HightideError, match=r"reference of op 0 \(test.wrong\) gives \[1, 2\], its plan says \[2\]"):
        session.run([np.zeros(2, np.float32)])


def test_symint_inputs_and_outputs() -> None:
    """x[:n] viewed as [n * 2, 3], with n given as an int."""
    values: list[Value] = [tensor(0, 9, 6), SymIntValue(1, 0), tensor(2, 9, 6), SymIntValue(3, 0), tensor(4, 18, 3)]
    values += [LiteralValue(5, 0), LiteralValue(6, 1), LiteralValue(7, 2), LiteralValue(8, 3), ListValue(9, (3, 8))]
    calls = [
        ("aten.slice_copy.Tensor", (0, 5, 5, 1, 6, 2)),
        ("mul", (1, 7, 3)),
        ("aten.view_copy.default", (2, 9, 4)),
    ]
    session = CpuSession(graph(values, calls, [0, 1], [4, 3, 1]), names=["x", "n"])
    assert (session.specs[1].dims, session.specs[1].dtype) == ((), "int64")
    x = np.arange(54, dtype=np.float32).reshape(9, 6)
    for n in (9, 1, 4, 9):
        y, twice, same = session.run([x, n])
        np.testing.assert_array_equal(y, x[:n].reshape(2 * n, 3))
        assert (int(twice), int(same)) == (2 * n, n)
    assert session.levels.planned == 3
    with pytest.raises(InputError, match="does not fit the 32-bit integers"):
        session.run([x, 2**40])
    with pytest.raises(InputError, match="input n is float64"):
        session.run([x, np.float64(1.5)])


def test_float64_is_the_oracle() -> None:
    program = load(PROGRAMS / "llama_gqa.pte", device="cpu")
    session = program.method("forward").sessions[0]
    oracle = CpuSession(session.graph, dtype="float64")
    for n, (_, inputs, outputs) in enumerate(steps("llama_gqa")):
        got = oracle.run(inputs)[0]
        assert got.dtype == np.float64
        error = np.abs(got - outputs[0]).max() / np.ptp(outputs[0])
        assert error < 1e-5, f"step {n}: {error}"
        assert relative_error(session.run(inputs)[0], outputs[0]) < 1e-5


def test_intermediates_are_released() -> None:
    session = CpuSession(graph([tensor(0, 2), tensor(1, 2), tensor(2, 2)], [
        ("aten.relu.default", (0, 1)), ("aten.neg.default", (1, 2)),
    ], [0], [2]))  # fmt: skip
    assert session.references.last_use == {0: [0], 1: [1]}


class Doubled(Op):
    """An op that has no kernel."""

    x: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        return [self.x.dims]

    reference = staticmethod(lambda x: x * 2)


def test_ops_without_kernel_are_refused_on_the_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "test.doubled", Doubled)
    doubled = graph([tensor(0, 2), tensor(1, 2)], [("test.doubled", (0, 1))], [0], [1])
    assert CpuSession(doubled).run([np.ones(2, np.float32)])[0].tolist() == [2, 2]
    with pytest.raises(UnsupportedError, match=r"test\.doubled, which has a reference but no GPU kernel"):
        Planner(doubled)
