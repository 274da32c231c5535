"""Views that are no instruction, only a tensor at the place of another."""

from __future__ import annotations

import numpy as np
import pytest
from hand_methods import method, tensor

from hightide.errors import ProgramError
from hightide.formats.instructions import JumpFalseCall, KernelCall, MoveCall
from hightide.formats.program_file import EValue

pytestmark = pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")


@pytest.mark.parametrize("whole", [True, False])
def test_a_tensor_at_the_place_of_another_is_a_view_of_it(whole: bool) -> None:
    """exp(relu(x).view(2, 3)): value 2 is where value 1 is, and nothing defines it."""
    relu = tensor(6, place=(1, 64), fixed=True)
    values: list[EValue] = [tensor(6, fixed=True), relu, tensor(2, 3, place=(1, 64), fixed=True), tensor(2, 3)]
    forward = method(
        values, [0], [3], KernelCall("aten::relu.out", (0, 1, 1)), KernelCall("aten::exp.out", (2, 3, 3)), whole=whole
    )
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    np.testing.assert_allclose(forward(x)[0], np.exp(np.maximum(x, 0)).reshape(2, 3), rtol=1e-6)


@pytest.mark.parametrize("whole", [True, False])
def test_a_place_holds_what_was_written_there_last(whole: bool) -> None:
    """An input, a value that takes its place, and views of both; the last one is an output."""
    at = {"place": (1, 0), "fixed": True}
    values: list[EValue] = [tensor(4, **at), tensor(2, 2, **at), tensor(2, 2, place=(1, 64), fixed=True)]
    values += [tensor(4, **at), tensor(2, 2, **at), tensor(8, **at)]
    forward = method(
        values,
        [0],
        [2, 4],
        KernelCall("aten::neg.out", (1, 2, 2)),
        KernelCall("aten::exp.out", (0, 3, 3)),
        whole=whole,
    )
    negated, exponents = forward([0.0, 1.0, 2.0, 3.0])
    assert negated.tolist() == [[0, -1], [-2, -3]]
    np.testing.assert_allclose(exponents, np.exp([[0, 1], [2, 3]]), rtol=1e-6)


def test_jumps_still_go_where_they_did() -> None:
    """out = relu(x).view(2, 2) if flag else x.view(2, 2)."""
    fixed = {"fixed": True}
    values: list[EValue] = [tensor(4, place=(1, 0), **fixed), True, tensor(4, place=(1, 64), **fixed)]
    values += [tensor(2, 2, place=(1, 64), **fixed), tensor(2, 2, place=(1, 0), **fixed), tensor(2, 2), False]
    forward = method(
        values,
        [0, 1],
        [5],
        JumpFalseCall(1, 4),
        KernelCall("aten::relu.out", (0, 2, 2)),
        MoveCall(3, 5),
        JumpFalseCall(6, 5),
        MoveCall(4, 5),
    )
    assert forward([-1.0, 2.0, -3.0, 4.0], True)[0].tolist() == [[0, 2], [0, 4]]
    assert forward([-1.0, 2.0, -3.0, 4.0], False)[0].tolist() == [[-1, 2], [-3, 4]]


def test_a_place_that_nobody_wrote_is_an_error() -> None:
    values: list[EValue] = [tensor(4, fixed=True), tensor(4, place=(1, 0), fixed=True), tensor(4)]
    with pytest.raises(ProgramError, match="value 1 of method forward is read before it is defined"):
        method(values, [0], [2], KernelCall("aten::relu.out", (1, 2, 2)))([1.0, 2.0, 3.0, 4.0])
