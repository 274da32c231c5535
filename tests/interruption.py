"""Interrupts a call at every point where a signal's handler could run, one after the other."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

# CPython looks for signals when a function begins, after calls and at the end of a loop's turn. Nowhere else: between
# `with lock` and its body, for instance, nothing can come.
LOOKS_BEFORE = {"RESUME"}
LOOKS_AFTER = {name for name in dis.opmap if name.startswith(("CALL", "JUMP_BACKWARD"))}


class Interruption(BaseException):
    """What the handler of a signal raised."""


class _Tracer:
    """Counts the points where a signal could be handled, and raises at one of them."""

    def __init__(self, raise_at: int) -> None:
        self.raise_at, self.points, self.raised = raise_at, 0, False
        self._before: dict[FrameType, int] = {}  # the place of the instruction that ran last

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            names = _names(frame.f_code)
            before = self._before.get(frame)
            self._before[frame] = frame.f_lasti
            if names[frame.f_lasti] in LOOKS_BEFORE or (before is not None and names[before] in LOOKS_AFTER):
                if self.points == self.raise_at:
                    self.raised = True
                    raise Interruption
                self.points += 1
        elif event == "return":
            self._before.pop(frame, None)
        return self


_known: dict[CodeType, dict[int, str]] = {}


def _names(code: CodeType) -> dict[int, str]:
    if code not in _known:
        _known[code] = {i.offset: i.opname for i in dis.get_instructions(code)}
    return _known[code]


def interrupt(call: Callable[[], Any], at: int) -> bool:
    """Call it and raise `Interruption` at that point; False once the call has fewer points."""
    tracer = _Tracer(at)
    sys.settrace(tracer)
    try:
        call()
    except Interruption:
        pass
    finally:
        sys.settrace(None)
    return tracer.raised


def interruptions(call: Callable[[], Any], first: int = 0, step: int = 1) -> Iterator[int]:
    """Interrupt a call at each point, or each `step`th; gives the point, for checks in between."""
    while interrupt(call, first):
        yield first
        first += step
