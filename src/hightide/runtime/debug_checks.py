"""HIGHTIDE_DEBUG=1: a run one op at a time on poisoned memory, that says which op broke.

Before the run everything that it must write before it reads is NaN, and once more an op's outputs and scratch
before that op, so that what is read without being written shows. Every tensor must still be what it was when
it was written each time it is read. NaN and infinities in an op's outputs that its inputs do not have stop the
run with the op's name, unless its reference gives them too. A run that stops leaves state as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from hightide.errors import DeviceError, HightideError
from hightide.graph.graph import OpCall, input_ids, output_ids
from hightide.graph.symbols import Env, evaluate
from hightide.graph.values import SymIntValue, TensorValue
from hightide.ops.contract import Scratch
from hightide.planning.planner import Plan
from hightide.runtime.words import POISON, from_words

if TYPE_CHECKING:
    from hightide.runtime.gpu_session import GpuSession


class Checker:
    """Looks on at one run, to stop it at the first op that breaks something."""

    def __init__(self, session: GpuSession, plan: Plan, env: Env, fed: Collection[int] = ()) -> None:
        """`fed`: the inputs, by value, that the run before left on the GPU."""
        self.session, self.plan, self.env = session, plan, env
        self._sums: dict[int, int] = {}  # memory -> checksum of what was last written
        self._writer: dict[int, OpCall] = {}  # and who did
        self._odd: set[int] = set()  # memory that has values that are not finite
        self._saved = {id: bytes(session.device.read(session._own[id])) for id in session.planner.aliases.state}
        given = (session._own[n] for n in session.graph.inputs if n in session._own and n not in fed)
        self._poison([*session._shared, *given], POISON)

    def before(self, call: OpCall) -> None:
        for id in self._computed(input_ids(self.session.graph, call)):
            self._check_unchanged(call, id)
        root, memory = self.session.planner.aliases.root, self.session.memory.shared
        outputs = [root[id] for id in output_ids(self.session.graph, call)]
        scratch = [key for key in memory if isinstance(key, Scratch) and key.call == call.index]
        shared = {memory[key] for key in (*outputs, *scratch) if key in memory}
        self._poison([self.session._shared[n] for n in shared], tag(call.index))

    def after(self, call: OpCall) -> None:
        graph, root = self.session.graph, self.session.planner.aliases.root
        op = self.session.planner.ops[call.index]
        excused = any(root[id] in self._odd for id in self._computed(input_ids(graph, call)))
        for id in (*output_ids(graph, call), *mutated_ids(call)):
            array = self._look(id)
            self._writer[root[id]] = call
            if root[id] in self._odd and not excused and not self._reference_agrees(call, id, array):
                raise DeviceError(self._sentence(call, id, array))

    def failed(self) -> None:
        """Put the state back to what it was before the run."""
        for id, data in self._saved.items():
            self.session.device.write(self.session._own[id], 0, data)

    def _computed(self, ids: Iterable[int]) -> list[int]:
        """The tensors among these that are not constants: what a run writes, is given, or keeps as state."""
        aliases, values = self.session.planner.aliases, self.session.graph.values
        roots = {id: aliases.root[id] for id in ids if id in aliases.root}
        return [id for id, root in roots.items() if root in aliases.state or _tensor(values[root]).constant is None]

    def _check_unchanged(self, call: OpCall, id: int) -> None:
        root = self.session.planner.aliases.root[id]
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
        root, array = self.session.planner.aliases.root[id], self._read(id)
        self._sums[root] = crc32(array.tobytes())
        (self._odd.discard if array.dtype.kind != "f" or np.isfinite(array).all() else self._odd.add)(root)
        return array

    def _read(self, id: int) -> np.ndarray:
        value = _tensor(self.session.graph.values[id])
        data = self.session.device.read(self.session._tensor_buffer(id))
        return from_words(data, value.dtype, self.plan.dims[id])

    def _poison(self, buffers: Iterable[Any], word: int) -> None:
        for buffer in buffers:
            self.session.device.write(buffer, 0, np.full(buffer.size // 4, word, np.uint32))

    def _reference_agrees(self, call: OpCall, id: int, array: np.ndarray) -> bool:
        """Whether the op's own meaning has no finite values there: an exponential that overflows, a mask of -inf."""
        from hightide.tools.verify.oracle import Oracle

        graph, op = self.session.graph, self.session.planner.ops[call.index]
        root = self.session.planner.aliases.root
        ids = {*input_ids(graph, call), *(root[id] for id in mutated_ids(call))}
        values: dict[int, Any] = {n: self._read(n) for n in self._computed(ids)}
        for n in ids:
            if isinstance(graph.values[n], SymIntValue):
                values[n] = evaluate(self.plan.symints[n], self.env)
        try:
            wanted = Oracle(self.session, "float32").judge(call, op, self.plan, values)
        except HightideError:
            return False
        want = wanted[id] if id in wanted else wanted[root[id]].reshape(array.shape)
        return bool((~np.isfinite(want) | np.isfinite(array)).all())

    def _sentence(self, call: OpCall, id: int, array: np.ndarray) -> str:
        nans, infinities = int(np.isnan(array).sum()), int(np.isinf(array).sum())
        what = " and ".join(f"{n} {name}" for n, name in ((nans, "NaN"), (infinities, "infinite")) if n)
        odd = ~np.isfinite(array)
        first = [int(i) for i in np.argwhere(odd)[0]] if array.ndim else []
        where = f"output {id}" if id in output_ids(self.session.graph, call) else f"state {id}"
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
        for other in self.session.graph.calls:
            if tag(other.index) in bits:
                return f"; it comes from what {other} did not write: beyond the live part"
        return "; it comes from beyond the live part of an input" if POISON in bits else ""


def tag(index: int) -> int:
    """The poison of one op call: NaN as a float and as two halves, with the op's number in its lower bits."""
    high, low = divmod(index, 1023)
    return (0x7FC0 | high + 1 & 0x3F) << 16 | 0x7C00 | low + 1


def _tensor(value: Any) -> TensorValue:
    assert isinstance(value, TensorValue)
    return value
