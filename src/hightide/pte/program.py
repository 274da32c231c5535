"""Programs: load a file, build a method once, call it at any live shape."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hightide.errors import DeviceError, InputError, UnsupportedError
from hightide.formats.program_file import (
    DelegateCall,
    EValue,
    KernelCall,
    MethodFile,
    MoveCall,
    ProgramFile,
    TensorSpec,
    ValueListSpec,
)
from hightide.formats.pte import read_program
from hightide.formats.vkgraph import DELEGATE_IDS, read_graph
from hightide.fuse import fuse
from hightide.graph.graph import Graph
from hightide.graph.values import TensorValue
from hightide.ops.binding import bind_graph
from hightide.planning.levels import InputSpec, MaxElements
from hightide.planning.planner import Planner, missing_ops
from hightide.pte.interpreter import Interpreter, Observer, tensor_array
from hightide.pte.kernel_calls import find_op, is_host_work
from hightide.runtime.cpu_session import CpuSession, numpy_dtype
from hightide.runtime.session import Session


def load(
    path: str | os.PathLike[str],
    device: str | int | None = None,
    data: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
) -> Program:
    """Reads a `.pte` file, and the `.ptd` files in `data`; nothing is sent to a GPU yet.

    `device` is "cpu" (the NumPy references), or an adapter by index or part of its name; by default the
    HIGHTIDE_DEVICE environment variable, else the best adapter, else the references.
    """
    data_files = [data] if isinstance(data, str | os.PathLike) else list(data)
    return Program(read_program(path, data_files), named_device(device))


def named_device(device: str | int | None) -> str | int | None:
    """The device that the caller names, else the one that the environment does."""
    return os.environ.get("HIGHTIDE_DEVICE") or None if device is None else device


@dataclass(frozen=True)
class MethodInfo:
    """What a method takes and gives."""

    name: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[InputSpec, ...]

    def __repr__(self) -> str:
        takes = ", ".join(f"{spec.name}: {_describe(spec)}" for spec in self.inputs)
        return f"({takes}) -> {', '.join(_describe(spec) for spec in self.outputs) or 'nothing'}"


def _describe(spec: InputSpec) -> str:
    dims = [f"≤{d}" if spec.dynamic and d > 1 else str(d) for d in spec.dims]
    return f"{spec.dtype}[{', '.join(dims)}]"


class Program:
    """A file's methods, on one device."""

    def __init__(self, file: ProgramFile, device: str | int | None = None) -> None:
        self.file = file
        self.device = device
        self.methods = {name: _describe_method(method) for name, method in file.methods.items()}
        self.metadata = {name: _constant_result(m) for name, m in file.methods.items() if _is_constant(m)}
        self._built: dict[str, Method] = {}
        self._graphs: dict[tuple[str, int], Graph] = {}
        self._read_graphs()
        self._refuse_missing()
        if device not in (None, "cpu"):
            self._gpu  # noqa: B018  an unknown device is refused now, not when a method is built

    def __repr__(self) -> str:
        return f"<Program {self.file.path.name}: {', '.join(self.methods)}>"

    def method(self, name: str = "forward") -> Method:
        """The method, built at the first call: buffers, pipelines, bind groups."""
        if name not in self.methods:
            raise InputError(f"{self.file.path.name} has no method {name!r}; it has {', '.join(self.methods)}")
        if name not in self._built:
            self._built[name] = self._build(name)
        return self._built[name]

    @cached_property
    def _gpu(self) -> Any:
        """The opened device, or None for the references."""
        return choose_device(self.device)

    def single_graph(self, name: str) -> Graph | None:
        """The graph of a method that is one delegate call of its inputs and outputs, in order."""
        call = _only_call(self.file.methods[name])
        return None if call is None else self._graphs[name, call.delegate]

    def delegate_graph(self, name: str, delegate: int) -> Graph:
        """The graph of one delegate that a method calls."""
        return self._graphs[name, delegate]

    def _read_graphs(self) -> None:
        for method in self.file.methods.values():
            calls = (i for i in method.instructions if isinstance(i, DelegateCall))
            for call in calls:
                delegate = method.delegates[call.delegate]
                key = method.name, call.delegate
                if delegate.id in DELEGATE_IDS and key not in self._graphs:
                    graph = bind_graph(read_graph(delegate.processed, self.file.named_data))
                    self._graphs[key] = _with_host_types(graph, [method.values[id] for id in call.args])

    def _refuse_missing(self) -> None:
        missing = []
        for method in self.file.methods.values():
            for n, instruction in enumerate(method.instructions):
                if isinstance(instruction, KernelCall) and find_op(instruction.op) is None:
                    missing.append(f"{method.name}, instruction {n}: {instruction.op}")
            for n, delegate in enumerate(method.delegates):
                where = f"{method.name}, delegate {n}"
                if delegate.id not in DELEGATE_IDS:
                    missing.append(f"{where}: the backend {delegate.id}")
                elif (method.name, n) in self._graphs:
                    missing += [f"{where}: {op}" for op in self._missing_ops(self._graphs[method.name, n])]
        if missing:
            what = f"{self.file.path.name} needs {len(missing)} things that hightide lacks"
            raise UnsupportedError(f"{what}: {'; '.join(missing)}")

    def _missing_ops(self, graph: Graph) -> list[str]:
        """What keeps a graph from running: ops that are missing, or forms of them (a dtype, a rank)."""
        missing = _obstacles(graph, dispatch=True)
        # Only a program that the GPU cannot run has to know already here whether there is one.
        return _obstacles(graph, dispatch=False) if missing and self._gpu is None else missing

    def _build(self, name: str) -> Method:
        method = self.file.methods[name]
        kernels = dict.fromkeys(i.op for i in method.instructions if isinstance(i, KernelCall))
        reported = [op for op in kernels if not is_host_work(op)]
        if reported:
            warnings.warn(f"method {name} runs outside its delegates, on NumPy: {', '.join(reported)}", stacklevel=3)
        info = self.methods[name]
        sessions = []
        for n in range(len(method.delegates)):
            calls = [i for i in method.instructions if isinstance(i, DelegateCall) and i.delegate == n]
            if calls:
                sessions.append(self._session(self._graphs[name, n], calls[0], method, info))
            else:  # a delegate that nothing calls keeps its place in the numbering
                sessions.append(CpuSession(Graph((), (), (), ())))
        return Method(self, info, method, sessions)

    def _session(self, graph: Graph, call: DelegateCall, method: MethodFile, info: MethodInfo) -> Session:
        ids = call.args[: len(graph.inputs)]
        names = {id: spec.name for id, spec in zip(method.inputs, info.inputs, strict=True)}
        dynamic = [isinstance(spec := method.values[id], TensorSpec) and spec.dynamic for id in ids]
        named = [names.get(id, f"value {id}") for id in ids]
        return build_session(graph, self._gpu, dynamic, named)


