"""Buffers that a delegate changes: written in place they are kept; new values without a place are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hightide import UnsupportedError
from hightide.gpu.device import Device
from hightide.pte.program import Program, load

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


def test_new_values_of_buffers_that_have_no_place_are_refused_in_plain_words() -> None:
    with pytest.raises(UnsupportedError) as refused:
        load(FOLDER / "apart.pte", device="cpu")
    assert str(refused.value) == (
        "apart.pte (forward, delegate 0): it gives 3 values, of which the program takes 1: the others are new values "
        "of buffers (such as the states of convolutions), and the file does not say of which; export it with "
        'VulkanPartitioner({"alias_buffer_mutations": True}), which writes them in place, or make the buffers inputs '
        "and outputs of the model"
    )
