"""Graphs that no exporter writes: every value used before it is made, every output of the wrong kind is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hightide.errors import HightideError, InputError, ProgramError, UnsupportedError, reading
from hightide.formats.instructions import KernelCall
from hightide.formats.program_file import MethodFile, TensorSpec, ValueListSpec
from hightide.graph import symbols
from hightide.graph.aliases import check_order
from hightide.graph.graph import FileCall, Graph, GraphFile
from hightide.graph.values import ListValue, LiteralValue, SymIntValue, TensorValue, Value
from hightide.ops.binding import bind_graph
from hightide.ops.builder import GraphBuilder
from hightide.ops.contract import Context, Op
from hightide.planning.levels import MaxElements
from hightide.planning.planner import Planner
from hightide.pte.interpreter import Interpreter
from hightide.pte.kernel_calls import find_op, signature
from hightide.pte.method_info import describe_method
from hightide.runtime.cpu_session import CpuSession


def tensor(id: int, *dims: int, dtype: str = "float32") -> TensorValue:
    return TensorValue(id, dims, dtype, dtype)


def graph(values: list[Value], calls: list[FileCall], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Graph:
    bound = bind_graph(GraphFile(tuple(values), tuple(calls), inputs, outputs))
    check_order(bound)
    return bound


def slice_of_nothing() -> Graph:
    """A SymInt that no call makes."""
    values: list[Value] = [tensor(0, 4), tensor(1, 4), SymIntValue(2, 3), LiteralValue(3, 0)]
    return graph(values, [FileCall(0, "aten.slice_copy.Tensor", (0, 3, 2, 1))], (0,), (1,))


def size_into_a_tensor() -> Graph:
    return graph([tensor(0, 4), LiteralValue(1, 0), tensor(2, 4)], [FileCall(0, "sym_size.int", (0, 1, 2))], (0,), (2,))


def sum_into_a_symint() -> Graph:
    values: list[Value] = [tensor(0, 4), SymIntValue(1, 0)]
    return graph(values, [FileCall(0, "aten.neg.default", (0, 1))], (0,), (1,))


def an_empty_list_of_outputs() -> Graph:
    values: list[Value] = [tensor(0, 4), ListValue(1, ())]
    return graph(values, [FileCall(0, "aten.neg.default", (0, 1))], (0,), (0,))


def a_literal_as_input() -> Graph:
    return graph([LiteralValue(0, 3), tensor(1, 4)], [FileCall(0, "aten.neg.default", (1, 1))], (0,), (1,))


def a_literal_as_output() -> Graph:
    return graph([tensor(0, 4), LiteralValue(1, 3)], [], (0,), (1,))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (slice_of_nothing, "reads SymInt 2 before anything defines it"),
        (size_into_a_tensor, "its output is a float32 tensor; it gives a SymInt"),
        (sum_into_a_symint, "its output is a SymInt; it gives a tensor"),
        (an_empty_list_of_outputs, "it writes a list of 0 values"),
        (a_literal_as_input, "input value 0 is neither a tensor nor a SymInt"),
        (a_literal_as_output, "output value 1 is neither a tensor nor a SymInt"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(make: Callable[[], Graph], sentence: str) -> None:
    with pytest.raises((ProgramError, UnsupportedError), match=sentence):
        make()


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten.select_copy.int", (0, 0)),
        ("aten.slice_copy.Tensor", (0, 0, 1)),
        ("aten.split_with_sizes_copy.default", ([1], 0)),
        ("sym_size.int", (0,)),
    ],
)
def test_a_scalar_has_no_dims_to_take(name: str, args: tuple[object, ...]) -> None:
    b = GraphBuilder()
    with pytest.raises(InputError, match="a tensor without dims"):
        b.call(name, b.input(()), *args)


@pytest.mark.parametrize("dims", [(5,), (-4,), (2**40,), (0, 0)])
def test_dims_that_do_not_exist_cannot_be_flipped_or_ordered(dims: tuple[int, ...]) -> None:
    b = GraphBuilder()
    x = b.input((2, 3))
    for name in ("aten.flip.default", "aten.permute_copy.default"):
        with pytest.raises(InputError):
            b.call(name, x, list(dims))


def test_a_live_end_before_the_first_row_is_refused() -> None:
    """In Python it would count from the end; the plan has no rows for it."""
    b = GraphBuilder()
    end = b.call("et_vk.select_as_symint.default", b.input((1,), "int32"), 0, 0)
    session = CpuSession(b.graph(b.call("aten.slice_copy.Tensor", b.input((8, 2)), 0, 0, end, 1, dims=[(8, 2)])))
    x = np.ones((8, 2), np.float32)
    assert session.run([np.array([3], np.int32), x])[0].shape == (3, 2)
    with pytest.raises(InputError, match="rows up to -1 of a dim of 8"):
        session.run([np.array([-1], np.int32), x])


# ---- integers without end


def test_symints_stay_within_64_bits() -> None:
    for grow in (lambda n: symbols.mul(n, n), lambda n: symbols.add(n, n)):
        with pytest.raises(InputError, match="64 bits"):
            number: symbols.SymExpr = 3
            for _ in range(100):
                number = grow(number)


def test_products_of_products_end() -> None:
    """As a tree this has 2^100 nodes."""
    number: symbols.SymExpr = symbols.element(0, 0)
    with pytest.raises(InputError, match="more than 1000 steps"):
        for _ in range(100):
            number = symbols.mul(number, number)


# ---- what no check foresees


class Careless(Op):
    def outputs(self, ctx: Context) -> list[tuple[int, ...]]:
        return [(1,)[2]]  # type: ignore[list-item]


def test_an_op_that_stumbles_over_a_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    b = GraphBuilder()
    made = b.graph(b.call("aten.neg.default", b.input((2,))))
    planner = Planner(made, dispatch=False)
    monkeypatch.setattr(planner.ops[0], "outputs", Careless.outputs)
    with pytest.raises(
        ProgramError, match=r"op 0 \(aten.neg.default\): .* do not fit each other \(IndexError"
    ) as error:
        planner.plan_max(MaxElements())
    assert isinstance(error.value.__cause__, IndexError)


def test_reading_names_the_file() -> None:
    with pytest.raises(ProgramError, match=r"some.pte is damaged \(KeyError: 3\)"), reading("some.pte"):
        {}[3]
    with pytest.raises(HightideError, match="more memory than there is"), reading("some.pte"):
        raise MemoryError


def test_types_that_a_reference_does_not_take() -> None:
    b = GraphBuilder()
    session = CpuSession(b.graph(b.call("aten.bitwise_not.default", b.input((2,)))))
    with pytest.raises(InputError, match=r"op 0 \(aten.bitwise_not.default\)"):
        session.run([np.ones(2, np.float32)])


# ---- kernel calls


def spec(*dims: int) -> TensorSpec:
    return TensorSpec("float32", dims, False, tuple(range(len(dims))), None, None, None, None)


def test_a_kernel_call_without_arguments() -> None:
    op = find_op("aten::add.out")
    assert op is not None
    with pytest.raises(UnsupportedError, match="without arguments"):
        signature(KernelCall("aten::add.out", ()), (), op)


def test_a_kernel_that_would_make_too_much_is_not_run() -> None:
    values = (spec(2), 1 << 40, ValueListSpec((1,)), spec(2))
    method = MethodFile("forward", values, (0,), (3,), (KernelCall("aten::repeat.out", (0, 2, 3, 3)),), ())
    with pytest.raises(InputError, match=r"over its max dims \[2\]"):
        Interpreter(method, describe_method(method).inputs, []).run([np.ones(2, np.float32)])