class Method:
    """A method, built; call it with arrays, torch tensors or lists of any allowed live shape."""

    def __init__(self, program: Program, info: MethodInfo, file: MethodFile, sessions: Sequence[Session]) -> None:
        self.program = program
        self.name, self.inputs, self.outputs = info.name, info.inputs, info.outputs
        self.sessions = sessions
        self._interpreter = Interpreter(file, info.inputs, sessions)
        only = _only_call(file)
        self._direct = None if only is None else sessions[only.delegate]
        self._info = info
        if self._direct is None:  # a run keeps a snapshot in case a later instruction fails: allocate it now
            for session in sessions:
                session.snapshot()

    def __call__(self, *inputs: Any) -> tuple[np.ndarray, ...]:
        runner = self._direct or self._interpreter
        return tuple(runner.run(inputs))

    def __repr__(self) -> str:
        return f"<Method {self.name}{self._info!r}>"

    def _repr_html_(self) -> str:
        from hightide.notebook import table

        sides = (("takes", self.inputs), ("gives", self.outputs))
        rows = [(side, spec.name, spec.dtype, _describe(spec)) for side, specs in sides for spec in specs]
        where = ", ".join(dict.fromkeys(session.name for session in self.sessions)) or "NumPy"
        return table(f"method {self.name} on {where}", ("", "name", "type", "dims"), rows)

    def reset(self) -> None:
        """Forgets mutable state (KV caches and other buffers)."""
        self._interpreter.reset()

    def explain(self, *inputs: Any) -> Any:
        """The plan for these inputs: op, route, live dims, grid, bytes, FLOPs.

        A method of several parts has to run for it, since what one gives decides the plan of the next; its
        state stays as it was.
        """
        from hightide.planning.explain import Explanation, Explanations, explain

        if self._direct is not None:
            return explain(self._direct, inputs)
        parts: list[Explanation] = []
        self.observe(inputs, lambda session, given: parts.append(explain(session, given)))
        return Explanations(parts)

    def observe(self, inputs: Sequence[Any], observer: Observer) -> None:
        """Runs with `observer` told of every delegate call before it is made; state stays as it was."""
        self._interpreter.run(inputs, observer)

    @property
    def metadata(self) -> dict[str, Any]:
        """The program's constant methods, evaluated."""
        return self.program.metadata


def _obstacles(graph: Graph, dispatch: bool) -> list[str]:
    if missing := missing_ops(graph, dispatch):
        return missing
    try:
        Planner(graph, dispatch=dispatch).plan_max(MaxElements())
    except UnsupportedError as error:
        return [str(error)]
    return []


