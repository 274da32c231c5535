"""HIGHTIDE_DEBUG=1: runs one op at a time on poisoned memory and names the first op that breaks something.

Before a run, all memory that it must write before it reads is filled with NaN, and so are the outputs and scratch of
each op just before it runs: reading what was not written shows. Whenever a tensor is read, it must still hold what was
written to it. If an op's outputs have NaN or infinities that its inputs do not have, the run stops with the op's name,
unless its reference gives them too. A run that stops leaves the state as it was.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any
from zlib import crc32

import numpy as np

from hightide.errors import DeviceError, HightideError
from hightide.gpu.recording import Watch
from hightide.graph.graph import OpCall, input_ids, output_ids
from hightide.graph.symbols import Env, evaluate
from hightide.graph.values import SymIntValue
from hightide.ops.binding import mutated_ids
from hightide.ops.contract import Scratch
from hightide.planning.planner import Plan, Planner
from hightide.runtime.reference_walker import ReferenceWalker
from hightide.runtime.session import is_odd
from hightide.runtime.session_memory import SessionMemory
from hightide.runtime.words import POISON


def debugging() -> bool:
    """Whether runs are checked: HIGHTIDE_DEBUG is set."""
    return os.environ.get("HIGHTIDE_DEBUG", "") not in ("", "0")


class Checker(Watch):
    """Watches one run, to stop it at the first op that breaks something."""

    def __init__(
        self, planner: Planner, memory: SessionMemory, plan: Plan, env: Env, fed: Collection[int] = ()
    ) -> None:
        """`fed`: the inputs, by value, that the run before left on the GPU."""
        self.planner, self.graph, self.memory = planner, planner.graph, memory
        self.plan, self.env = plan, env
        self._sums: dict[int, int] = {}  # memory -> checksum of what was last written
        self._writer: dict[int, OpCall] = {}  # and who did
        self._odd: set[int] = set()  # memory that has values that are not finite
        self._saved = {id: memory.read(id) for id in memory.state}
        memory.poison(keep=fed)

    def before(self, call: OpCall) -> None:
        for id in self._computed(input_ids(self.graph, call)):
            self._check_unchanged(call, id)
        outputs = [self.planner.aliases.root[id] for id in output_ids(self.graph, call)]
        scratch = [key for key in self.memory.plan.shared if isinstance(key, Scratch) and key.call == call.index]
        self.memory.poison_shared([*outputs, *scratch], tag(call.index))

    def after(self, call: OpCall) -> None:
        root = self.planner.aliases.root
        excused = any(root[id] in self._odd for id in self._computed(input_ids(self.graph, call)))
        for id in (*output_ids(self.graph, call), *mutated_ids(call)):
            array = self._look(id)
            self._writer[root[id]] = call
            if root[id] in self._odd and not excused and not self._reference_agrees(call, id, array):
                raise DeviceError(self._sentence(call, id, array))

    def failed(self) -> None:
        """Put the state back to what it was before the run."""
        for id, array in self._saved.items():
            self.memory.write(id, array)

    def _computed(self, ids: Iterable[int]) -> list[int]:
        """The tensors among these that are not constants: what a run writes, is given, or keeps as state."""
        aliases = self.planner.aliases
        roots = {id: aliases.root[id] for id in ids if id in aliases.root}
        return [id for id, root in roots.items() if root in aliases.state or self.memory.tensor(root).constant is None]

    def _check_unchanged(self, call: OpCall, id: int) -> None:
        root = self.planner.aliases.root[id]
        known, writer = self._sums.get(root), self._writer.get(root)
        self._look(id)
        if known is not None and known != self._sums[root]:
            by = f" by {writer}" if writer is not None else ""
            raise DeviceError(
                f"{call} reads value {id}, which is not what was written{by} any more: an op between them wrote into"
                " its memory"
            )

    def _look(self, id: int) -> np.ndarray:
        """A tensor's live part; notes its checksum, and whether it is finite."""
        root, array = self.planner.aliases.root[id], self._read(id)
        self._sums[root] = crc32(array.tobytes())
        (self._odd.discard if array.dtype.kind != "f" or np.isfinite(array).all() else self._odd.add)(root)
        return array

    def _read(self, id: int) -> np.ndarray:
        return self.memory.read(id, self.plan.dims[id])

    def _reference_agrees(self, call: OpCall, id: int, array: np.ndarray) -> bool:
        """Whether the op's own meaning has no finite values there: an exponential that overflows, a mask of -inf."""
        root = self.planner.aliases.root
        ids = {*input_ids(self.graph, call), *(root[id] for id in mutated_ids(call))}
        values: dict[int, Any] = {n: self._read(n) for n in self._computed(ids)}
        for n in ids:
            if isinstance(self.graph.values[n], SymIntValue):
                values[n] = evaluate(self.plan.symints[n], self.env)
        try:
            wanted = ReferenceWalker(self.planner, "float32").evaluate(call, self.plan, values)
        except HightideError:
            return False
        want = wanted[id] if id in wanted else wanted[root[id]].reshape(array.shape)
        return bool((~np.isfinite(want) | np.isfinite(array)).all())

    def _sentence(self, call: OpCall, id: int, array: np.ndarray) -> str:
        nans, infinities = int(np.isnan(array).sum()), int(np.isinf(array).sum())
        what = " and ".join(f"{n} {name}" for n, name in ((nans, "NaN"), (infinities, "infinite")) if n)
        odd = ~np.isfinite(array)
        first = [int(i) for i in np.argwhere(odd)[0]] if array.ndim else []
        where = f"output {id}" if id in output_ids(self.graph, call) else f"state {id}"
        routes = dict.fromkeys(s.dispatch.kernel.name for s in self.plan.steps if s.call.index == call.index)
        return (
            f"{call} {', '.join(routes)}: {where} {list(array.shape)} has {what} of {array.size} values,"
            f" the first at {first}, where its inputs are finite and so is its reference{self._cause(call, array[odd])}"
        )

    def _cause(self, call: OpCall, odd: np.ndarray) -> str:
        """Whose poison it is, where the adapter's arithmetic lets it through."""
        if odd.dtype != np.float32:
            return ""
        bits = set(np.unique(odd.view(np.uint32)).tolist())
        if tag(call.index) in bits:
            return "; it was not written, or comes from scratch that was not"
        for other in self.graph.calls:
            if tag(other.index) in bits:
                return f"; it comes from what {other} did not write: beyond the live part"
        return "; it comes from beyond the live part of an input" if POISON in bits else ""


class OddFinder(Watch):
    """Looks for the first call of a run whose output has NaN or +infinity."""

    def __init__(self, memory: SessionMemory, plan: Plan) -> None:
        self.memory, self.plan = memory, plan
        self.found: OpCall | None = None

    def after(self, call: OpCall) -> None:
        if self.found is None:
            ids = output_ids(self.memory.graph, call)
            if any(is_odd(self.memory.read(id, self.plan.dims[id])) for id in ids):
                self.found = call


def tag(index: int) -> int:
    """The poison of one op call: NaN as a float and as two halves, with the op's number in its lower bits."""
    high, low = divmod(index, 1023)
    return (0x7FC0 | high + 1 & 0x3F) << 16 | 0x7C00 | low + 1
