"""A graph on a GPU: built once at its max dims, run at any level.

Build: plan at the max dims, plan memory, make buffers, upload constants, make the pipelines and bind
groups that levels take. A run writes inputs and changed SymInts, replays its plan, reads outputs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from hightide.errors import DeviceError, HightideError, UnsupportedError
from hightide.gpu.device import Device
from hightide.gpu.memory import gpu_bytes, plan_memory
from hightide.gpu.pipelines import PARAMS_SIZE, SYMINT_SLOTS, BindGroup, Pipeline, pipelines
from hightide.gpu.recorder import Command, Copy, Recorder, Recording
from hightide.gpu.upload import upload
from hightide.graph.graph import Graph
from hightide.graph.symbols import Env, Sym, evaluate
from hightide.graph.values import TensorValue
from hightide.levels import (
    InputElements,
    InputSpec,
    Levels,
    MaxElements,
    check_count,
    check_int32,
    check_run,
    graph_inputs,
    live_symint,
)
from hightide.ops.contract import GPU_TYPE, Binding, Scratch, Tensor
from hightide.plan import Plan, Planner, Step

PARAMS_BLOCKS = 4096  # distinct parameter blocks kept at once: 1 MiB


@dataclass
class ReadyPlan:
    """A plan with its recording, and the SymInts it leaves to each run."""

    plan: Plan
    recording: Recording
    symints: np.ndarray  # by slot; those the level decides are filled in
    live_symints: list[tuple[int, Sym]]  # (slot, formula)


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
    ) -> None:
        self.graph = graph
        self.device = device
        self.name = device.adapter.name
        self.counters = Counters()
        self.specs = graph_inputs(
            graph,
            dynamic if dynamic is not None else [True] * len(graph.inputs),
            names if names is not None else [f"in{n}" for n in range(len(graph.inputs))],
        )
        self.planner = Planner(graph, scratch_limit=device.max_binding)
        if len(self.planner.slots) > SYMINT_SLOTS:
            raise UnsupportedError(f"the program has {len(self.planner.slots)} SymInts; {SYMINT_SLOTS} is the most")
        self.levels: Levels[ReadyPlan] = Levels(self.planner, self._prepare, max_levels)
        self._pipelines = pipelines(device)
        self._bound: dict[tuple[Any, ...], tuple[Pipeline, BindGroup]] = {}  # by kernel and tensors: its bind group

        max_plan = self.planner.plan_max(MaxElements())
        probes = [max_plan, *_probe(self.planner, self.specs, bool(max_plan.pins))]
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
        self._params = device.buffer(PARAMS_BLOCKS * PARAMS_SIZE, "UNIFORM|COPY_DST", "parameters")
        self._params_at: dict[tuple[Any, ...], int] = {}  # by kernel and parameters: their place in the arena
        self._new_params: list[bytes] = []  # blocks still to be written
        self._symint_buffer = device.buffer(SYMINT_SLOTS * 4, "UNIFORM|COPY_DST", "SymInts")
        self._symints_written = np.zeros(len(self.planner.slots), np.int32)
        readback = sum(gpu_bytes(v.dtype, v.dims) + 16 for v in self._outputs())
        self._recorder = Recorder(device, readback)
        self._upload_constants()
        for plan in probes:
            self._prepare(plan)
        device.flush()

    # ---- running

    def run(self, given: Sequence[Any]) -> list[np.ndarray]:
        """Outputs at the live dims of `given`."""
        inputs, ready, env = self._ready(given)
        check_run(ready.plan, inputs, self.specs, env)
        narrowed = [_narrow(array, spec) for array, spec in zip(inputs, self.specs, strict=True)]
        symints = self._live_symints(ready, env)
        ready.recording.size_grids(env)
        # Everything is checked: from here on bytes are written.
        self._write_symints(symints)
        for id, array in zip(self.graph.inputs, narrowed, strict=True):
            if array.size and id in self._own:
                self._recorder.write(self._own[id], 0, array)
        self._recorder.submit(ready.recording)
        self._recorder.encode_ahead(ready.recording)
        data = iter(self._recorder.read(ready.recording.copies))
        self.counters.runs += 1
        return [self._output(id, ready.plan, env, data) for id in self.graph.outputs]

    def level(self, given: Sequence[Any]) -> tuple[list[np.ndarray], Plan, Env]:
        """The inputs as arrays, the plan of their level, and the input elements that SymInts read."""
        inputs, ready, env = self._ready(given)
        return inputs, ready.plan, env

    def _ready(self, given: Sequence[Any]) -> tuple[list[np.ndarray], ReadyPlan, Env]:
        check_count(self.specs, given)
        inputs = [spec.array(value) for spec, value in zip(self.specs, given, strict=True)]
        env = InputElements(inputs, self.specs)
        return inputs, self.levels.find(tuple(array.shape for array in inputs), env), env

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

    def poison(self) -> None:
        """Fill all that a run must write before it reads with NaN: a stale read then shows in the outputs."""
        for buffer in (*self._shared, *(self._own[id] for id in self.graph.inputs if id in self._own)):
            self.device.write(buffer, 0, np.full(buffer.size // 4, np.nan, np.float32))

    def device_bytes(self) -> dict[str, int]:
        """GPU memory by kind."""
        state = self.planner.aliases.state
        return {
            "weights": sum(n for id, n in self.memory.own.items() if id not in state and id not in self.graph.inputs),
            "state": sum(n for id, n in self.memory.own.items() if id in state),
            "inputs": sum(n for id, n in self.memory.own.items() if id in self.graph.inputs),
            "activations": sum(self.memory.shared_sizes),
            "parameters": self._params.size + self._symint_buffer.size,
            "readback": self._recorder.readback.size,
        }

    # ---- building

    def _prepare(self, plan: Plan) -> ReadyPlan:
        for scratch, size in plan.scratch_sizes.items():
            if size > self.scratch.get(scratch, 0):
                raise DeviceError(
                    f"op {scratch.call} needs {size} bytes of scratch; {self.scratch.get(scratch, 0)} were built"
                )
        commands = self._commands(plan)
        if self._new_params:  # new blocks are neighbours: one write
            data = b"".join(self._new_params)
            self.device.write(self._params, len(self._params_at) * PARAMS_SIZE - len(data), data)
            self.counters.param_bytes += len(data)
            self._new_params.clear()
        symints = np.zeros(len(self.planner.slots), np.int32)
        live = []
        for id, expr in plan.symints.items():
            slot = self.planner.slots[id]
            if isinstance(expr, Sym):
                live.append((slot, expr))
            else:
                symints[slot] = live_symint(expr, {})
        return ReadyPlan(plan, Recording(commands, self._copies(plan)), symints, live)

    def _commands(self, plan: Plan) -> list[Command]:
        try:
            return [self._command(step) for step in plan.steps]
        except ParamsFull:  # drop every plan and start the arena anew
            self._recorder.forget()
            self.levels.clear()
            self._params_at.clear()
            self._new_params.clear()
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
            pipeline = self._pipelines.get(dispatch.kernel, len(dispatch.reads), len(dispatch.writes))
            buffers = [self._buffer(binding) for binding in bindings]
            bound = pipeline, self._pipelines.bind(pipeline, self._params, self._symint_buffer, buffers)
            self._bound[key] = bound
        # Layers share their parameters. A kernel's parameters have fixed types, so equal ones are the same bytes.
        params = (dispatch.kernel, dispatch.params)
        offset = self._params_at.get(params)
        if offset is None:
            if len(self._params_at) == PARAMS_BLOCKS:
                raise ParamsFull
            offset = self._params_at[params] = len(self._params_at) * PARAMS_SIZE
            self._new_params.append(pack_params(dispatch.params))
        pipeline, group = bound
        return Command(pipeline, group, offset, dispatch.groups, step.call)

    def _copies(self, plan: Plan) -> list[Copy]:
        copies, offset = [], 0
        for value in self._outputs():
            nbytes = gpu_bytes(value.dtype, plan.dims.get(value.id, value.dims))
            if nbytes:
                copies.append(Copy(self._tensor_buffer(value.id), nbytes, offset))
                offset += -(-nbytes // 16) * 16
        return copies

    def _buffer(self, binding: Binding) -> Any:
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

    def _upload_constants(self) -> None:
        for id in self._own:
            self._upload(id)

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
        on_gpu = {"f32": "float32", "i32": "int32", "u8": value.dtype}[GPU_TYPE[value.dtype]]
        count = int(np.prod(dims))
        array = np.frombuffer(next(iter(data)), on_gpu, count).reshape(dims)
        return array.astype(value.host_dtype)  # a copy: the caller may write to it


class ParamsFull(Exception):
    """The parameter arena has no place left."""


def pack_params(params: Sequence[int | float | tuple[int, ...]]) -> bytes:
    """Parameters as a 256-byte block: 32-bit words; a tuple takes two `vec4`s, aligned to 16 bytes."""
    words = b""
    for param in params:
        if isinstance(param, tuple):
            words += b"\0" * (-len(words) % 16)
            words += struct.pack("<8I", *(p & 0xFFFFFFFF for p in param), *(0,) * (8 - len(param)))
        elif isinstance(param, float):
            words += struct.pack("<f", param)
        else:
            words += struct.pack("<I", param & 0xFFFFFFFF)
    assert len(words) <= PARAMS_SIZE, "a kernel's parameters exceed their block"
    return words.ljust(PARAMS_SIZE, b"\0")


def _narrow(array: np.ndarray, spec: InputSpec) -> np.ndarray:
    """An input as the GPU holds it: int64 checked and narrowed, halves widened, bytes padded to words."""
    kind = GPU_TYPE[spec.dtype]
    if kind == "f32":
        return array.astype(np.float32, copy=False)
    if kind == "i32":
        if array.itemsize > 4 and array.size:
            check_int32(spec.name, int(array.min()), int(array.max()))
        return array.astype(np.int32, copy=False)
    return np.pad(array.reshape(-1).view(np.uint8), (0, -array.size % 4))


# Live sizes at which routes change or may change; with two or three dims that vary, the few in all combinations.
LIVE = (1, 2, 3, 4, 5, 8, 16, 17, 32, 64, 128, 256, 512, 1024)
FEW = (1, 2, 3, 5)


def _probe(planner: Planner, specs: Sequence[InputSpec], pinned: bool) -> list[Plan]:
    """Plans at levels that meet every route, so that all of them are made at build.

    The file does not say which dims of an input are dynamic: dims of one size vary together, and with them
    the integers that shapes are made from (`pinned`: there are such); a level that some op refuses is not one.
    """
    plans: dict[tuple[Any, ...], Plan] = {}

    def plan(live: dict[int, int], value: int) -> bool:
        dims = tuple(tuple(live.get(d, d) if s.dynamic else d for d in s.dims) for s in specs)
        key = (dims, value if pinned else 0)
        try:
            plans[key] = plans.get(key) or planner.plan(dims, MaxElements(value))
        except HightideError:
            return False
        return True

    sizes = sorted({d for spec in specs if spec.dynamic for d in spec.dims if d > 1})
    varying = [size for size in sizes if any([plan({size: min(n, size)}, min(n, size)) for n in LIVE])]
    for n in LIVE:
        plan({size: min(n, size) for size in varying}, n)
    if 2 <= len(varying) <= 3:
        for few in product(FEW, repeat=len(varying)):
            plan({size: min(n, size) for size, n in zip(varying, few, strict=True)}, few[0])
    return list(plans.values())