def choose_device(selector: str | int | None) -> Any:
    """The opened device that this names, or None for the NumPy references ("cpu", or no adapter at all)."""
    if selector == "cpu":
        return None
    from hightide.gpu.device import adapters, find_adapter, open_device  # wgpu takes a while to import

    try:
        usable = selector is not None or bool(adapters())
    except DeviceError:  # no driver at all
        usable = False
    if not usable:
        warnings.warn("no WebGPU adapter was found: programs run on the NumPy references", stacklevel=4)
        return None
    return open_device(find_adapter(selector))


def build_session(
    graph: Graph,
    gpu: Any,
    dynamic: Sequence[bool],
    names: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
    kv: str | None = "f32",
    choices: Mapping[str, str] | None = None,
    passes: bool = True,
) -> Session:
    """A session on a device, or on the references; `progress` is told of (bytes uploaded, bytes in all).

    `kv` "f16" holds KV caches as halves; None does so on a GPU that has them. `choices` forces routes; without
    `passes` a GPU runs the graph as the file has it.
    """
    if kv not in (None, "f16", "f32"):
        raise InputError(f"KV caches are held as f16 or f32, not {kv}")
    if kv == "f16" and (gpu is None or not gpu.traits.f16):
        raise InputError("KV caches as f16 need an adapter that has halves")
    if gpu is None:
        return CpuSession(graph, dynamic, names)
    from hightide.runtime.gpu_session import GpuSession

    half_caches = kv == "f16" or (kv is None and gpu.traits.half_caches)
    graph = fuse(graph) if passes else graph
    return GpuSession(graph, gpu, dynamic, names, progress=progress, choices=choices, half_caches=half_caches)


def _only_call(file: MethodFile) -> DelegateCall | None:
    """The call of a method that is one delegate call of its inputs and outputs, in order."""
    if len(file.instructions) != 1:
        return None
    call = file.instructions[0]
    return call if isinstance(call, DelegateCall) and call.args == (*file.inputs, *file.outputs) else None


def _with_host_types(graph: Graph, passed: Sequence[EValue]) -> Graph:
    """The graph with inputs and outputs of the types that the method passes (int64 where the graph has int32)."""
    ids = (*graph.inputs, *graph.outputs)
    if len(ids) != len(passed):
        raise UnsupportedError(f"a delegate of {len(ids)} inputs and outputs is called with {len(passed)}")
    values = list(graph.values)
    for id, spec in zip(ids, passed, strict=True):
        value = values[id]
        if isinstance(value, TensorValue) and isinstance(spec, TensorSpec):
            values[id] = replace(value, host_dtype=numpy_dtype(spec.dtype))
    return replace(graph, values=tuple(values))


def _describe_method(method: MethodFile) -> MethodInfo:
    inputs = [method.values[id] for id in method.inputs]
    names = [(spec.name if isinstance(spec, TensorSpec) else None) or f"in{n}" for n, spec in enumerate(inputs)]
    if len(inputs) == 2 and _is_int64(inputs[0], 2) and _is_int64(inputs[1], 1):  # forward of an LLM
        names = ["tokens", "input_pos"]
    outputs = [method.values[id] for id in method.outputs]
    return MethodInfo(
        method.name,
        tuple(_spec(name, value) for name, value in zip(names, inputs, strict=True)),
        tuple(_spec(f"out{n}", value) for n, value in enumerate(outputs)),
    )


def _is_int64(spec: EValue, rank: int) -> bool:
    if not isinstance(spec, TensorSpec) or spec.dtype != "int64" or len(spec.dims) != rank:
        return False
    return rank != 2 or spec.dims[0] == 1


def _spec(name: str, value: EValue) -> InputSpec:
    match value:
        case TensorSpec():
            return InputSpec(name, value.dims, numpy_dtype(value.dtype), value.dynamic)
        case bool():
            return InputSpec(name, (), "bool", False)
        case int():
            return InputSpec(name, (), "int64", False)
        case float():
            return InputSpec(name, (), "float64", False)
        case _:
            return InputSpec(name, (), "object", False)  # strings and lists: constant methods give them


def _is_constant(method: MethodFile) -> bool:
    computed = (spec for id in method.outputs if isinstance(spec := method.values[id], TensorSpec))
    moves = all(isinstance(i, MoveCall) for i in method.instructions)
    return not method.inputs and moves and all(spec.constant is not None for spec in computed)


def _constant_result(method: MethodFile) -> Any:
    values = list(method.values)
    for move in method.instructions:
        if isinstance(move, MoveCall):
            values[move.target] = values[move.source]

    def plain(value: EValue) -> Any:
        if isinstance(value, TensorSpec):
            assert value.constant is not None
            return tensor_array(value, value.constant.view())
        if isinstance(value, ValueListSpec):
            return [None if item == -1 else plain(values[item]) for item in value.items]
        return list(value) if isinstance(value, tuple) else value

    results = [plain(values[id]) for id in method.outputs]
    return results[0] if len(results) == 1 else results
