"""Runs one op call at a time on the GPU, with its own buffers and the session's constants.

Everything that a call must not rely on is poisoned: its outputs and scratch before it runs, its inputs beyond their
live part, and a guard behind every buffer. So an op that reads what it must not read gives NaN, and one that writes
where it must not leaves a trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from hightide.gpu.checked import run_checked
from hightide.gpu.device import whole
from hightide.gpu.params import Params
from hightide.gpu.pipelines import pipelines
from hightide.gpu.recording import Command
from hightide.graph.graph import OpCall, input_ids
from hightide.graph.symbols import Env, evaluate
from hightide.graph.values import Dims, TensorValue
from hightide.ops.kernel import Dispatch, Scratch, Tensor
from hightide.ops.storage import gpu_bytes
from hightide.planning.planner import Plan
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.ready_plans import shader_of, symint_words
from hightide.runtime.upload import upload
from hightide.runtime.words import POISON, from_words, to_words
from hightide.wgsl.grid import fold
from hightide.wgsl.shader import SYMINT_SLOTS

GUARD = 4096  # bytes behind a tensor: an index past its max dims lands here
PARAMS_BLOCKS = 1024  # the most dispatches of one call

BEYOND = 0x7FC17FC1  # another NaN, behind what is read: if it is moved behind what is written, that shows too

Fill: TypeAlias = Literal["poison", "zeros"]
Taken: TypeAlias = dict[int | Scratch, Any]  # buffers of one run, by memory


@dataclass(frozen=True)
class Written:
    """A tensor after a call: its live part, and how many words behind it were written, and where."""

    array: np.ndarray
    beyond: int
    first_beyond: int  # bytes from the end of the live part, in whole vec4s, to the first of them


class SingleOpRunner:
    """Runs single calls of one session's graph, with its constants and its kernels."""

    def __init__(self, session: GpuSession) -> None:
        self.session, self.device = session, session.device
        self._pipelines = pipelines(session.device)
        self._params = Params(session.device, PARAMS_BLOCKS)
        self._symints = whole(session.device.buffer(4 * SYMINT_SLOTS, "UNIFORM|COPY_DST", "verify"))
        self._free: dict[int, list[Any]] = {}  # buffers by size
        self._fills: dict[int, Any] = {}  # a buffer full of each word
        self._env: Env = {}

    def set_level(self, plan: Plan, env: Env) -> None:
        """Write the SymInts that kernels read at this level and in this run."""
        self._env = env
        symints = symint_words(self.session.planner.slots, plan.symints, env)
        if symints.size:
            self.device.write(self._symints.buffer, 0, symints)

    def run(
        self,
        plan: Plan,
        dispatches: Sequence[Dispatch],
        given: Mapping[int, np.ndarray],
        wanted: Sequence[int],
        fill: Fill = "poison",
    ) -> dict[int, Written]:
        """The tensors `wanted` after these dispatches of `plan`, on the tensors `given`, both by value."""
        taken: Taken = {}
        for id in (*given, *wanted):
            self._buffer(id, plan, taken)
        self._params.clear()
        commands = [self._command(dispatch, plan, taken) for dispatch in dispatches]
        self._params.write()
        root = self.session.planner.aliases.root
        read = {root[id] for id in given} - {root[id] for id in wanted}
        if fill == "poison":
            self._fill([buffer for key, buffer in taken.items() if key not in read], POISON)
            self._fill([buffer for key, buffer in taken.items() if key in read], BEYOND)
        else:
            self._fill(list(taken.values()), 0)
        for id, array in given.items():
            if array.size:
                self.device.write(taken[root[id]], 0, to_words(array, self._tensor(id).dtype))
        run_checked(self.device, commands)
        result = {id: self._read(taken[root[id]], self._tensor(id), plan.dims[id], fill) for id in wanted}
        for buffer in taken.values():
            self._free.setdefault(buffer.size, []).append(buffer)
        return result

    def changed_constants(self, call: OpCall) -> list[str]:
        """A sentence for each constant of a call that is not on the GPU as it is in the file."""
        found = []
        aliases = self.session.planner.aliases
        for id in dict.fromkeys(aliases.root.get(id, -1) for id in input_ids(self.session.graph, call)):
            if id < 0 or id in aliases.state or self._tensor(id).constant is None:
                continue
            value, held = self._tensor(id), self.session.memory.region(id).buffer
            fresh = self.device.buffer(held.size, label="verify")
            upload(self.device, fresh, value)
            live = gpu_bytes(value.dtype, value.dims)
            there, file = (np.frombuffer(self.device.read(b), np.uint8)[:live] for b in (held, fresh))
            if (changed := np.flatnonzero(there != file)).size:
                dims = ", ".join(map(str, value.dims))
                found.append(
                    f"its constant {id} ({value.dtype} [{dims}]) is not on the GPU as in the file:"
                    f" {changed.size} of {live} bytes differ, from byte {changed[0]} on"
                )
        return found

    def _buffer(self, what: int | Scratch, plan: Plan, taken: Taken) -> Any:
        """The buffer that stands for a tensor, or for scratch; constants are the session's own."""
        key = what if isinstance(what, Scratch) else self.session.planner.aliases.root[what]
        if key not in taken:
            if isinstance(key, Scratch):
                size = plan.scratch_sizes[key]
            else:
                value = self._tensor(key)
                if value.constant is not None and key not in self.session.planner.aliases.state:
                    return self.session.memory.region(key).buffer
                size = gpu_bytes(value.dtype, value.dims)
            taken[key] = self._take(size + GUARD)
        return taken[key]

    def _command(self, dispatch: Dispatch, plan: Plan, taken: Taken) -> tuple[Command, tuple[int, int]]:
        """With its grid."""
        pipeline = self._pipelines.get(shader_of(dispatch))
        if self._pipelines.before_first is not None:
            self._pipelines.before_first(pipeline.shader)
        bound = (b.value.id if isinstance(b, Tensor) else b for b in (*dispatch.reads, *dispatch.writes))
        regions = [whole(self._buffer(what, plan, taken)) for what in bound]
        group = self._pipelines.bind(pipeline, self._params.buffer, self._symints, regions)
        offset = self._params.place(dispatch.kernel.interface, dispatch.params)
        groups = max(0, evaluate(dispatch.groups, self._env))
        return Command(pipeline, group, offset, groups, "verify"), fold(groups)

    def _take(self, size: int) -> Any:
        size = -(-size // 16) * 16
        free = self._free.get(size)
        return free.pop() if free else self.device.buffer(size, label="verify")

    def _fill(self, buffers: Sequence[Any], word: int) -> None:
        """All of these, whole, by a copy on the GPU."""
        most = max((buffer.size for buffer in buffers), default=0)
        source = self._fills.get(word)
        if source is None or source.size < most:
            source = self._fills[word] = self.device.buffer(max(most, 1 << 20), label="verify")
            self.device.write(source, 0, np.full(source.size // 4, word, np.uint32))
        self.device.copy((source, buffer) for buffer in buffers)

    def _read(self, buffer: Any, value: TensorValue, dims: Dims, fill: Fill) -> Written:
        data = self.device.read(buffer)
        # A kernel may write whole vec4s: up to the next multiple of 16 bytes.
        tail = np.frombuffer(data, np.uint32)[-(-gpu_bytes(value.dtype, dims) // 16) * 4 :]
        changed = np.flatnonzero(tail != (POISON if fill == "poison" else 0))
        return Written(from_words(data, value.dtype, dims), changed.size, int(changed[0]) * 4 if changed.size else 0)

    def _tensor(self, id: int) -> TensorValue:
        return self.session.memory.tensor(id)
