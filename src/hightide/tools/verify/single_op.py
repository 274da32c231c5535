"""One op call at a time on the GPU, on buffers of its own beside the session's constants.

Everything that a call may not rely on is poison: its outputs and scratch before it runs, its inputs beyond
their live part, and a guard behind every buffer. So an op that reads what it must not gives NaN, and one that
writes where it must not leaves a trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from hightide.gpu.device import raising
from hightide.gpu.params import Params
from hightide.gpu.pipelines import BindGroup, Pipeline, pipelines
from hightide.graph.graph import OpCall, input_ids
from hightide.graph.symbols import Env, evaluate
from hightide.graph.values import Dims, TensorValue
from hightide.ops.contract import Binding, Dispatch, Scratch, Tensor
from hightide.planning.levels import live_symint
from hightide.planning.memory import gpu_bytes
from hightide.planning.planner import Plan
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.upload import upload
from hightide.runtime.words import POISON, from_words, to_words
from hightide.wgsl.grid import fold
from hightide.wgsl.shader import SYMINT_SLOTS

GUARD = 4096  # bytes behind a tensor: an index past its max dims lands here
PARAMS_BLOCKS = 1024  # the most dispatches of one call

BEYOND = 0x7FC17FC1  # another NaN, behind what is read: if it is moved behind what is written, that shows too

Fill: TypeAlias = Literal["poison", "zeros"]
_Command: TypeAlias = tuple[Pipeline, BindGroup, int, tuple[int, int]]  # with the place of its parameters, its grid


@dataclass(frozen=True)
class Written:
    """A tensor after a call: its live part, and how many words behind it were written, and where."""

    array: np.ndarray
    beyond: int
    first_beyond: int  # bytes from the end of the live part, in whole vec4s, to the first of them


class Bench:
    """Runs single calls of one session's graph, with its constants and its kernels."""

    def __init__(self, session: GpuSession) -> None:
        self.session, self.device = session, session.device
        self._pipelines = pipelines(session.device)
        self._params = Params(session.device, PARAMS_BLOCKS)
        self._symints = session.device.buffer(SYMINT_SLOTS * 4, "UNIFORM|COPY_DST", "SymInts")
        self._free: dict[int, list[Any]] = {}  # buffers by size
        self._fills: dict[int, Any] = {}  # a buffer full of each word
        self._env: Env = {}

    def set_level(self, plan: Plan, env: Env) -> None:
        """Write the SymInts that kernels read at this level and in this run."""
        self._env = env
        slots = self.session.planner.slots
        symints = np.zeros(max(1, len(slots)), np.int32)
        for id, expr in plan.symints.items():
            symints[slots[id]] = live_symint(expr, env)
        self.device.write(self._symints, 0, symints)

    def run(
        self,
        plan: Plan,
        dispatches: Sequence[Dispatch],
        given: Mapping[int, np.ndarray],
        wanted: Sequence[int],
        fill: Fill = "poison",
    ) -> dict[int, Written]:
        """The tensors `wanted` after these dispatches of `plan`, on the tensors `given`, both by value."""
        taken: dict[int | Scratch, Any] = {}
        for id in (*given, *wanted):
            self._buffer(Tensor(self._tensor(id), plan.dims[id]), plan, taken)
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
        self._submit(commands)
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
            value, held = self._tensor(id), self.session._tensor_buffer(id)
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

    def _buffer(self, binding: Binding, plan: Plan, taken: dict[int | Scratch, Any]) -> Any:
        key = binding if isinstance(binding, Scratch) else self.session.planner.aliases.root[binding.value.id]
        if key not in taken:
            if isinstance(key, Scratch):
                size = plan.scratch_sizes[key]
            else:
                value = self._tensor(key)
                if value.constant is not None and key not in self.session.planner.aliases.state:
                    return self.session._tensor_buffer(key)
                size = gpu_bytes(value.dtype, value.dims)
            taken[key] = self._take(size + GUARD)
        return taken[key]

    def _command(self, dispatch: Dispatch, plan: Plan, taken: dict[int | Scratch, Any]) -> _Command:
        bindings = (*dispatch.reads, *dispatch.writes)
        halves = tuple(n for n, b in enumerate(bindings) if isinstance(b, Tensor) and b.dtype == "float16")
        pipeline = self._pipelines.get(dispatch.kernel, len(dispatch.reads), len(dispatch.writes), halves)
        buffers = [self._buffer(binding, plan, taken) for binding in bindings]
        group = self._pipelines.bind(pipeline, self._params.buffer, self._symints, buffers)
        offset = self._params.place(dispatch.kernel, dispatch.params)
        return pipeline, group, offset, fold(max(0, evaluate(dispatch.groups, self._env)))

    def _submit(self, commands: Iterable[_Command]) -> None:
        wgpu = self.device.wgpu
        with raising():
            encoder = wgpu.create_command_encoder()
            compute = encoder.begin_compute_pass()
            for pipeline, group, offset, (x, y) in commands:
                compute.set_pipeline(pipeline.handle)
                compute.set_bind_group(0, group.handle, [offset])
                compute.dispatch_workgroups(x, y, 1)
            compute.end()
            wgpu.queue.submit([encoder.finish()])

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
        with raising():
            encoder = self.device.wgpu.create_command_encoder()
            for buffer in buffers:
                encoder.copy_buffer_to_buffer(source, 0, buffer, 0, buffer.size)
            self.device.wgpu.queue.submit([encoder.finish()])

    def _read(self, buffer: Any, value: TensorValue, dims: Dims, fill: Fill) -> Written:
        data = self.device.read(buffer)
        # A kernel may write whole vec4s: up to the next multiple of 16 bytes.
        tail = np.frombuffer(data, np.uint32)[-(-gpu_bytes(value.dtype, dims) // 16) * 4 :]
        changed = np.flatnonzero(tail != (POISON if fill == "poison" else 0))
        return Written(from_words(data, value.dtype, dims), changed.size, int(changed[0]) * 4 if changed.size else 0)

    def _tensor(self, id: int) -> TensorValue:
        value = self.session.graph.values[id]
        assert isinstance(value, TensorValue)
        return value
