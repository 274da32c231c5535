"""A graph on a GPU: built once at its max dims, run at any level.

Build: plan at the max dims, plan memory, make buffers, upload constants, make the pipelines and bind
groups that levels take. A run writes inputs and changed SymInts, replays its plan, reads outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hightide.errors import DeviceError, HightideError, UnsupportedError
from hightide.fuse.half_storage import held
from hightide.gpu.device import Device, debugging
from hightide.gpu.params import Params, ParamsFull
from hightide.gpu.pipelines import BindGroup, Pipeline, compiling, pipelines
from hightide.gpu.recorder import Command, Copy, Recorder, Recording, Submission, Watch
from hightide.graph.graph import Graph
from hightide.graph.symbols import Element, Env, Sym, evaluate
from hightide.graph.values import TensorValue
from hightide.ops.kernel import GPU_TYPE, Bound, Scratch, Tensor
from hightide.planning.build_levels import probe
from hightide.planning.levels import (
    InputElements,
    Levels,
    MaxElements,
    check_count,
    check_int32,
    check_run,
    graph_inputs,
    live_symint,
)
from hightide.planning.memory import gpu_bytes, plan_memory
from hightide.planning.planner import Plan, Planner, Step
from hightide.runtime.routes import choices_for
from hightide.runtime.session import Fed
from hightide.runtime.upload import upload, whole_words
from hightide.wgsl.shader import SYMINT_SLOTS, Shader

if TYPE_CHECKING:
    from hightide.runtime.debug_checks import Checker

PARAMS_BLOCKS = 4096  # distinct parameter blocks kept at once: 1 MiB


@dataclass
class ReadyPlan:
    """A plan with its recording, and the SymInts it leaves to each run."""

    plan: Plan
    recording: Recording
    symints: np.ndarray  # by slot; those the level decides are filled in
    live_symints: list[tuple[int, Sym]]  # (slot, formula)
    recordings: dict[Any, Recording] = field(default_factory=dict)  # by what is brought back or fed on


@dataclass(frozen=True)
class Ticket:
    """A run under way."""

    submission: Submission
    recording: Recording
    plan: Plan
    env: Env
    want: tuple[int, ...]


@dataclass
class Counters:
    """What a session did so far; a steady step changes none but `runs` (and a few bytes of SymInts)."""

    runs: int = 0
    param_bytes: int = 0
    symint_bytes: int = 0


class GpuSession:
    """Runs one graph on one device."""

    def __init__(
        self,
        graph: Graph,
        device: Device,
        dynamic: Sequence[bool] | None = None,
        names: Sequence[str] | None = None,
        max_levels: int = 64,
        progress: Callable[[int, int], None] | None = None,
        choices: Mapping[str, str] | None = None,
        f16: bool | None = None,
        half_caches: bool = False,
    ) -> None:
        """`choices` forces routes, by the name of the choice.

        `f16` says whether float16 tensors are held as halves (if the adapter can; HIGHTIDE_F16=0 is another no),
        `half_caches` whether KV caches are too, whatever the graph says.
        """
        self.graph = graph = held(graph, device.traits, f16, half_caches)
        self.device = device
        self.name = device.adapter.name
        self.counters = Counters()
        self.specs = graph_inputs(graph, dynamic, names)
        self.planner = Planner(graph, scratch_limit=device.max_binding, choices=choices_for(device, choices))
        if len(self.planner.slots) > SYMINT_SLOTS:
            raise UnsupportedError(f"the program has {len(self.planner.slots)} SymInts; {SYMINT_SLOTS} is the most")
        self.levels: Levels[ReadyPlan] = Levels(self.planner, max_levels)
        self._pipelines = pipelines(device)
        self._bound: dict[tuple[Any, ...], tuple[Pipeline, BindGroup]] = {}  # by kernel and tensors: its bind group

        max_plan = self.planner.plan_max(MaxElements())
        probes = [max_plan, *probe(self.planner, self.specs, bool(max_plan.pins))]
        self.scratch: dict[Scratch, int] = {}
        for plan in probes:
            for scratch, size in plan.scratch_sizes.items():
                self.scratch[scratch] = max(size, self.scratch.get(scratch, 0))
        self.memory = plan_memory(graph, self.planner.aliases, self.scratch)
        for id, size in self.memory.own.items():  # what cannot be built is refused before anything is allocated
            device.check_size(size, f"tensor {id}")
        for n, size in enumerate(self.memory.shared_sizes):
            device.check_size(size, f"shared {n}")
        self._shared = [device.buffer(size, label=f"shared {n}") for n, size in enumerate(self.memory.shared_sizes)]
        self._own = {id: device.buffer(size, label=f"tensor {id}") for id, size in self.memory.own.items()}
        self._backup: dict[int, Any] = {}
        self._params = Params(device, PARAMS_BLOCKS)
        self._symint_buffer = device.buffer(SYMINT_SLOTS * 4, "UNIFORM|COPY_DST", "SymInts")
        self._launched: list[Ticket] = []
        self._last_elements: dict[Element, int] = {}
        self._symints_written = np.zeros(len(self.planner.slots), np.int32)
        readback = sum(gpu_bytes(v.dtype, v.dims) + 16 for v in self._outputs())
        self._recorder = Recorder(device, readback, self._params)
        self._pipelines.start(_shader(step) for plan in probes for step in plan.steps)
        self._upload_constants(progress)
        ready = [self._prepare(plan) for plan in probes]
        self._warm_up(ready[0], min(ready, key=self._input_items))
        device.flush()

    # ---- running

    def run(self, given: Sequence[Any]) -> list[np.ndarray]:
        """Outputs at the live dims of `given`."""
        ticket = self.launch(given)
        foreseen = self._foreseen(ticket.env)
        self._recorder.encode_ahead(ticket.recording, lambda groups: evaluate(groups, foreseen))
        return self.collect(ticket)

    def launch(
        self,
        given: Sequence[Any],
        want: Sequence[int] | None = None,
        feed: Mapping[int, int] = {},
        watch: Watch | None = None,
    ) -> Ticket:
        """Start a run; see `Session.launch`. A `watch` looks on, op by op."""
        if len(self._launched) == len(self._recorder.readbacks):
            raise HightideError("two runs are under way: collect one before launching the next")
        inputs, ready, env = self._ready(given)
        check_run(ready.plan, inputs, self.specs, env)
        narrowed = [self._narrow(n, array) for n, array in enumerate(inputs)]
        symints = self._live_symints(ready, env)
        wanted = tuple(range(len(self.graph.outputs))) if want is None else tuple(want)
        recording = self._recording(ready, wanted, feed)
        recording.size_grids(lambda groups: evaluate(groups, env))
        # Everything is checked: from here on bytes are written.
        if watch is None and debugging():
            watch = self._checker(ready.plan, env, given)
        self._write_symints(symints)
        for id, array, value in zip(self.graph.inputs, narrowed, given, strict=True):
            if array.size and id in self._own and not isinstance(value, Fed):
                self._recorder.write(self._own[id], 0, array)
        if watch is None:
            submission = self._recorder.submit(recording)
        else:
            submission = self._recorder.submit_watched(recording, watch)
        ticket = Ticket(submission, recording, ready.plan, env, wanted)
        self._launched.append(ticket)
        self.counters.runs += 1
        return ticket

    def _checker(self, plan: Plan, env: Env, given: Sequence[Any]) -> Checker:
        from hightide.runtime.debug_checks import Checker

        fed = [id for id, value in zip(self.graph.inputs, given, strict=True) if isinstance(value, Fed)]
        return Checker(self, plan, env, fed)

    def collect(self, ticket: Ticket) -> list[np.ndarray]:
        """Wait for a run and bring back the outputs that it was launched for."""
        if not self._launched or self._launched[0] is not ticket:
            raise HightideError("runs are collected once, in the order they were launched in")
        self._launched.pop(0)
        data = iter(self._recorder.read(ticket.recording.copies, ticket.submission))
        return [self._output(self.graph.outputs[n], ticket.plan, ticket.env, data) for n in ticket.want]

    def level(self, given: Sequence[Any]) -> tuple[list[np.ndarray], Plan, Env]:
        """The inputs as arrays, the plan of their level, and the input elements that SymInts read."""
        inputs, ready, env = self._ready(given)
        return inputs, ready.plan, env

    def _ready(self, given: Sequence[Any]) -> tuple[list[np.ndarray], ReadyPlan, Env]:
        check_count(self.specs, given)
        inputs = [
            np.zeros(value.dims, spec.dtype) if isinstance(value, Fed) else spec.array(value)
            for spec, value in zip(self.specs, given, strict=True)
        ]
        env = InputElements(inputs, self.specs)
        return inputs, self.levels.find(tuple(array.shape for array in inputs), env, self._prepare), env

    def reset(self) -> None:
        """Put mutable state (KV caches) back to what the program says it is at the start."""
        for id in self.planner.aliases.state:
            self._upload(id)
        self.device.flush()

    def snapshot(self) -> Any:
        """Keep a copy of the state on the GPU, for `restore`; one is kept, the last."""
        if not self._backup:
            self._backup = {id: self.device.buffer(self._own[id].size) for id in self.planner.aliases.state}
        self.device.copy((self._own[id], backup) for id, backup in self._backup.items())
        return self._backup

    def restore(self, snapshot: Any) -> None:
        self.device.copy((backup, self._own[id]) for id, backup in snapshot.items())

    def read_state(self) -> list[np.ndarray]:
        """Mutable state as arrays, in a fixed order."""
        arrays = []
        for id in sorted(self.planner.aliases.state):
            value = self.graph.values[id]
            assert isinstance(value, TensorValue)
            data = self.device.read(self._own[id])
            arrays.append(np.frombuffer(data, _on_gpu(value.dtype), math.prod(value.dims)).reshape(value.dims).copy())
        return arrays

    def write_state(self, arrays: Sequence[np.ndarray]) -> None:
        for id, array in zip(sorted(self.planner.aliases.state), arrays, strict=True):
            value = self.graph.values[id]
            assert isinstance(value, TensorValue)
            self.device.write(self._own[id], 0, whole_words(np.ascontiguousarray(array, _on_gpu(value.dtype))))
        self.device.flush()

    def close(self) -> None:
        """Free the session's buffers."""
        self.device.flush()
        for buffer in (*self._shared, *self._own.values(), *self._backup.values()):
            buffer.destroy()

    def poison(self) -> None:
        """Fill all that a run must write before it reads with NaN: a stale read then shows in the outputs."""
        for buffer in (*self._shared, *(self._own[id] for id in self.graph.inputs if id in self._own)):
            self.device.write(buffer, 0, np.full(buffer.size // 4, 0x7FC07FC0, np.uint32))  # NaN as halves too

    def device_bytes(self) -> dict[str, int]:
        """GPU memory by kind."""
        state = self.planner.aliases.state
        return {
            "weights": sum(n for id, n in self.memory.own.items() if id not in state and id not in self.graph.inputs),
            "state": sum(n for id, n in self.memory.own.items() if id in state),
            "inputs": sum(n for id, n in self.memory.own.items() if id in self.graph.inputs),
            "activations": sum(self.memory.shared_sizes),
            "parameters": self._params.buffer.size + self._symint_buffer.size,
            "readback": sum(buffer.size for buffer in self._recorder.readbacks),
        }

    # ---- building

    def _prepare(self, plan: Plan) -> ReadyPlan:
        for scratch, size in plan.scratch_sizes.items():
            if size > self.scratch.get(scratch, 0):
                raise DeviceError(
                    f"op {scratch.call} needs {size} bytes of scratch; {self.scratch.get(scratch, 0)} were built"
                )
        commands = self._commands(plan)
        self.counters.param_bytes += self._params.write()
        symints = np.zeros(len(self.planner.slots), np.int32)
        live = []
        for id, expr in plan.symints.items():
            slot = self.planner.slots[id]
            if isinstance(expr, Sym):
                live.append((slot, expr))
            else:
                symints[slot] = live_symint(expr, {})
        return ReadyPlan(plan, Recording(commands, []), symints, live)

    def _commands(self, plan: Plan) -> list[Command]:
        try:
            return [self._command(step) for step in plan.steps]
        except ParamsFull:  # drop every plan and start the arena anew
            self._recorder.forget()
            self.levels.clear()
            self._params.clear()
        try:
            return [self._command(step) for step in plan.steps]
        except ParamsFull:
            raise UnsupportedError(f"a plan needs more than {PARAMS_BLOCKS} different sets of parameters") from None

    def _command(self, step: Step) -> Command:
        dispatch = step.dispatch
        bindings = (*dispatch.reads, *dispatch.writes)
        key = (dispatch.kernel, *(b.value.id if isinstance(b, Tensor) else b for b in bindings))
        bound = self._bound.get(key)
        if bound is None:
            pipeline = self._pipelines.get(_shader(step))
            buffers = [self._buffer(binding) for binding in bindings]
            bound = pipeline, self._pipelines.bind(pipeline, self._params.buffer, self._symint_buffer, buffers)
            self._bound[key] = bound
        offset = self._params.place(dispatch.kernel.interface, dispatch.params)
        pipeline, group = bound
        return Command(pipeline, group, offset, dispatch.groups, step.call)

    def _input_items(self, ready: ReadyPlan) -> int:
        return sum(math.prod(ready.plan.dims[id]) for id in self.graph.inputs if id in ready.plan.dims)

    def _warm_up(self, *levels: ReadyPlan) -> None:
        """Dispatch each new pipeline of these levels once, over nothing.

        llvmpipe compiles only then, up to a second each where Mesa's cache on the disk does not have it, which would
        otherwise be part of the first steps. (The other levels wait until they are met: all would take twice as long.)
        """
        commands = {c.pipeline.address.value or 0: c for ready in levels for c in ready.recording.commands}
        new = {address: c for address, c in commands.items() if address not in self._pipelines.warm}
        if not new or debugging():
            return
        tell = compiling.get()
        with self._params.blank():
            for done, (address, command) in enumerate(new.items(), 1):
                self._recorder.submit(Recording([replace(command, groups=1)], []))
                self._pipelines.warm.add(address)
                if tell is not None:
                    self.device.flush()
                    tell(done, len(new))

    def _recording(self, ready: ReadyPlan, want: tuple[int, ...], feed: Mapping[int, int]) -> Recording:
        """The plan's commands, with copies for the outputs wanted and for those that go into inputs."""
        key = want, tuple(feed.items())
        if key not in ready.recordings:
            copies = self._copies(ready.plan, want)
            for output, target in feed.items():
                value = self.graph.values[self.graph.outputs[output]]
                assert isinstance(value, TensorValue)
                if GPU_TYPE[value.dtype] == "u8" or value.dtype == "float16":
                    raise HightideError(f"output {output} is {value.dtype}: only whole words are fed on")
                last = gpu_bytes(value.dtype, ready.plan.dims[value.id]) - 4
                place = self._own[self.graph.inputs[target]]
                copies.append(Copy(self._tensor_buffer(value.id), 4, 0, source_offset=last, target=place))
            ready.recordings[key] = ready.recording.ending_with(copies)
        return ready.recordings[key]

    def _copies(self, plan: Plan, want: Iterable[int]) -> list[Copy]:
        copies, offset = [], 0
        for n in want:
            value = self.graph.values[self.graph.outputs[n]]
            if not isinstance(value, TensorValue):
                continue
            nbytes = gpu_bytes(value.dtype, plan.dims.get(value.id, value.dims))
            if nbytes:
                copies.append(Copy(self._tensor_buffer(value.id), nbytes, offset))
                offset += -(-nbytes // 16) * 16
        return copies

    def _buffer(self, binding: Bound) -> Any:
        if isinstance(binding, Tensor):
            return self._tensor_buffer(binding.value.id)
        return self._shared[self.memory.shared[binding]]

    def _tensor_buffer(self, id: int) -> Any:
        root = self.planner.aliases.root[id]
        return self._own[root] if root in self._own else self._shared[self.memory.shared[root]]

    def _outputs(self) -> Iterable[TensorValue]:
        for id in self.graph.outputs:
            value = self.graph.values[id]
            if isinstance(value, TensorValue):
                yield value

    def _upload_constants(self, progress: Callable[[int, int], None] | None) -> None:
        done, every = 0, sum(self.memory.own.values())
        for id, size in self.memory.own.items():
            self._upload(id)
            done += size
            if progress is not None:
                progress(done, every)

    def _upload(self, id: int) -> None:
        value = self.graph.values[id]
        assert isinstance(value, TensorValue)
        if value.constant is not None:
            upload(self.device, self._own[id], value)

    # ---- one step

    def _live_symints(self, ready: ReadyPlan, env: Env) -> np.ndarray:
        if not ready.live_symints:
            return ready.symints
        symints = ready.symints.copy()
        for slot, expr in ready.live_symints:
            symints[slot] = live_symint(expr, env)
        return symints

    def _foreseen(self, env: Env) -> Env:
        """The input elements of the next step, if they go on as they did: a position grows by one."""
        foreseen = {element: 2 * value - self._last_elements.get(element, value) for element, value in env.items()}
        self._last_elements = dict(env)
        return foreseen

    def _write_symints(self, symints: np.ndarray) -> None:
        """Write the span of SymInts that changed since the last run; nothing if none did."""
        changed = np.flatnonzero(symints != self._symints_written)
        if changed.size:
            first, last = int(changed[0]), int(changed[-1]) + 1
            self._recorder.write(self._symint_buffer, first * 4, symints[first:last])
            self._symints_written[:] = symints
            self.counters.symint_bytes += (last - first) * 4

    def _output(self, id: int, plan: Plan, env: Env, data: Iterable[bytes]) -> np.ndarray:
        value = self.graph.values[id]
        if not isinstance(value, TensorValue):
            return np.asarray(evaluate(plan.symints[id], env))
        dims = plan.dims.get(id, value.dims)
        if 0 in dims:
            return np.zeros(dims, value.host_dtype)
        array = np.frombuffer(next(iter(data)), _on_gpu(value.dtype), int(np.prod(dims))).reshape(dims)
        return array.astype(value.host_dtype)  # a copy: the caller may write to it

    def _narrow(self, position: int, array: np.ndarray) -> np.ndarray:
        """An input as the GPU holds it: int64 checked and narrowed, in whole words."""
        value = self.graph.values[self.graph.inputs[position]]
        dtype = value.dtype if isinstance(value, TensorValue) else "int64"
        if array.dtype == np.int64 and array.size:
            check_int32(self.specs[position].name, int(array.min()), int(array.max()))
        return whole_words(array.astype(_on_gpu(dtype), copy=False))


def _shader(step: Step) -> Shader:
    return step.dispatch.kernel.shader(step.dispatch.halves)


def _on_gpu(dtype: str) -> str:
    """What an element is in a buffer, as NumPy calls it."""
    return "int32" if dtype == "int64" else dtype
