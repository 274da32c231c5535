"""A graph on a GPU: built once at its max dims, run at any level.

A build plans the max dims and the levels that are likely to be met, allocates memory, uploads constants and makes the
pipelines and bind groups of those levels. A run writes inputs and changed SymInts, replays its plan, reads outputs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from hightide.errors import DeviceError, DeviceLostError, HightideError, TooLargeError
from hightide.fuse.half_storage import held
from hightide.fuse.large_constants import split_large
from hightide.gpu.device import Device, Region, open_device
from hightide.gpu.params import ParamsFull
from hightide.gpu.recorder import Recorder
from hightide.gpu.recording import Recording, Submission, Watch
from hightide.gpu.timestamps import TimedRecorder, Timing
from hightide.graph.graph import Graph, OpCall
from hightide.graph.symbols import Element, Env, evaluate
from hightide.graph.values import Dims, TensorValue
from hightide.ops.kernel import Scratch
from hightide.ops.storage import gpu_bytes
from hightide.planning.levels import InputElements, Levels, check_run, graph_inputs
from hightide.planning.planner import Plan, Planner
from hightide.runtime.debug_checks import Checker, OddFinder, debugging
from hightide.runtime.device_routes import choices_for
from hightide.runtime.ready_plans import ReadyPlan, ReadyPlans, input_items, readback_bytes
from hightide.runtime.room import NoRoomError, gpu_needs, ran_out
from hightide.runtime.session import NONE_FED, BaseSession, Fed, Feed, RowCopies, Session, Want
from hightide.runtime.session_inputs import SessionInputs
from hightide.runtime.session_memory import Constants, SessionMemory
from hightide.runtime.session_plan import BuildLevels, SessionPlan, plan_session
from hightide.runtime.step_block import SYMINTS
from hightide.runtime.words import from_words

Opened = TypeVar("Opened", bound="GpuSession")


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
    """What a session did so far. A steady step adds a run, its inputs and outputs, and a few bytes of SymInts."""

    runs: int = 0
    input_bytes: int = 0
    symint_bytes: int = 0
    param_bytes: int = 0
    read_bytes: int = 0

    @property
    def written_bytes(self) -> int:
        return self.input_bytes + self.symint_bytes + self.param_bytes


class GpuSession(BaseSession):
    """Runs one graph on one device.

    A signal's handler may raise at any point of a call. What it tore is mended by the next one: each part knows what it
    left unknown (the recorder a mapped buffer, the SymInts and parameters what was written last).

    To look on, `launch` takes a `watch` that is told of each op, `timed` times every dispatch, and `memory` reads and
    writes any tensor.
    """

    def __init__(
        self,
        graph: Graph,
        device: Device,
        dynamic: Sequence[bool] | None = None,
        names: Sequence[str] | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
        choices: Mapping[str, str] | None = None,
        f16: bool | None = None,
        half_caches: bool = False,
        levels: BuildLevels = None,
    ) -> None:
        """`choices` forces routes, by the name of the choice; `levels` are those to be ready for, else guesses.

        `f16` says whether float16 tensors are held as halves (if the adapter can; HIGHTIDE_F16=0 is another no),
        `half_caches` whether KV caches are too, whatever the graph says.
        """
        super().__init__()
        self.graph = split_large(held(graph, device.traits, f16, half_caches), device.max_binding)
        self.device, self.name = device, device.adapter.name
        self.specs = graph_inputs(self.graph, dynamic, names)
        self.planner = Planner(self.graph, scratch_limit=device.max_binding, choices=choices_for(device, choices))
        self._inputs = SessionInputs(self.graph, self.specs)
        self._build_levels = levels
        self._constants = Constants()
        self.begin(progress)

    def begin(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Make what is a session's own."""
        self.levels: Levels[ReadyPlan] = Levels(self.planner, self.max_levels)
        self.counters = Counters()
        self._guard = _Guard(self)
        self._launched: list[Ticket] = []
        self._last_elements: dict[Element, int] = {}
        self._start(progress)

    def sibling(self: Opened) -> Opened:
        """One more session over this one's constants, with state, inputs and activations of its own."""
        self.check_open()
        with self.lock, self._guard:
            other = copy(self)
            BaseSession.__init__(other)
            other.begin()
            return other

    def _start(self, progress: Callable[[int, int], None] | None = None) -> None:
        self._built = False
        try:
            planned = self._planned()
            self.levels.planner = self.planner
            try:
                self._build(planned, progress)
            except TooLargeError as error:
                raise self._no_room(planned, error) from error
        except DeviceError as error:
            raise self.told_apart(error) from None
        self._built = True

    def _no_room(self, planned: SessionPlan, error: TooLargeError) -> NoRoomError:
        """The error with what the session needs; what it has made so far is freed."""
        if isinstance(error, NoRoomError):
            return error
        self.memory.close()
        return ran_out(self.name, gpu_needs(self.graph, self.planner.aliases, planned.memory), error)

    def _planned(self) -> SessionPlan:
        """What is built; a session that proves its kernels may take another planner."""
        return plan_session(self.planner, self.specs, self._build_levels)

    def _build(self, planned: SessionPlan, progress: Callable[[int, int], None] | None) -> None:
        self.memory = SessionMemory(self.device, self.graph, self.planner.aliases, planned.memory, self._constants)
        self.scratch = planned.scratch
        self._plans = ReadyPlans(self.device, self.memory, self.planner.slots, self.scratch)
        self.recorder = Recorder(self.device, readback_bytes(self.memory), self._plans.params)
        self._plans.start(planned.plans)  # pipelines are compiled in threads meanwhile
        self.memory.upload_constants(progress)
        ready = [self._prepare(plan) for plan in planned.plans]
        if not debugging():
            smallest = min(ready, key=lambda level: input_items(level, self.graph.inputs))
            self._plans.warm_up(self.recorder, *([ready[0], smallest] if self._build_levels is None else ready))
        self.device.flush()

    # ---- running

    def run(self, given: Sequence[Any]) -> list[np.ndarray]:
        """Outputs at the live dims of `given`."""
        self.check_open()
        with self.lock, self._guard:
            if self._launched:
                raise HightideError("a run is under way: collect it before the next")
            return self._collect(self._launch(given))

    def launch(
        self, given: Sequence[Any], want: Want = None, feed: Feed = NONE_FED, watch: Watch | None = None
    ) -> Ticket:
        """Start a run; see `Session.launch`. A `watch` looks on, op by op."""
        self.check_open()
        with self.lock, self._guard:
            if len(self._launched) == len(self.recorder.readbacks):
                raise HightideError("two runs are under way: collect one before launching the next")
            ticket = self._launch(given, want, feed, watch)
            self._launched.append(ticket)
            return ticket

    def _launch(
        self, given: Sequence[Any], want: Want = None, feed: Feed = NONE_FED, watch: Watch | None = None
    ) -> Ticket:
        inputs, ready, env = self._ready(given)
        check_run(ready.plan, inputs, self.specs, env)
        narrowed = self._inputs.narrowed(given, inputs)
        symints = ready.symints_at(env)
        wanted = tuple(range(len(self.graph.outputs))) if want is None else tuple(want)
        recording = self._plans.recording(ready, wanted, feed)
        recording.size_grids(lambda groups: evaluate(groups, env))
        # Everything is checked: from here on bytes are written.
        if watch is None and debugging():
            fed = [id for id, value in zip(self.graph.inputs, given, strict=True) if isinstance(value, Fed)]
            watch = Checker(self.planner, self.memory, ready.plan, env, fed)
        if watch is not None:
            self.memory.step.forget_all()  # who looks on may write
        self.recorder.expect(recording if watch is None else None)
        self._plans.params.restore()
        of_inputs, of_symints = self._inputs.write(self.memory, self.recorder, narrowed, symints, feed)
        self.counters.input_bytes += of_inputs
        self.counters.symint_bytes += of_symints
        if watch is None:
            foreseen = self._foreseen(env)
            submission = self.recorder.submit(recording, lambda groups: evaluate(groups, foreseen))
        else:
            submission = self.recorder.submit_watched(recording, watch)
        self.counters.runs += 1
        return Ticket(submission, recording, ready.plan, env, wanted)

    def collect(self, ticket: Ticket) -> list[np.ndarray]:
        """Wait for a run and bring back the outputs that it was launched for."""
        self.check_open()
        with self.lock, self._guard:
            if not self._launched or self._launched[0] is not ticket:
                raise HightideError("runs are collected once, in the order they were launched in")
            self._launched.pop(0)
            return self._collect(ticket)

    def abandon(self) -> None:
        """Forget the runs that are under way: they end, and nobody collects them."""
        self.check_open()
        with self.lock:
            self._launched.clear()

    def run_into(self, given: Sequence[Any], to: Session, position: int, row: int) -> None:
        """Run, and put the first output into an input of another session; see `Session.run_into`."""
        id = self.graph.outputs[0]
        value = self.graph.values[id]
        if not isinstance(to, GpuSession) or not isinstance(value, TensorValue) or not to.takes(position, self, value):
            to.fill_rows(position, row, self.run(given)[0])
            return
        with self.lock:  # nobody else's run may come between
            dims = self.level(given)[1].dims.get(id, value.dims)
            to.check_rows(position, row, dims)
            ticket = self.launch(given, want=())
            to.copy_in(position, row, self.memory.region(id), dims)
            self.collect(ticket)

    def takes(self, position: int, source: GpuSession, value: TensorValue) -> bool:
        """Whether rows of an input can be copied on the device: as whole words, from this output of another session."""
        held = self.memory.tensor(self.graph.inputs[position])
        return self.device is source.device and held.dtype == value.dtype == "float32"

    def copy_in(self, position: int, row: int, source: Region, dims: Dims) -> None:
        """Copy what lies on this device to rows of an input."""
        self.check_open()
        with self.lock, self._guard:
            size = self.specs[position].dims[1] * 4
            count = self.check_rows(position, row, dims)
            id = self.graph.inputs[position]
            target = self.memory.region(id)
            self.memory.step.forget(id)
            at = target.offset + row * size
            self.device.copy_parts([(source.buffer, source.offset, target.buffer, at, count * size)])

    def fill_rows(self, position: int, row: int, rows: np.ndarray) -> None:
        """Write rows of an input that runs are given `Fed` for."""
        self.check_open()
        with self.lock, self._guard:
            self.check_rows(position, row, rows.shape)
            id = self.graph.inputs[position]
            self.memory.write(id, rows, row * gpu_bytes(self.memory.tensor(id).dtype, self.specs[position].dims[1:]))

    def _collect(self, ticket: Ticket) -> list[np.ndarray]:
        data = self.recorder.read(ticket.recording.copies, ticket.submission)
        self.counters.read_bytes += sum(map(len, data))
        remaining = iter(data)
        return [self._output(self.graph.outputs[n], ticket.plan, ticket.env, remaining) for n in ticket.want]

    def first_odd(self, given: Sequence[Any]) -> OpCall | None:
        """Run op by op, and give the first one whose output has NaN or +infinity."""
        watch = OddFinder(self.memory, self.level(given)[1])
        self.collect(self.launch(given, watch=watch))
        return watch.found

    @contextmanager
    def timed(self, timer: TimedRecorder | None = None) -> Iterator[TimedRecorder]:
        """Runs meanwhile are timed: when each dispatch began and ended, and what the host did.

        with session.timed() as timer:
            timer.prepare()
            session.run(inputs)
            timer.times().durations, timer.spans
        """
        self.check_open()
        timer = self.timer() if timer is None else timer
        untimed = self.recorder
        untimed.forget()
        self.recorder = timer
        try:
            yield timer
        finally:
            if self.recorder is timer:  # else the device was lost, and the session has another one
                self.recorder = untimed

    def timer(self, timing: Timing | None = None) -> TimedRecorder:
        """For `timed`, to time many runs with one; `timing` is a coarser way than the adapter has."""
        self.check_open()
        return TimedRecorder(self.device, self.recorder.readbacks[0].size, self._plans.params, timing)

    # ---- levels

    def level(self, given: Sequence[Any]) -> tuple[list[np.ndarray], Plan, Env]:
        """The inputs as arrays, the plan of their level, and the input elements that SymInts read."""
        self.check_open()
        with self.lock, self._guard:
            inputs, ready, env = self._ready(given)
            return inputs, ready.plan, env

    def recording(self, given: Sequence[Any]) -> Recording:
        """The commands of the level of these inputs, which every run at it replays."""
        self.check_open()
        with self.lock, self._guard:
            return self._ready(given)[1].recording

    def find_level(self, dims: tuple[Dims, ...], env: Env) -> ReadyPlan:
        """The plan of a level, found or made: inputs of these dims, with these elements where shapes need them."""
        with self.lock, self._guard:
            return self._find_level(dims, env)

    # ---- state

    def reset(self) -> None:
        """Put mutable state (KV caches) back to what the program says it is at the start."""
        self.check_open()
        with self.lock, self._guard:
            self.memory.reset()

    def snapshot(self) -> Any:
        """Keep a copy of the state on the GPU, for `restore`; one is kept, the last."""
        self.check_open()
        with self.lock, self._guard:
            return self.memory.snapshot()

    def restore(self, snapshot: Any) -> None:
        self.check_open()
        with self.lock, self._guard:
            self.memory.restore(snapshot)

    def read_state(self) -> list[np.ndarray]:
        """Mutable state as arrays, in a fixed order."""
        self.check_open()
        with self.lock, self._guard:
            return [self.memory.read(id) for id in self.memory.state]

    def write_state(self, arrays: Sequence[np.ndarray]) -> None:
        self.check_open()
        with self.lock, self._guard:
            for id, array in zip(self.memory.state, arrays, strict=True):
                self.memory.write(id, array)
            self.device.flush()

    def copy_rows(self, copies: RowCopies) -> None:
        """Copy rows of every state tensor [1, C, ...] on the GPU, behind the runs under way."""
        self.check_open()
        with self.lock, self._guard:
            self.memory.copy_rows(copies)

    def read_rows(self, first: int, count: int) -> list[np.ndarray]:
        """Rows of every state tensor, in the order of `read_state`."""
        self.check_open()
        with self.lock, self._guard:
            return self.memory.read_rows(first, count)

    def write_rows(self, first: int, arrays: Sequence[np.ndarray]) -> None:
        self.check_open()
        with self.lock, self._guard:
            self.memory.write_rows(first, arrays)

    def poison(self) -> None:
        """Fill all that a run must write before it reads with NaN: a stale read then shows in the outputs."""
        self.check_open()
        with self.lock, self._guard:
            self.memory.poison()

    # ---- memory

    def add_scratch(self, sizes: Mapping[Scratch, int]) -> None:
        """Room for ops that need scratch only at a level or on a route which was not met when the session was built."""
        new = {scratch: size for scratch, size in sizes.items() if size > self.scratch.get(scratch, 0)}
        if new:
            self.memory.add_scratch(new)
            self.scratch.update(new)
            self._plans.forget_bound(new)

    def device_bytes(self) -> dict[str, int]:
        """GPU memory by kind."""
        self.check_open()
        return {
            **self.memory.bytes_by_kind(),
            "parameters": self._plans.params.buffer.size + self.memory.step.regions[SYMINTS].size,
            "readback": sum(buffer.size for buffer in self.recorder.readbacks),
        }

    def close(self) -> None:
        """Wait for what runs and free all GPU memory at once; every later call is refused."""
        self.device.adapter.check_process()
        with self.lock:
            if self.closed:
                return
            super().close()
            with suppress(DeviceError):
                self.device.wait()
            self._free()

    def _free(self) -> None:
        """Let go of all GPU memory; of a lost device too, which may not do it by itself."""
        self._launched.clear()
        self.levels.clear()
        self.recorder.close()
        self._plans.close()
        self.memory.close()

    def recover(self) -> None:
        """Build anew on a device that is opened again: constants from the file, state as at the start."""
        self.check_open()
        with self.lock:
            if not self._built or self.device.lost:
                self._built = False
                self._free()
                self.device = open_device(self.device.adapter)
                self._start()

    def told_apart(self, error: DeviceError) -> DeviceError:
        """The error, as a `DeviceLostError` if that is why."""
        if isinstance(error, DeviceLostError) or not self.device.lost:
            return error
        return DeviceLostError(f"the device {self.name} was lost ({error})")

    def check_open(self) -> None:
        self.device.adapter.check_process()
        super().check_open()

    def check_ready(self) -> None:
        self.check_open()
        if not self._built:
            raise DeviceLostError(f"the device {self.name} was lost, and this session was not built again")

    # ---- one step

    def _ready(self, given: Sequence[Any]) -> tuple[list[np.ndarray], ReadyPlan, Env]:
        inputs = self._inputs.arrays(given)
        env = InputElements(inputs, self.specs)
        with self.recorder.span("plan"):
            ready = self._find_level(tuple(array.shape for array in inputs), env)
        return inputs, ready, env

    def _find_level(self, dims: tuple[Dims, ...], env: Env) -> ReadyPlan:
        """In the session's turn; one that proves its kernels proves those of a new level here."""
        return self.levels.find(dims, env, self._prepare)

    def _prepare(self, plan: Plan) -> ReadyPlan:
        self.add_scratch(plan.scratch_sizes)
        try:
            ready = self._plans.prepare(plan)
        except ParamsFull:  # drop every plan and start anew
            self.recorder.forget()
            self.levels.clear()
            ready = self._plans.prepare_anew(plan)
        self.counters.param_bytes += self._plans.params.write()
        return ready

    def _foreseen(self, env: Env) -> Env:
        """The input elements of the next step, if they go on as they did: a position grows by one."""
        foreseen = {element: 2 * value - self._last_elements.get(element, value) for element, value in env.items()}
        self._last_elements = dict(env)
        return foreseen

    def _output(self, id: int, plan: Plan, env: Env, data: Iterator[bytes]) -> np.ndarray:
        value = self.graph.values[id]
        if not isinstance(value, TensorValue):
            return np.asarray(evaluate(plan.symints[id], env))
        dims = plan.dims.get(id, value.dims)
        if 0 in dims:
            return np.zeros(dims, value.host_dtype)
        return from_words(next(data), value.dtype, dims).astype(value.host_dtype)  # a copy: the caller may write to it


class _Guard:
    """Around what a session does in its turn: it may have been closed meanwhile, its device may be lost."""

    def __init__(self, session: GpuSession) -> None:
        self._session = weakref.ref(session)  # a session that nobody holds is freed at once

    def __enter__(self) -> None:
        session = self._session()
        assert session is not None
        session.check_ready()

    def __exit__(self, _: Any, error: BaseException | None, traceback: Any) -> None:
        session = self._session()
        if isinstance(error, DeviceError) and session is not None:
            raise session.told_apart(error) from None
