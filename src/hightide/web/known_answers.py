"""Known answers of kernels: small graphs of one op each, with inputs and what the references make of them.

A page runs them before it downloads any weights. They are sessions in the same form as the model's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hightide.errors import HightideError
from hightide.graph.values import TensorValue
from hightide.planning.levels import graph_inputs
from hightide.planning.planner import Plan, Planner
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.need import Need, needs_of
from hightide.runtime.op_check import OpCheck
from hightide.runtime.small_graph import check_of
from hightide.runtime.upload import pieces
from hightide.runtime.words import to_words
from hightide.web.session_tables import Data, SharedTables, held, session_tables

SEED = 7


@dataclass
class Blobs:
    """Arrays end to end; equal ones once."""

    data: bytearray = field(default_factory=bytearray)
    _places: dict[bytes, int] = field(default_factory=dict)

    def add(self, words: bytes) -> list[int]:
        """[offset, bytes]."""
        if words not in self._places:
            self._places[words] = len(self.data)
            self.data += words
            self.data += bytes(-len(self.data) % 16)
        return [self._places[words], len(words)]


@dataclass
class KnownAnswers:
    """The checks of an export: those of equal kernels once, whichever plan has them."""

    shared: SharedTables
    blobs: Blobs = field(default_factory=Blobs)
    checks: list[Data] = field(default_factory=list)
    _made: dict[str, int | None] = field(default_factory=dict)

    def of(self, planner: Planner, plans: Iterable[Plan]) -> list[int]:
        """The numbers of the checks of all kernels in these plans, as far as they can be checked by themselves."""
        found: dict[int, None] = {}
        for plan in plans:
            for need, call in needs_of(plan).items():
                if need.key not in self._made:
                    self._made[need.key] = self._add(need, check_of(need, planner, plan, call))
                number = self._made[need.key]
                if number is not None:
                    found[number] = None
        return list(found)

    def _add(self, need: Need, check: OpCheck | None) -> int | None:
        if check is None:
            return None
        try:
            inputs = check.inputs(SEED)
        except HightideError:
            return None
        graph = check.graph
        fixed = [False] * len(inputs)
        session = session_tables(
            check.planner, graph_inputs(graph, fixed, None), [[a.shape for a in inputs]], self.shared
        )
        cpu = CpuSession(graph, fixed, dtype="float64")
        expected = [*cpu.run(inputs)]
        buffers = {value.id: buffer for buffer, value in session.constants}
        for id, array in zip(sorted(check.planner.aliases.state), cpu.read_state(), strict=True):
            value = graph.values[id]  # what a run leaves in the state is brought back as outputs are
            assert isinstance(value, TensorValue)
            expected.append(np.asarray(array))
            session.data["outputs"].append({"dtype": value.host_dtype, "held": held(value), "place": buffers[id]})
            session.data["levels"][0]["outputs"].append(list(value.dims))
        self.checks.append(
            {
                "op": need.op,
                "routes": need.routes,
                "session": session.data,
                "constants": [[buffer, *self._constant(value)] for buffer, value in session.constants],
                "inputs": [
                    self.blobs.add(_bytes(array, graph.values[id]))
                    for array, id in zip(inputs, graph.inputs, strict=True)
                ],
                "outputs": [self._expected(array) for array in expected],
                "tolerance": check.tolerance,
            }
        )
        return len(self.checks) - 1

    def _constant(self, value: TensorValue) -> list[int]:
        parts = {offset: data.tobytes() for offset, data in pieces(value)}
        size = max((offset + len(data) for offset, data in parts.items()), default=0)
        whole = bytearray(size)
        for offset, data in parts.items():
            whole[offset : offset + len(data)] = data
        return self.blobs.add(bytes(whole))

    def _expected(self, array: np.ndarray) -> Data:
        kind = "float32" if array.dtype.kind == "f" else "int32"
        with np.errstate(all="ignore"):
            return {"dtype": kind, "at": self.blobs.add(np.ascontiguousarray(array).astype(kind).tobytes())}


def _bytes(array: np.ndarray, value: Any) -> bytes:
    return to_words(array, value.dtype if isinstance(value, TensorValue) else "int32").tobytes()
