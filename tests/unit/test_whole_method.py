"""Delegates and what lies between them as one graph: which instructions are joined, and that it changes no result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hand_methods import BRANCHES, method, tensor

from hightide.errors import InputError
from hightide.formats.instructions import DelegateCall, FreeCall, Instruction, JumpFalseCall, KernelCall, MoveCall
from hightide.formats.program_file import Delegate, EValue, MethodFile, ValueListSpec
from hightide.graph.blob import Blob
from hightide.ops.builder import GraphBuilder
from hightide.pte.program import Method
from hightide.pte.whole_method import whole_method

pytestmark = pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")
# y = relu(x), and where it is not 0, which no graph has a kernel for: values 0 to 2
RELU_THEN_NONZERO = (KernelCall("aten::relu.out", (0, 1, 1)), KernelCall("aten::nonzero.out", (1, 2, 2)))


def kinds(joined: Method) -> list[str]:
    """The instructions that are left: a kernel by its name, "region" for a graph."""
    names = {DelegateCall: "region", MoveCall: "move", JumpFalseCall: "jump", FreeCall: "free"}
    return [i.op if isinstance(i, KernelCall) else names[type(i)] for i in joined.interpreter.method.instructions]


def agree(
    values: list[EValue], inputs: list[int], outputs: list[int], *instructions: Instruction, given: list[list[Any]]
) -> Method:
    """Whole and split give the same bytes for these calls, one after the other; the whole one."""
    split = method(values, inputs, outputs, *instructions)
    joined = method(values, inputs, outputs, *instructions, whole=True)
    for call in given:
        got, want = joined(*call), split(*call)
        assert [(a.dtype, a.shape, a.tobytes()) for a in got] == [(a.dtype, a.shape, a.tobytes()) for a in want]
    return joined


def test_kernels_become_one_graph() -> None:
    """relu(x + x), and a value that is freed."""
    joined = agree(
        [tensor(4), 1, tensor(4), tensor(4)],
        [0],
        [3],
        KernelCall("aten::add.out", (0, 0, 1, 2, 2)),
        KernelCall("aten::relu.out", (2, 3, 3)),
        FreeCall(2),
        given=[[[1.0, -2.0, 3.0]], [[-1.0]]],
    )
    assert kinds(joined) == ["region"]
    assert joined.program.single_graph("forward") is not None


@pytest.mark.parametrize("read", [False, True])
def test_a_float_that_a_method_is_given_is_no_input_of_a_graph(read: bool) -> None:
    """Exporters write what a module was traced with as a constant, and keep the input."""
    joined = agree(
        [tensor(4), 2.5, 1.5, tensor(4), tensor(4)],
        [0, 1],
        [4],
        KernelCall("aten::mul.Scalar_out", (0, 1 if read else 2, 3, 3)),
        KernelCall("aten::relu.out", (3, 4, 4)),
        given=[[[1.0, -2.0, 3.0], 2.5], [[-1.0], 2.5]],
    )
    assert "region" in kinds(joined) or read


def test_what_has_no_kernel_divides() -> None:
    """The host's op comes between two regions; small ones would stay on NumPy."""
    values: list[EValue] = [tensor(5000, 1), tensor(5000, 1), tensor(5000, 2, dtype="int64"), tensor(5000, 1)]
    instructions = (*RELU_THEN_NONZERO, KernelCall("aten::exp.out", (1, 3, 3)))
    joined = agree(values, [0], [3], *instructions, given=[[np.ones((5000, 1), np.float32)]])
    assert kinds(joined) == ["region"]  # nobody reads what nonzero gives
    values += [tensor(5000, 2)]
    x = np.linspace(-1, 1, 300, dtype=np.float32)[:, None]
    joined = agree(values, [0], [3, 4], *instructions, KernelCall("aten::exp.out", (2, 4, 4)), given=[[x]])
    assert kinds(joined) == ["region", "aten::nonzero.out", "region"]


def test_small_ops_beside_the_host_stay_there() -> None:
    values: list[EValue] = [tensor(4), tensor(4), tensor(4, 1, dtype="int64")]
    joined = agree(
        values,
        [0],
        [2],
        *RELU_THEN_NONZERO,
        given=[[[1.0, -1.0, 2.0]]],
    )
    assert kinds(joined) == ["aten::relu.out", "aten::nonzero.out"]


