"""Buffers that a delegate changes: written in place they are kept; new values without a place are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hand_methods import tensor

from hightide import UnsupportedError
from hightide.formats.instructions import DelegateCall
from hightide.formats.program_file import MethodFile, ProgramFile
from hightide.gpu.device import Device
from hightide.graph.graph import GraphFile
from hightide.graph.values import TensorValue
from hightide.pte.program import Program, load
from hightide.pte.unread_arguments import without_unread

FOLDER = Path(__file__).parent / "states"


def run_twice(program: Program) -> None:
    """The schedule, and once more after a reset."""
    steps, method = np.load(FOLDER / "aliased.npz"), program.method()
    for _ in range(2):
        for n in range(4):
            assert np.abs(method(steps[f"{n}.in0"])[0] - steps[f"{n}.out0"]).max() <= 1e-6
        method.reset()


def test_buffers_that_are_written_in_place_are_kept_from_call_to_call() -> None:
    run_twice(load(FOLDER / "aliased.pte", device="cpu"))


def test_they_are_kept_on_a_gpu(device: Device) -> None:
    run_twice(load(FOLDER / "aliased.pte"))


@pytest.mark.filterwarnings("ignore:method forward runs outside")
@pytest.mark.parametrize("whole", [True, False])
def test_an_argument_that_a_delegate_does_not_read_is_left_out(whole: bool) -> None:
    x = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    (got,) = load(FOLDER / "unread.pte", device="cpu", whole=whole).method()(x)
    assert np.abs(got - np.argwhere(x > 0).sum(0) - x.sum()).max() <= 1e-5


def test_an_argument_that_could_be_either_of_two_is_not_guessed() -> None:
    values = (tensor(4), tensor(4), tensor(4), tensor(3), 7)
    both = tuple(TensorValue(n, (size,), "float32", "float32") for n, size in enumerate((4, 4, 3)))

    def passed(*args: int) -> tuple[int, ...]:
        method = MethodFile("forward", values, (), (), (DelegateCall(0, args),), ())
        file = ProgramFile(Path("hand.pte"), {"forward": method}, {})
        graph = GraphFile(both, (), (0, 2), (1,))
        (call,) = without_unread(file, {("forward", 0): graph}).methods["forward"].instructions
        assert isinstance(call, DelegateCall)
        return call.args

    assert passed(0, 4, 3, 1) == (0, 3, 1) == passed(0, 3, 1)
    assert passed(0, 2, 3, 1) == (0, 2, 3, 1)
    assert passed(4, 4, 3, 1) == (4, 4, 3, 1)


def test_arguments_in_doubt_are_refused_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hightide.pte.program.without_unread", lambda file, _: file)
    message = r"unread\.pte \(forward, delegate \d\): it is passed \d values and reads \d: the file does not say which"
    with pytest.raises(UnsupportedError, match=message):
        load(FOLDER / "unread.pte", device="cpu")


def test_new_values_of_buffers_that_have_no_place_are_refused_in_plain_words() -> None:
    with pytest.raises(UnsupportedError) as refused:
        load(FOLDER / "apart.pte", device="cpu")
    assert str(refused.value) == (
        "apart.pte (forward, delegate 0): it gives 3 values, of which the program takes 1: the others are new values "
        "of buffers (such as the states of convolutions), and the file does not say of which; export it with "
        'VulkanPartitioner({"alias_buffer_mutations": True}), which writes them in place, or make the buffers inputs '
        "and outputs of the model"
    )
