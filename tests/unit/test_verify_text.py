"""The report of `hightide verify` in windows of any width: no word is broken, and one of something is one."""

from __future__ import annotations

import io

from rich.console import Console

from hightide.tools.verify.compare import Errors
from hightide.tools.verify.results import LevelResult, OpResult, RouteResult, VerifyReport
from hightide.tools.verify.verify_text import render
from hightide.tools.word_tables import show

RIGHT = Errors(64, 0, 1e-7, 1e-7, 1e-8, (0, 3), 1.0, 1.0, (0, 0), (0, 0))
WRONG = Errors(64, 1, 1.0, 1.0, 0.5, (0, 3), 2.0, 1.0, (1, 0), (0, 0), ((0, 0), (3, 3)))
OP, ROUTE = "aten.split_with_sizes_copy.default", "attention_stream_of_heads"


def op(index: int, name: str, errors: Errors, problem: str = "") -> OpResult:
    other = RouteResult("linear.activations", "int8", (ROUTE,), RIGHT)
    hints = ("it gives other bytes each time it runs",) if problem else ()
    status = "bad" if problem else "ok"
    return OpResult(index, name, (ROUTE,), ((1, 64),), status, 1e-5, errors, errors, "out", problem, hints, (other,))


def report(problem: str = "1 of 64 elements of its output is wrong") -> VerifyReport:
    ops = (op(0, "aten.relu.default", RIGHT), op(1, OP, WRONG if problem else RIGHT, problem))
    level = LevelResult("forward/1", {"S": 128, "pos": 2047}, ops, "an adapter", (RIGHT,), 1e-3)
    return VerifyReport("program.pte", ["an adapter (of some driver)"], 0, levels=[level])


def printed(made: VerifyReport, width: int, all_ops: bool) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show(console, render(made, all_ops, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_no_window_is_too_narrow_for_a_word() -> None:
    for all_ops in (False, True):
        words = set(printed(report(), 1000, all_ops).split())
        words |= {word.split(".", 1)[-1] for word in words}  # a narrow window does without the namespace
        for width in (80, 60, 40, 20):
            text = printed(report(), width, all_ops)
            assert set(text.split()) <= words, width
            assert all(len(line) <= width or len(line.split()) <= 2 for line in text.splitlines()), width


def test_counts_are_said_as_people_say_them() -> None:
    assert "passed (2 ops at 1 level, 1 other route)" in printed(report(""), 80, False)