@pytest.mark.parametrize("initial", [None, [5, 5, 5, 5]])
def test_buffers_are_state_of_the_graph(initial: list[float] | None) -> None:
    """y = total + x, then total = y: what is read before and after the copy differs."""
    values: list[EValue] = [tensor(4, initial=initial), tensor(4), tensor(4), 1, False, tensor(4), tensor(4)]
    joined = agree(
        values,
        [1],
        [2, 5, 6],
        KernelCall("aten::neg.out", (0, 5, 5)),
        KernelCall("aten::add.out", (0, 1, 3, 2, 2)),
        KernelCall("aten::copy_", (0, 2, 4, 0)),
        KernelCall("aten::neg.out", (0, 6, 6)),
        given=[[[1.0, 2.0, 3.0, 4.0]]] * 3,
    )
    assert kinds(joined) == ["region"]
    assert not joined.interpreter.state
    first = joined([0.0, 0.0, 0.0, 0.0])[0]
    joined.reset()
    assert (joined([0.0, 0.0, 0.0, 0.0])[0] == (0 if initial is None else 5)).all()
    assert first[0] != 5


def test_a_buffer_that_the_host_reads_stays_with_it() -> None:
    values: list[EValue] = [
        tensor(4, initial=[1, 0, 2, 0]),
        tensor(4),
        tensor(4),
        1,
        False,
        tensor(4, 1, dtype="int64"),
    ]
    joined = agree(
        values,
        [1],
        [5],
        KernelCall("aten::add.out", (0, 1, 3, 2, 2)),
        KernelCall("aten::copy_", (0, 2, 4, 0)),
        KernelCall("aten::nonzero.out", (0, 5, 5)),
        given=[[[0.0, 0.0, 0.0, 1.0]], [[-1.0, 0.0, 0.0, 0.0]]],
    )
    assert joined.interpreter.state.keys() == {0}


def test_a_failed_call_leaves_the_buffers() -> None:
    values: list[EValue] = [tensor(4, initial=[1, 1, 1, 1]), tensor(4), tensor(4), 1, False, 2, ValueListSpec((5, 5))]
    joined = method(
        [*values, tensor(2, 2)],
        [1],
        [7],
        KernelCall("aten::add.out", (0, 1, 3, 2, 2)),
        KernelCall("aten::copy_", (0, 2, 4, 0)),
        KernelCall("executorch_prim::et_view.default", (1, 6, 7)),
        whole=True,
    )
    joined([1.0, 1.0, 1.0, 1.0])
    with pytest.raises(InputError, match=r"\[1\] has 1 elements"):
        joined([1.0])
    (state,) = joined.sessions[0].read_state()
    assert state.tolist() == [2, 2, 2, 2]


def test_integers_are_made_in_the_graph() -> None:
    """y = arange(2 * n) of the live n: the host computes nothing."""
    values: list[EValue] = [tensor(5), 0, 0, 2, 0, tensor(10, dtype="int64"), tensor(10, dtype="int64")]
    joined = agree(
        values,
        [0],
        [6],
        KernelCall("aten::sym_size.int", (0, 1, 2)),
        KernelCall("executorch_prim::mul.Scalar", (2, 3, 4)),
        KernelCall("aten::arange.out", (4, 5, 5)),
        KernelCall("aten::neg.out", (5, 6, 6)),
        given=[[[1.0, 2.0, 3.0]], [[1.0]]],
    )
    assert kinds(joined) == ["region"]


def test_elements_of_inputs_are_read_by_the_graph() -> None:
    """x[:n], with n given as a tensor: item() of it needs no host."""
    values: list[EValue] = [
        tensor(6),
        tensor(2, dtype="int64"),
        0,
        1,
        tensor(dtype="int64"),
        0,
        tensor(6),
        tensor(6),
        1,
    ]
    joined = agree(
        values,
        [0, 1],
        [7],
        KernelCall("aten::select_copy.int_out", (1, 2, 3, 4, 4)),
        KernelCall("aten::_local_scalar_dense", (4, 5)),
        KernelCall("aten::slice_copy.Tensor_out", (0, 2, 2, 5, 8, 6, 6)),
        KernelCall("aten::relu.out", (6, 7, 7)),
        given=[[[1.0, -2.0, 3.0, 4.0], [9, 3]], [[1.0, -2.0, 3.0, 4.0], [9, 1]]],
    )
    assert kinds(joined) == ["region"]


