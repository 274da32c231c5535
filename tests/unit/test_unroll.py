"""Loops of kernels written out."""

from __future__ import annotations

import pytest
from hightide.gpu.unroll import unroll


def test_what_is_between_is_repeated_with_the_number_filled_in() -> None:
    assert unroll("a\n  #for r in 3\nx#r = #ru;\n  #end\nb") == "a\nx0 = 0u;\nx1 = 1u;\nx2 = 2u;\nb"


def test_loops_nest() -> None:
    assert unroll("#for r in 2\n#for c in 2\nt#r_#c\n#end\nend #r\n#end") == "t0_0\nt0_1\nend 0\nt1_0\nt1_1\nend 1"


def test_a_loop_of_no_turns_leaves_nothing() -> None:
    assert unroll("a\n#for r in 0\nx#r\n#end\nb") == "a\nb"


def test_a_kernel_without_loops_is_the_same() -> None:
    assert unroll("let a = 1;") == "let a = 1;"


def test_faults_are_said() -> None:
    with pytest.raises(ValueError, match="#for r in 2 has no #end"):
        unroll("#for r in 2\nx")
    with pytest.raises(ValueError, match="#c stands in no loop: x#c"):
        unroll("#for r in 2\nx#c\n#end")
