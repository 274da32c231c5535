"""Plans made ready to run: their pipelines, bind groups and parameters, each found or made once."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hightide.errors import DeviceError, HightideError, UnsupportedError
from hightide.gpu.device import Device
from hightide.gpu.params import Params, ParamsFull
from hightide.gpu.pipelines import BindGroup, Pipeline, compiling, pipelines
from hightide.gpu.recorder import Recorder
from hightide.gpu.recording import BufferCopy, Command, Recording
from hightide.graph.symbols import Env, Sym, SymExpr
from hightide.graph.values import TensorValue
from hightide.ops.kernel import Dispatch, Scratch, Tensor
from hightide.ops.storage import GPU_TYPE, gpu_bytes
from hightide.planning.levels import live_symint
from hightide.planning.planner import Plan, Step
from hightide.runtime.session import Feed
from hightide.runtime.session_memory import SessionMemory
from hightide.runtime.step_block import SYMINTS
from hightide.wgsl.shader import Shader

PARAMS_BLOCKS = 4096  # distinct parameter blocks held at once: 1 MiB


@dataclass
class ReadyPlan:
    """A plan with its recording, and the SymInts it leaves to each run."""

    plan: Plan
    recording: Recording
    symints: np.ndarray  # by slot; those the level decides are filled in
    live_symints: list[tuple[int, Sym]]  # (slot, formula)
    recordings: dict[Any, Recording] = field(default_factory=dict)  # by what is brought back or fed on

    def symints_at(self, env: Env) -> np.ndarray:
        """The SymInts of a run, by slot."""
        if not self.live_symints:
            return self.symints
        symints = self.symints.copy()
        for slot, expr in self.live_symints:
            symints[slot] = live_symint(expr, env)
        return symints


class ReadyPlans:
    """Makes plans of one session ready, on its memory."""

    def __init__(
        self, device: Device, memory: SessionMemory, slots: Mapping[int, int], scratch: Mapping[Scratch, int]
    ) -> None:
        """`slots`: of each SymInt, by value id."""
        self.device, self.memory, self.slots, self.scratch = device, memory, slots, scratch
        self.params = Params(device, PARAMS_BLOCKS)
        self._pipelines = pipelines(device)
        self._bound: dict[tuple[Any, ...], tuple[Pipeline, BindGroup]] = {}  # by kernel and tensors: its bind group

    def start(self, plans: Iterable[Plan]) -> None:
        """Have the pipelines of these compiled in threads."""
        self._pipelines.start(shader_of(step.dispatch) for plan in plans for step in plan.steps)

    def prepare(self, plan: Plan) -> ReadyPlan:
        """Raises ParamsFull where there is no room for the parameters; see `prepare_anew`."""
        for scratch, size in plan.scratch_sizes.items():
            if size > self.scratch.get(scratch, 0):
                raise DeviceError(
                    f"op {scratch.call} needs {size} bytes of scratch; {self.scratch.get(scratch, 0)} were built"
                )
        recording = Recording([self._command(step) for step in plan.steps], [])
        known = {id: expr for id, expr in plan.symints.items() if not isinstance(expr, Sym)}
        live = [(self.slots[id], expr) for id, expr in plan.symints.items() if isinstance(expr, Sym)]
        return ReadyPlan(plan, recording, symint_words(self.slots, known, {}), live)

    def prepare_anew(self, plan: Plan) -> ReadyPlan:
        """The same over the parameters of all other plans, which must not run any more."""
        self.params.clear()
        try:
            return self.prepare(plan)
        except ParamsFull:
            raise UnsupportedError(f"a plan needs more than {PARAMS_BLOCKS} different sets of parameters") from None

    def forget_bound(self, scratch: Collection[Scratch]) -> None:
        """Bind anew what uses these, whose buffers are others now."""
        self._bound = {key: found for key, found in self._bound.items() if not set(scratch).intersection(key[1:])}

    def recording(self, ready: ReadyPlan, want: tuple[int, ...], feed: Feed) -> Recording:
        """The plan's commands, with copies for the outputs wanted and for those that go into inputs."""
        key = want, tuple(feed.items())
        if key not in ready.recordings:
            copies = [*self._readbacks(ready.plan, want), *self._feeds(ready.plan, feed)]
            ready.recordings[key] = ready.recording.ending_with(copies)
        return ready.recordings[key]

    def warm_up(self, recorder: Recorder, *levels: ReadyPlan) -> None:
        """Dispatch each new pipeline of these levels once, over nothing.

        llvmpipe compiles only then, up to a second each where Mesa's cache on the disk does not have it, which would
        otherwise be part of the first steps. (The other levels wait until they are met: all would take twice as long.)
        """
        commands = {c.pipeline: c for ready in levels for c in ready.recording.commands}
        new = {pipeline: c for pipeline, c in commands.items() if pipeline not in self._pipelines.warm}
        if not new:
            return
        tell, before = compiling.get(), self._pipelines.before_first
        with self.params.blank():
            for done, (pipeline, command) in enumerate(new.items(), 1):
                if before is not None:
                    before(pipeline.shader)
                recorder.submit(Recording([replace(command, groups=1)], []))
                self._pipelines.warm.add(pipeline)
                if tell is not None or before is not None:
                    self.device.flush()
                if tell is not None:
                    tell(done, len(new))

    def close(self) -> None:
        self._bound.clear()
        self.params.buffer.destroy()

    def _command(self, step: Step) -> Command:
        dispatch = step.dispatch
        bound = (*dispatch.reads, *dispatch.writes)
        what = tuple([b.value.id if isinstance(b, Tensor) else b for b in bound])
        key = (dispatch.kernel, *what)
        found = self._bound.get(key)
        if found is None:
            pipeline = self._pipelines.get(shader_of(dispatch))
            regions = [self.memory.region(key) for key in what]
            symints = self.memory.step.regions[SYMINTS]
            found = pipeline, self._pipelines.bind(pipeline, self.params.buffer, symints, regions)
            self._bound[key] = found
        offset = self.params.place(dispatch.kernel.interface, dispatch.params)
        return Command(*found, offset, dispatch.groups, step.call)

    def _readbacks(self, plan: Plan, want: Iterable[int]) -> Iterable[BufferCopy]:
        offset = 0
        for n in want:
            value = self._output(n)
            if not isinstance(value, TensorValue):
                continue
            nbytes = gpu_bytes(value.dtype, plan.dims.get(value.id, value.dims))
            if nbytes:
                yield BufferCopy(self.memory.region(value.id), nbytes, offset)
                offset += -(-nbytes // 16) * 16

    def _feeds(self, plan: Plan, feed: Feed) -> Iterable[BufferCopy]:
        """Outputs to the beginning of inputs."""
        for output, target in feed.items():
            value = self._output(output)
            assert isinstance(value, TensorValue)
            if GPU_TYPE[value.dtype] == "u8" or value.dtype == "float16":
                raise HightideError(f"output {output} is {value.dtype}: only whole words are fed on")
            place = self.memory.region(self.memory.graph.inputs[target])
            nbytes = gpu_bytes(value.dtype, plan.dims[value.id])
            if nbytes > place.size:
                raise HightideError(f"output {output} does not fit the input that it is fed to")
            if nbytes:
                yield BufferCopy(self.memory.region(value.id), nbytes, place.offset, place.buffer)

    def _output(self, n: int) -> object:
        graph = self.memory.graph
        return graph.values[graph.outputs[n]]


def symint_words(slots: Mapping[int, int], symints: Mapping[int, SymExpr], env: Env) -> np.ndarray:
    """SymInts by slot, from the formulas of a plan."""
    words = np.zeros(len(slots), np.int32)
    for id, expr in symints.items():
        words[slots[id]] = live_symint(expr, env)
    return words


def shader_of(dispatch: Dispatch) -> Shader:
    """The text of a dispatch's kernel, for the tensors that it has."""
    return dispatch.kernel.shader(dispatch.halves)


def readback_bytes(memory: SessionMemory) -> int:
    """Room for all outputs, each at a multiple of 16 bytes."""
    values = (memory.graph.values[id] for id in memory.graph.outputs)
    return sum(gpu_bytes(v.dtype, v.dims) + 16 for v in values if isinstance(v, TensorValue))


def input_items(ready: ReadyPlan, inputs: Iterable[int]) -> int:
    """How many elements a level's inputs have."""
    return sum(math.prod(ready.plan.dims[id]) for id in inputs if id in ready.plan.dims)
