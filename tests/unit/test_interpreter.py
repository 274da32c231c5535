"""The instruction interpreter, on methods made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_methods import BRANCHES, method, tensor

from hightide.errors import InputError, ProgramError
from hightide.formats.instructions import DelegateCall, FreeCall, Instruction, JumpFalseCall, KernelCall, MoveCall
from hightide.formats.program_file import EValue, MethodFile, ProgramFile, TensorSpec, ValueListSpec
from hightide.graph.blob import Blob
from hightide.ops.builder import GraphBuilder
from hightide.pte.kernel_calls import find_op, signature
from hightide.pte.method_info import describe_method
from hightide.pte.program import Method, Program
from hightide.runtime.cpu_session import CpuSession

pytestmark = pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")


def test_branches() -> None:
    """out = x + x if flag else -x."""
    values: list[EValue] = [tensor(4), True, tensor(4), 1, tensor(4), tensor(4), False]
    forward = method(
        values,
        [0, 1],
        [5],
        *BRANCHES,
    )
    assert forward([1.0, 2.0], True)[0].tolist() == [2, 4]
    assert forward([1.0, 2.0, 3.0], False)[0].tolist() == [-1, -2, -3]


def test_loop_with_integers() -> None:
    """torch.map: y[i] = x[i] + x[i], for i below the live length."""
    values: list[EValue] = [tensor(5, 2), 0, 0, tensor(2), tensor(2), tensor(5, 2), 1, True, False, 0]
    forward = method(
        values,
        [0],
        [5, 1],
        KernelCall("aten::sym_size.int", (0, 9, 2)),
        KernelCall("aten::select_copy.int_out", (0, 9, 1, 3, 3)),
        KernelCall("aten::add.out", (3, 3, 6, 4, 4)),
        KernelCall("executorch_prim::et_copy_index.tensor", (5, 4, 1)),
        KernelCall("executorch_prim::add.Scalar", (1, 6, 1)),
        KernelCall("executorch_prim::eq.Scalar", (1, 2, 7)),
        JumpFalseCall(7, 1),
    )
    for length in (5, 1, 3):
        x = np.arange(length * 2, dtype=np.float32).reshape(length, 2)
        y, count = forward(x)
        np.testing.assert_array_equal(y, 2 * x)
        assert int(count) == length


def test_endless_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hightide.pte.interpreter.MAX_INSTRUCTIONS", 1000)
    forward = method([False, 1], [], [1], JumpFalseCall(0, 0))
    with pytest.raises(ProgramError, match="did not end after 1000 instructions"):
        forward()


def test_unset_and_freed_values() -> None:
    forward = method([tensor(2), tensor(2)], [0], [1])
    with pytest.raises(ProgramError, match="value 1 of method forward is read before it is defined"):
        forward([1.0, 2.0])
    freed = method([tensor(2), tensor(2)], [0], [1], MoveCall(0, 1), FreeCall(1))
    with pytest.raises(ProgramError, match="value 1 of method forward"):
        freed([1.0, 2.0])


def counter(initial: Any) -> Method:
    """total += x; then y = total.view(2, 2), which fails unless x has 4 elements."""
    values: list[EValue] = [tensor(4, initial=initial), tensor(4), tensor(4), 1, False, 2, ValueListSpec((5, 5))]
    values += [tensor(2, 2), tensor(4)]
    return method(
        values,
        [1],
        [7],
        KernelCall("aten::add.out", (0, 1, 3, 2, 2)),
        KernelCall("aten::copy_", (0, 2, 4, 0)),
        KernelCall("aten::relu.out", (1, 8, 8)),
        KernelCall("executorch_prim::et_view.default", (8, 6, 7)),
    )


@pytest.mark.parametrize("initial", [None, [5, 5, 5, 5]])
def test_buffers_persist_and_reset(initial: list[float] | None) -> None:
    forward = counter(initial)
    state = forward.interpreter.state
    first = state[0].tolist()
    assert first == (initial or [0, 0, 0, 0])
    for _ in range(3):
        forward([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(forward.interpreter.state[0], np.add(first, [3, 6, 9, 12]))
    forward.reset()
    assert forward.interpreter.state[0].tolist() == first


def test_failed_run_leaves_buffers() -> None:
    forward = counter(None)
    forward([1.0, 1.0, 1.0, 1.0])
    with pytest.raises(InputError, match=r"instruction 3 \(executorch_prim::et_view.default\): \[1\] has 1 elements"):
        forward([7.0])
    assert forward.interpreter.state[0].tolist() == [1, 1, 1, 1]


def test_failing_kernel_names_itself() -> None:
    forward = method([tensor(4), tensor(4), 1, tensor(4)], [0, 1], [3], KernelCall("aten::add.out", (0, 1, 2, 3, 3)))
    with pytest.raises(InputError, match=r"instruction 0 \(aten::add.out\): operands could not be broadcast"):
        forward([1.0, 2.0], [1.0, 2.0, 3.0])


def test_result_over_its_max_dims() -> None:
    values: list[EValue] = [tensor(4), ValueListSpec((0, 0)), 0, tensor(6)]
    forward = method(values, [0], [3], KernelCall("aten::cat.out", (1, 2, 3, 3)))
    assert forward([1.0, 2.0, 3.0])[0].shape == (6,)
    with pytest.raises(InputError, match=r"instruction 0 \(aten::cat.out\): the output would be \[8\], over its max"):
        forward([1.0, 2.0, 3.0, 4.0])


def test_declared_types() -> None:
    """Halves are computed in float32 and rounded once; comparisons give bools."""
    values: list[EValue] = [tensor(3, dtype="float16"), 2.0, tensor(3, dtype="bool"), tensor(dtype="float16"), True]
    values += [ValueListSpec(()), False, None]
    forward = method(
        values,
        [0],
        [2, 3],
        KernelCall("aten::gt.Scalar_out", (0, 1, 2, 2)),
        KernelCall("aten::sum.IntList_out", (0, 5, 6, 7, 3, 3)),
    )
    over, total = forward(np.array([2048, 1, 1], np.float16))
    assert over.dtype == bool and over.tolist() == [True, False, False]
    assert total.dtype == np.float16 and total == 2050  # 2048 + 1 is 2048 in halves


def test_dim_order_and_bfloat16_constants() -> None:
    stored = np.arange(6, dtype=np.float32)
    values: list[EValue] = [tensor(2, 3, constant=stored, order=(1, 0)), tensor(2, 3)]
    (got,) = method(values, [], [1], KernelCall("aten::relu.out", (0, 1, 1)))()
    np.testing.assert_array_equal(got, stored.reshape(3, 2).T)
    bits = (np.array([1.5, -2.0], np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    half = TensorSpec("bfloat16", (2,), False, (0,), Blob(bits, 0, 4), None, None, None)
    assert method([half], [], [0])()[0].tolist() == [1.5, -2.0]


def test_several_outputs() -> None:
    values: list[EValue] = [tensor(5), 2, -1, True, True, tensor(2), tensor(2, dtype="int64"), ValueListSpec((5, 6))]
    topk = KernelCall("aten::topk.values", (0, 1, 2, 3, 4, 5, 6, 7))
    best, where = method(values, [0], [5, 6], topk)([3.0, 1.0, 7.0, 5.0])
    assert best.tolist() == [7, 5] and where.tolist() == [2, 3] and where.dtype == np.int64


PAIR = ValueListSpec((5, 6))


@pytest.mark.parametrize(
    ("kernel", "values", "args", "reads", "writes"),
    [
        ("aten::add.out", [0, 0, 1, 0], (0, 1, 2, 3, 3), (0, 1, 2), (3,)),
        ("aten::copy_", [0, 0, False], (0, 1, 2, 0), (0, 1, 2), (0,)),
        ("aten::_local_scalar_dense", [0, 0], (0, 1), (0,), (1,)),
        ("aten::split_copy.Tensor_out", [0, 2, 0, PAIR, PAIR], (0, 1, 2, 3, 4), (0, 1, 2), (5, 6)),
        ("aten::max.dim_max", [0, 0, 0, 0, 0, ValueListSpec((3, 4))], (0, 1, 2, 3, 4, 5), (0, 1, 2), (3, 4)),
    ],
)  # fmt: skip
def test_signature(kernel: str, values: list[EValue], args: tuple[int, ...], reads: Any, writes: Any) -> None:
    op = find_op(kernel)
    assert op is not None
    split = signature(KernelCall(kernel, args), values, op)
    assert (split.reads, split.writes) == (reads, writes)


def test_unknown_kernel() -> None:
    assert find_op("aten::nothing.out") is None


def delegated(declared: tuple[int, ...], made: tuple[int, ...], *after: Instruction) -> Method:
    """A method that is one delegate, whose output x + x is viewed as `made`; the program declares other dims."""
    b = GraphBuilder()
    x = b.input((6, 4))
    sizes = [b.call("sym_size.int", x, 0) if size == 6 else size for size in made]
    doubled = b.call("aten.view_copy.default", b.call("aten.add.Tensor", x, x, 1), sizes)
    values = (tensor(6, 4), tensor(*declared), tensor(*declared))
    calls = (DelegateCall(0, (0, 1)), *after)
    file = MethodFile("forward", values, (0,), (2,) if after else (1,), calls, ())
    program = Program(ProgramFile(Path("hand.pte"), {}, {}), "cpu")
    return Method(program, describe_method(file), file, [CpuSession(b.graph(doubled))])


@pytest.mark.parametrize("after", [(), (MoveCall(1, 2),)], ids=["alone", "with others"])
@pytest.mark.parametrize(
    ("declared", "made"), [((6, 4), (1, 6, 4)), ((6, 1, 4), (6, 4)), ((1, 6, 4, 1), (6, 1, 4)), ((6, 4), (6, 4))]
)
def test_a_delegates_output_may_differ_by_dims_of_1(
    declared: tuple[int, ...], made: tuple[int, ...], after: tuple[Instruction, ...]
) -> None:
    forward = delegated(declared, made, *after)
    for rows in (6, 1, 3):
        x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        (out,) = forward(x)
        assert out.shape == tuple(rows if d == 6 else d for d in declared)
        assert np.array_equal(out.reshape(rows, 4), x + x)


def test_a_delegates_output_of_other_dims_is_refused() -> None:
    with pytest.raises(InputError, match=r"the output would be \[6, 2, 2\], over its max dims \[6, 4\]"):
        delegated((6, 4), (6, 2, 2), MoveCall(1, 2))(np.zeros((6, 4), np.float32))


def test_an_empty_input_that_an_op_refuses_is_named() -> None:
    b = GraphBuilder()
    last = b.call("aten.select_copy.int", b.input((6, 4)), 0, -1)
    file = MethodFile("forward", (tensor(6, 4), tensor(4)), (0,), (1,), (DelegateCall(0, (0, 1)),), ())
    program = Program(ProgramFile(Path("hand.pte"), {}, {}), "cpu")
    forward = Method(program, describe_method(file), file, [CpuSession(b.graph(last))])
    assert forward(np.ones((2, 4), np.float32))[0].tolist() == [1, 1, 1, 1]
    with pytest.raises(InputError) as refused:
        forward(np.ones((0, 4), np.float32))
    assert str(refused.value) == "input in0 is [0, 4], with 0 along dim 0: method forward takes at least 1 there"
