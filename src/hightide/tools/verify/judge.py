"""Whether what one op call wrote is what it should have written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hightide.graph.graph import OpCall, output_ids
from hightide.planning.planner import Plan, Planner
from hightide.runtime.reference_walker import ReferenceWalker
from hightide.tools.verify.compare import Errors, compare, row_difference
from hightide.tools.verify.single_op import Written
from hightide.tools.verify.tolerances import FEW_TIMES
from hightide.units import counted

NOISE = 2.0**-23  # relative: the last bit of a float32


@dataclass(frozen=True)
class CheckedCall:
    """One call at one level, with what it reads and what it should have written."""

    call: OpCall
    plan: Plan
    before: Mapping[int, Any]  # arrays and SymInts, by value, as they were before the call
    expected: Mapping[int, np.ndarray]  # outputs, and state that it writes in place

    @property
    def wanted(self) -> Sequence[int]:
        return tuple(self.expected)


@dataclass(frozen=True)
class Judged:
    """The worst of a call's tensors."""

    errors: Errors | None
    what: str
    problem: str  # empty: it is right


class Judge:
    """Compares, and knows when float32 itself cannot do better."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner

    def judge(self, case: CheckedCall, got: Mapping[int, Written], tolerance: float) -> Judged:
        outputs = output_ids(self.planner.graph, case.call)
        worst = Judged(None, "", "")
        for id, want in case.expected.items():
            what = f"state {id}" if id not in outputs else "its output" if len(outputs) == 1 else f"output {id}"
            errors = compare(got[id].array, want, tolerance)
            if errors.bad:
                errors = compare(got[id].array, want, tolerance, self._allowed(case, id, want))
            problem = _problem(errors, what) or _trace(case.before.get(id), want, got[id], what)
            if problem:
                return Judged(errors, what, problem)
            if worst.errors is None or errors.max_rel > worst.errors.max_rel:
                worst = Judged(errors, what, "")
        return worst

    def _allowed(self, case: CheckedCall, id: int, want: np.ndarray) -> np.ndarray:
        """What the op may be off by, since float32 is, or since its inputs' last bits decide it."""
        rng = np.random.default_rng(0)
        runs = [self._single.evaluate(case.call, case.plan, case.before)[id]]
        for noise in (lambda n: np.full(n, 1.0), lambda n: np.full(n, -1.0), rng.standard_normal):
            moved = {
                key: value * (1 + NOISE * noise(value.shape)) if is_float(value) else value
                for key, value in case.before.items()
            }
            runs.append(self._unrounded.evaluate(case.call, case.plan, moved)[id])
        for reference in (self._single, self._unrounded):
            reference.forget_weights()
        if want.dtype.kind != "f":
            return np.max([np.abs(run.astype(np.float64) - want) for run in runs], axis=0)
        return FEW_TIMES * np.max([row_difference(run, want) for run in runs], axis=0)

    @cached_property
    def _single(self) -> ReferenceWalker:
        return ReferenceWalker(self.planner, "float32")

    @cached_property
    def _unrounded(self) -> ReferenceWalker:
        """Takes inputs that are between two float32s."""
        return ReferenceWalker(self.planner, rounded=False)


def is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _problem(errors: Errors, what: str) -> str:
    if not errors.bad:
        return ""
    parts = f"{errors.bad} of {counted(errors.count, 'element')}"
    parts = "all elements" if errors.bad == errors.count > 1 else parts
    return f"{parts} of {what} {'is' if errors.bad == 1 else 'are'} wrong"


def _trace(before: np.ndarray | None, want: np.ndarray, got: Written, what: str) -> str:
    """What was written where nothing should have been."""
    if got.beyond:
        where = f"{counted(got.first_beyond, 'byte')} behind its end"
        return f"it writes {counted(got.beyond, 'word')} beyond the live part of {what}, {where}"
    if before is not None and (count := overwritten(before, want, got.array)):
        return f"it writes {counted(count, 'element')} of {what} that it must leave alone"
    return ""


def overwritten(before: np.ndarray, want: np.ndarray, got: np.ndarray) -> int:
    """Elements that are NaN before and after, as they should be, but not the same one: something moved there."""
    if not is_float(want) or not (untouched := np.isnan(before) & np.isnan(want)).any():
        return 0
    bits = {2: np.uint16, 4: np.uint32}[got.itemsize]
    return int((got.view(bits) != before.astype(got.dtype).view(bits))[untouched].sum())