def test_branches_have_regions_of_their_own() -> None:
    """out = x + x if flag else -x; y = exp(out)."""
    values: list[EValue] = [tensor(5000), True, tensor(5000), 1, tensor(5000), tensor(5000), False, tensor(5000)]
    x = np.linspace(-1, 1, 77, dtype=np.float32)
    joined = agree(
        values,
        [0, 1],
        [7],
        *BRANCHES,
        KernelCall("aten::exp.out", (5, 7, 7)),
        given=[[x, True], [x, False]],
    )
    assert kinds(joined) == ["jump", "region", "jump", "region", "region"]


def test_a_value_that_is_defined_again() -> None:
    """The host reads what came first, the output is what came last."""
    values: list[EValue] = [tensor(5000), tensor(5000), tensor(5000, 1, dtype="int64"), tensor(5000, 1)]
    again = (KernelCall("aten::neg.out", (0, 1, 1)), KernelCall("aten::exp.out", (2, 3, 3)))
    x = np.linspace(-1, 1, 20, dtype=np.float32)
    joined = agree(values, [0], [1, 3], *RELU_THEN_NONZERO, *again, given=[[x]])
    assert kinds(joined) == ["region", "aten::nonzero.out", "region"]


def test_types_that_a_gpu_does_not_hold_stay_on_numpy() -> None:
    wide: list[EValue] = [tensor(4, dtype="float64"), tensor(4, dtype="float64")]
    assert kinds(method(wide, [0], [1], KernelCall("aten::exp.out", (0, 1, 1)), whole=True)) == ["aten::exp.out"]
    large: list[EValue] = [tensor(2, dtype="int64"), tensor(2, dtype="int64", constant=[1, 2**40]), 1]
    large += [tensor(2, dtype="int64")]
    joined = agree(large, [0], [3], KernelCall("aten::add.out", (0, 1, 2, 3, 3)), given=[[[1, 2]]])
    assert kinds(joined) == ["aten::add.out"]


def test_a_tensor_that_is_no_state_is_changed_as_a_copy() -> None:
    """What is read before and after new rows go into relu(x) differs; x itself stays."""
    values: list[EValue] = [tensor(1, 5, 2, 2), tensor(1, 5, 2, 2), tensor(1, 2, 2, 2), 1, tensor(1)]
    values += [tensor(1, 5, 2, 2), tensor(1, 5, 2, 2)]
    changed = (
        KernelCall("aten::relu.out", (0, 1, 1)),
        KernelCall("aten::neg.out", (1, 5, 5)),
        KernelCall("llama::update_cache.out", (2, 1, 3, 4, 4)),
        KernelCall("aten::neg.out", (1, 6, 6)),
    )
    x, rows = np.arange(-10, 10, dtype=np.float32).reshape(1, 5, 2, 2), np.full((1, 2, 2, 2), 7, np.float32)
    joined = agree(values, [0, 2], [5, 6, 0], *changed, given=[[x, rows], [x, rows[:, :1]]])
    assert kinds(joined) == ["region"]
    read_back = agree(values, [0, 2], [4], *changed, given=[[x, rows]])  # what the call returns
    assert "llama::update_cache.out" in kinds(read_back)


