"""Compares two sessions, run after run: two files, or one file on two adapters.

Their outputs are compared at every level, and their ops one by one where the two graphs have the same form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from hightide.gpu.recording import Watch
from hightide.graph.graph import Graph, OpCall, output_ids
from hightide.graph.values import TensorValue
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.session import Session
from hightide.tools.verify.compare import Errors, compare
from hightide.units import counted

TOLERANCE = 1e-3  # of the range of a row, unless one is given


@dataclass(frozen=True)
class PairedOp:
    """One op of both graphs."""

    index: int
    name: str
    errors: Errors


@dataclass(frozen=True)
class PairedLevel:
    """Two sessions at one level."""

    part: str
    at: Mapping[str, int]
    outputs: tuple[Errors, ...]
    ops: tuple[PairedOp, ...]
    tolerance: float
    note: str = ""  # why there are no ops

    @property
    def first_bad(self) -> PairedOp | None:
        return next((op for op in self.ops if op.errors.bad), None)

    @property
    def passed(self) -> bool:
        return not any(errors.bad for errors in self.outputs)

    @property
    def name(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.at.items()) or "its one level"


def compare_runs(
    part: str,
    at: Mapping[str, int],
    one: Session,
    other: Session,
    given: Sequence[Any],
    tolerance: float,
    given_other: Sequence[Any] | None = None,
) -> PairedLevel:
    """Both at one level, each from the state that it is in."""
    also = given if given_other is None else given_other
    note = difference_of_form(one.graph, other.graph)
    if isinstance(one, GpuSession) and isinstance(other, GpuSession) and not note:
        seen = OpOutputs(one, given)
        wanted = one.collect(one.launch(given, watch=seen))
        beside = OpOutputs(other, also)
        got = other.collect(other.launch(also, watch=beside))
        ops = tuple(_pair(call, seen, beside, tolerance) for call in one.graph.calls if call.index in seen.arrays)
    else:
        wanted, got, ops = one.run(given), other.run(also), ()
    outputs = tuple(_compare(b, a, tolerance) for a, b in zip(wanted, got, strict=True))
    return PairedLevel(part, at, outputs, ops, tolerance, note)


def difference_of_form(one: Graph, other: Graph) -> str:
    """A sentence on where two graphs are not the same ops on tensors of the same max dims; empty if they are."""
    for n, (a, b) in enumerate(zip_longest(one.calls, other.calls)):
        if a is None or b is None:
            return f"one has {counted(len(one.calls), 'op')}, the other {len(other.calls)}"
        if a.name != b.name:
            return f"op {n} is {a.name} in one, {b.name} in the other"
        if (left := _out_dims(one, a)) != (right := _out_dims(other, b)):
            return f"op {n} ({a.name}) gives {left} in one, {right} in the other"
    return ""


class OpOutputs(Watch):
    """Keeps what every op of a run gives."""

    def __init__(self, session: GpuSession, given: Sequence[Any]) -> None:
        self.session = session
        self.plan = session.level(given)[1]
        self.arrays: dict[int, list[np.ndarray]] = {}  # by call

    def after(self, call: OpCall) -> None:
        ids = output_ids(self.session.graph, call)
        self.arrays[call.index] = [self.session.memory.read(id, self.plan.dims[id]) for id in ids]


def _pair(call: OpCall, one: OpOutputs, other: OpOutputs, tolerance: float) -> PairedOp:
    found = [
        _compare(b, a, tolerance)
        for a, b in zip(one.arrays[call.index], other.arrays.get(call.index, one.arrays[call.index]), strict=True)
    ]
    return PairedOp(call.index, call.name, max(found, key=lambda errors: errors.max_rel))


def _compare(got: np.ndarray, want: np.ndarray, tolerance: float) -> Errors:
    if got.shape != want.shape:
        size = max(got.size, want.size)
        return Errors(size, size, np.inf, np.inf, np.inf, None, np.nan, np.nan, (0, 0), (0, 0))
    return compare(got, want, tolerance)


def _out_dims(graph: Graph, call: OpCall) -> list[list[int]]:
    values = (graph.values[id] for id in output_ids(graph, call))
    return [list(value.dims) for value in values if isinstance(value, TensorValue)]