def test_a_tensor_that_has_a_view_is_changed_by_the_host() -> None:
    """In ExecuTorch the view is of the same memory; exporters change no such tensor, and a graph would not show it."""
    values: list[EValue] = [tensor(1, 5, 2, 2), tensor(1, 5, 2, 2), tensor(1, 2, 2, 2), 1, tensor(1), tensor(20)]
    values += [20, ValueListSpec((6,)), tensor(20)]
    joined = agree(
        values,
        [0, 2],
        [1, 8],
        KernelCall("aten::relu.out", (0, 1, 1)),
        KernelCall("executorch_prim::et_view.default", (1, 7, 5)),
        KernelCall("llama::update_cache.out", (2, 1, 3, 4, 4)),
        KernelCall("aten::neg.out", (5, 8, 8)),
        given=[[np.ones((1, 5, 2, 2), np.float32), np.full((1, 2, 2, 2), 7, np.float32)]],
    )
    assert "llama::update_cache.out" in kinds(joined)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["as scales", "elsewhere too"])
def test_scales_are_the_float32_numbers_that_they_are(elsewhere: bool) -> None:
    """Programs hold them as float64; they stay that where an op computes with them."""
    values: list[EValue] = [tensor(3, 8), 1, tensor(3, 1, dtype="float64"), tensor(3, 1, dtype="int64")]
    values += [ValueListSpec((2, 3)), -128, 127, tensor(3, 8, dtype="int8"), tensor(3, 1), False, None]
    values += [tensor(3, 1, dtype="float64")]
    choose = "quantized_decomposed::choose_qparams_per_token_asymmetric.out"
    instructions = [
        KernelCall(choose, (0, 1, 2, 3, 4)),
        KernelCall("quantized_decomposed::quantize_per_token.out", (0, 2, 3, 5, 6, 1, 7, 7)),
        KernelCall("aten::_to_copy.out", (2, 9, 10, 8, 8)),
    ]
    if elsewhere:
        instructions.append(KernelCall("aten::exp.out", (2, 11, 11)))
    outputs = [3, 7, 8, 11] if elsewhere else [3, 7, 8]
    x = np.random.default_rng(5).standard_normal((3, 8)).astype(np.float32)
    joined = agree(values, [0], outputs, *instructions, given=[[x], [x[:1]]])
    assert (choose in kinds(joined)) == elsewhere and (elsewhere or kinds(joined) == ["region"])


def test_a_jump_to_what_is_gone_goes_to_what_follows() -> None:
    """y = exp(x), or -x of it where the flag is set; the branch ends in a value that is freed."""
    values: list[EValue] = [tensor(4), True, tensor(4), tensor(4), False]
    joined = agree(
        values,
        [0, 1],
        [3],
        JumpFalseCall(1, 4),
        KernelCall("aten::neg.out", (0, 2, 2)),
        MoveCall(2, 0),
        JumpFalseCall(4, 4),
        FreeCall(2),
        KernelCall("aten::exp.out", (0, 3, 3)),
        given=[[[1.0, -1.0], True], [[1.0, -1.0], False]],
    )
    assert kinds(joined)[0] == "jump"


def test_a_delegate_with_state_that_is_called_twice_stays_one() -> None:
    """total += x, for two inputs, and relu of both totals."""
    b = GraphBuilder()
    x, total = b.input((4,)), b.zeros((4,))
    new = b.call("aten.add.Tensor", total, x, 1)
    b.call("hightide.store.default", new, total)
    values = (tensor(4), tensor(4), tensor(4), tensor(4), tensor(4), tensor(4))
    calls = [DelegateCall(0, (0, 2)), KernelCall("aten::relu.out", (2, 3, 3))]
    calls += [DelegateCall(0, (1, 4)), KernelCall("aten::relu.out", (4, 5, 5))]
    file = MethodFile(
        "forward", values, (0, 1), (3, 5), tuple(calls), (Delegate("VulkanBackend", Blob(b"", 0, 0), {}),)
    )
    joined, graphs = whole_method(file, {0: b.graph(new)})
    numbers = [call.delegate for call in joined.instructions if isinstance(call, DelegateCall)]
    assert numbers.count(numbers[0]) == 2 and graphs[numbers[0]].outputs == (new.id,)


def test_an_input_given_back_and_an_output_given_twice() -> None:
    values: list[EValue] = [tensor(4), tensor(4), tensor(4)]
    relu, move = KernelCall("aten::relu.out", (0, 1, 1)), MoveCall(1, 2)
    for outputs in ([0, 1], [1, 1], [1, 2]):
        agree(values, [0], outputs, relu, move, given=[[[1.0, -1.0]]])
