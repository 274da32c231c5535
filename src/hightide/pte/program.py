"""Programs: load a file, build a method once, call it at any live shape."""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hightide.errors import DeviceLostError, HightideError, InputError, UnsupportedError, reading
from hightide.formats.instructions import DelegateCall, KernelCall
from hightide.formats.program_file import EValue, MethodFile, ProgramFile, TensorSpec
from hightide.formats.pte import read_program
from hightide.graph.aliases import check_order
from hightide.graph.graph import Graph, GraphFile
from hightide.graph.values import TensorValue
from hightide.notebook import table
from hightide.ops.arrays import numpy_dtype
from hightide.ops.binding import bind_graph
from hightide.ops.choices import check_routes
from hightide.option_checks import check_path, checked_list
from hightide.planning.explain import Explanation, Explanations, explain
from hightide.pte.delegates import DELEGATE_IDS, calls_of, read_delegate
from hightide.pte.interpreter import Interpreter, Observer, PartCall, Run, differ_by_ones
from hightide.pte.kernel_calls import is_host_work
from hightide.pte.method_info import MethodInfo, constant_result, describe_method, describe_spec, is_constant
from hightide.pte.planned_views import with_planned_views
from hightide.pte.scaled_norms import with_row_weights
from hightide.pte.support import refusal
from hightide.pte.unread_arguments import without_unread
from hightide.pte.whole_method import whole_method
from hightide.pte.written_states import with_states_stored
from hightide.runtime.build import SessionOptions, build_session, choose_device, named_device
from hightide.runtime.closing import Closing
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.session import Session
from hightide.units import counted

if TYPE_CHECKING:
    from hightide.gpu.device import Device

Key: TypeAlias = tuple[str, int]  # a method's name and the number of one of its delegates
__all__ = ["Method", "MethodInfo", "Program", "load"]


def load(
    path: str | os.PathLike[str],
    device: str | int | None = None,
    data: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    *,
    routes: Mapping[str, str] | None = None,
    whole: bool = True,
) -> Program:
    """Reads a `.pte` file, and the `.ptd` files in `data`; nothing is planned or sent to a GPU yet.

    `device` is "cpu" (the NumPy references), or an adapter by index or part of its name; by default the
    HIGHTIDE_DEVICE environment variable, else the best adapter, else the references. `routes` forces routes by the
    name of the choice, such as {"linear.gemv": "split"}. A method's delegates, and the ops that the exporter left
    between them, are joined into one graph where that can be; `whole=False` runs them one by one, as the file has them.
    """
    check_path("path", path)
    data_files = [data] if isinstance(data, str | os.PathLike) else checked_list("data", data, "paths of .ptd files")
    for file in data_files:
        check_path("data", file)
    device, routes = named_device(device), check_routes({} if routes is None else routes)
    with reading(path):
        return Program(read_program(path, data_files), device, routes, whole)


class Program(Closing):
    """A file's methods, on one device. `close()`, or leaving a `with` block, frees what they hold there."""

    def __init__(
        self,
        file: ProgramFile,
        device: str | int | None = None,
        routes: Mapping[str, str] | None = None,
        whole: bool = True,
    ) -> None:
        self.device = device
        self.routes = check_routes(routes or {})
        self.closed = False
        self.methods = {name: describe_method(method) for name, method in file.methods.items()}
        self.metadata = {name: constant_result(m) for name, m in file.methods.items() if is_constant(m)}
        self._built: dict[str, Method] = {}
        self._building = threading.RLock()
        delegates = _read_delegates(file)
        problem = refusal(file, delegates, on_gpu=True)
        if problem and self.gpu is None:  # the references run ops that have no GPU kernel
            problem = refusal(file, delegates, on_gpu=False)
        if problem:
            raise UnsupportedError(problem)
        file = without_unread(file, delegates)
        graphs = {key: _bound(file, key, graph) for key, graph in delegates.items()}
        self.file, self._graphs = _completed(file, graphs, whole)
        if device not in (None, "cpu"):
            self.gpu  # noqa: B018  an unknown device is refused now, not when a method is built

    def __repr__(self) -> str:
        return f"<Program {self.file.path.name}: {', '.join(self.methods)}{' (closed)' * self.closed}>"

    def method(self, name: str = "forward") -> Method:
        """The method, built at the first call: buffers, pipelines, bind groups."""
        self._check_open()
        if not isinstance(name, str) or name not in self.methods:
            raise InputError(f"{self.file.path.name} has no method {name!r}; it has {', '.join(self.methods)}")
        with self._building:
            if name not in self._built or self._built[name].closed:
                self._built[name] = self._build(name)
            return self._built[name]

    def close(self) -> None:
        """Closes every method and lets go of the file; closing twice is fine."""
        with self._building:
            self.closed = True
            for method in self._built.values():
                method.close()
            self._built.clear()
            self._graphs.clear()

    @property
    def gpu(self) -> Device | None:
        """The opened device; None for the references."""
        return choose_device(self.device)

    def single_graph(self, name: str) -> Graph | None:
        """The graph of a method that is one delegate call of its inputs and outputs, in order."""
        call = _only_call(self.file.methods[name])
        graph = None if call is None else self.delegate_graph(name, call.delegate)
        return graph if graph and len(graph.inputs) == len(self.methods[name].inputs) else None

    def delegate_graph(self, name: str, delegate: int) -> Graph:
        """The graph of one delegate that a method calls, as the file has it."""
        self._check_open()
        return self._graphs[name, delegate]

    def _check_open(self) -> None:
        if self.closed:
            raise HightideError(f"{self.file.path.name} is closed; load it again to use it")

    def _build(self, name: str) -> Method:
        method = self.file.methods[name]
        kernels = dict.fromkeys(i.op for i in method.instructions if isinstance(i, KernelCall))
        reported = [op for op in kernels if not is_host_work(op)]
        if reported:
            warnings.warn(f"method {name} runs outside its delegates, on NumPy: {', '.join(reported)}", stacklevel=3)
        info = self.methods[name]
        sessions: list[Session] = []
        try:
            for n in range(len(method.delegates)):
                sessions.append(self._session(method, info, n))
        except BaseException as error:
            for session in sessions:
                session.close()
            if isinstance(error, UnsupportedError):
                raise UnsupportedError(f"{self.file.path.name}, method {name}: {error}") from None
            raise
        return Method(self, info, method, sessions)

    def _session(self, method: MethodFile, info: MethodInfo, delegate: int) -> Session:
        graph = self._graphs.get((method.name, delegate))
        if graph is None:  # a delegate that nothing calls keeps its place in the numbering
            return CpuSession(Graph((), (), (), ()))
        ids = calls_of(method, delegate)[0].args[: len(graph.inputs)]
        names = {id: spec.name for id, spec in zip(method.inputs, info.inputs, strict=True)}
        dynamic = [isinstance(spec := method.values[id], TensorSpec) and spec.dynamic for id in ids]
        named = [names.get(id, f"value {id}") for id in ids]
        return build_session(graph, self.gpu, dynamic, named, SessionOptions(choices=self.routes))


class Method(Closing):
    """A method, built; call it with arrays, torch tensors or lists of any allowed live shape.

    Calls from several threads take turns.
    """

    def __init__(self, program: Program, info: MethodInfo, file: MethodFile, sessions: Sequence[Session]) -> None:
        self.program = program
        self.info = info
        self.name, self.inputs, self.outputs = info.name, info.inputs, info.outputs
        self.sessions = sessions
        self._file = file
        self.closed = False
        self._lock = threading.RLock()
        self._lost = ""  # why the state is gone, until `reset`
        self.interpreter = Interpreter(file, info.inputs, sessions)
        only = _only_call(file)
        self._direct = None if only is None else _direct(sessions[only.delegate], info)
        if self._direct is None:  # a run keeps a snapshot in case a later instruction fails: allocate it now
            for session in sessions:
                session.snapshot()

    def __call__(self, /, *inputs: Any, **named: Any) -> tuple[np.ndarray, ...]:
        """Outputs for these inputs, given in order, by name, or both.

        If the device is lost, the method is built again on a new one and goes on. Where it had state, this is an
        error, as is every later call until `reset`.
        """
        given = self._ordered(inputs, named)
        with self._lock:
            self._check_usable()
            run = (self._direct or self.interpreter).run
            try:
                return tuple(run(given))
            except InputError as error:
                raise self._about_empty(given, error) or error from None
            except DeviceLostError as error:
                self._recover(error)
                return tuple(run(given))

    def __repr__(self) -> str:
        return f"<Method {self.name}{self.info!r}{' (closed)' * self.closed}>"

    def _repr_html_(self) -> str:
        sides = (("takes", self.inputs), ("gives", self.outputs))
        rows = [(side, spec.name, spec.dtype, describe_spec(spec)) for side, specs in sides for spec in specs]
        where = ", ".join(dict.fromkeys(session.name for session in self.sessions)) or "NumPy"
        return table(f"method {self.name} on {where}", ("", "name", "type", "dims"), rows)

    @property
    def session(self) -> Session | None:
        """The session that is the whole method, where that is one graph."""
        return self._direct

    def sibling(self) -> Method:
        """Another one with state of its own, on the same weights."""
        self._check_open()
        return Method(self.program, self.info, self._file, [session.sibling() for session in self.sessions])

    def reset(self) -> None:
        """Forgets mutable state (KV caches and other buffers)."""
        self._check_open()
        with self._lock:
            for session in self.sessions:
                session.recover()
            self.interpreter.reset()
            self._lost = ""

    def close(self) -> None:
        """Frees what the method holds on its device; closing twice is fine. `Program.method` builds it again."""
        with self._lock:
            self.closed = True
            for session in self.sessions:
                session.close()

    def explain(self, /, *inputs: Any, **named: Any) -> Explanation | Explanations:
        """The plan for these inputs: op, route, live dims, grid, bytes, FLOPs.

        A method of several parts has to run for it, since what one gives decides the plan of the next; its
        state stays as it was.
        """
        given = self._ordered(inputs, named)
        with self._lock:
            if self._direct is not None:
                return explain(self._direct, given)
            explained = _Explained()
            self.interpreter.run(given, explained)
            return Explanations(explained.parts)

    def observe(self, inputs: Sequence[Any], observer: Observer) -> list[np.ndarray]:
        """Runs with an observer; state stays as it was."""
        self._check_open()
        with self._lock:
            self._check_usable()
            return self.interpreter.run(inputs, observer)

    @property
    def metadata(self) -> dict[str, Any]:
        """The program's constant methods, evaluated."""
        return self.program.metadata

    def device_bytes(self) -> dict[str, int]:
        """Memory on its device by kind."""
        total: Counter[str] = Counter()
        for session in self.sessions:
            total.update(session.device_bytes())
        return dict(total)

    def _check_open(self) -> None:
        if self.closed:
            name = self.program.file.path.name
            raise HightideError(f"method {self.name} of {name} is closed; Program.method builds it again")

    def _check_usable(self) -> None:
        self._check_open()  # it may have been closed while this thread waited for its turn
        if self._lost:
            raise DeviceLostError(self._lost)

    def _recover(self, error: DeviceLostError) -> None:
        """Build the sessions again on a new device; what they had kept is gone."""
        if any(session.planner.aliases.state for session in self.sessions):
            self._lost = (
                f"{error}; method {self.name} can be used again, but its state (KV caches and other buffers) is gone: "
                "call reset() and give its inputs from the start"
            )
        for session in self.sessions:
            session.recover()
        self._check_usable()

    def _about_empty(self, given: Sequence[Any], error: InputError) -> InputError | None:
        """What to say of a call that an op refused, if an input is empty where the program has room."""
        if not str(error).startswith(("op ", "instruction ")):
            return None  # about the inputs already
        for spec, value in zip(self.inputs, given, strict=True):
            dims = spec.array(value).shape
            empty = [axis for axis, (size, most) in enumerate(zip(dims, spec.dims, strict=True)) if most and not size]
            if empty:
                what = f"input {spec.name} is {list(dims)}, with 0 along dim {empty[0]}"
                return InputError(f"{what}: method {self.name} takes at least 1 there")
        return None

    def _ordered(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        """The inputs in the method's order; how many there are of unnamed ones is checked when they are read."""
        self._check_open()
        if not named:
            return inputs
        names = [spec.name for spec in self.inputs]
        for name in named:
            if name not in names:
                raise InputError(f"method {self.name} has no input {name!r}; it takes {', '.join(names) or 'none'}")
            if name in names[: len(inputs)]:
                raise InputError(f"input {name} is given twice, by position and by name")
        missing = [name for name in names[len(inputs) :] if name not in named]
        if missing:
            raise InputError(f"method {self.name} was called without {' and '.join(missing)}")
        return [*inputs, *(named[name] for name in names[len(inputs) :])]


class _Explained(Observer):
    """Explains every delegate call."""

    def __init__(self) -> None:
        self.parts: list[Explanation] = []

    def delegate(self, call: PartCall, values: Sequence[Any], run: Run) -> None:
        self.parts.append(explain(call.session, call.inputs))
        run()


def _read_delegates(file: ProgramFile) -> dict[Key, GraphFile]:
    """The graphs that some instruction calls, by method and number; other backends' are left out."""
    graphs: dict[Key, GraphFile] = {}
    for method in file.methods.values():
        for call in method.instructions:
            if isinstance(call, DelegateCall) and method.delegates[call.delegate].id in DELEGATE_IDS:
                key = method.name, call.delegate
                if key not in graphs:
                    graphs[key] = read_delegate(file, method, call.delegate)
    return graphs


def _bound(file: ProgramFile, key: Key, graph: GraphFile) -> Graph:
    """A delegate's graph with its arguments named, and inputs and outputs of the types that the method passes."""
    name, delegate = key
    method = file.methods[name]
    try:
        bound = with_states_stored(with_row_weights(bind_graph(graph)))
        for call in calls_of(method, delegate):
            _check_passed(graph, len(call.args))
    except UnsupportedError as error:
        raise UnsupportedError(f"{file.path.name} ({name}, delegate {delegate}): {error}") from None
    check_order(bound)
    return _with_host_types(bound, [method.values[id] for id in calls_of(method, delegate)[0].args])


def _completed(file: ProgramFile, graphs: Mapping[Key, Graph], whole: bool) -> tuple[ProgramFile, dict[Key, Graph]]:
    """The program with the views that its file leaves out and, if `whole`, each method in as few graphs as can be."""
    methods: dict[str, MethodFile] = {}
    made: dict[Key, Graph] = {}
    for name, method in file.methods.items():
        own = {number: graph for (of, number), graph in graphs.items() if of == name}
        method = with_planned_views(method, own)
        methods[name], own = whole_method(method, own) if whole and not _only_call(method) else (method, own)
        made |= {(name, number): graph for number, graph in own.items()}
    return replace(file, methods=methods), made


def _check_passed(graph: GraphFile, passed: int) -> None:
    """Refuse a call that does not pass a value for each input and output of a delegate."""
    more = len(graph.inputs) + len(graph.outputs) - passed
    if 0 < more < len(graph.outputs):
        raise UnsupportedError(
            f"it gives {len(graph.outputs)} values, of which the program takes {len(graph.outputs) - more}: the others "
            "are new values of buffers (such as the states of convolutions), and the file does not say of which; "
            'export it with VulkanPartitioner({"alias_buffer_mutations": True}), which writes them in place, or make '
            "the buffers inputs and outputs of the model"
        )
    if more < 0:
        given, read = passed - len(graph.outputs), len(graph.inputs)
        raise UnsupportedError(f"it is passed {counted(given, 'value')} and reads {read}: the file does not say which")
    if more:
        takes = f"{counted(len(graph.inputs), 'input')} and {counted(len(graph.outputs), 'output')}"
        raise UnsupportedError(f"it has {takes}, but is called with {counted(passed, 'value')}")


def _with_host_types(graph: Graph, passed: Sequence[EValue]) -> Graph:
    """int64 where the method passes int64 and the graph has int32, and so on."""
    values = list(graph.values)
    for id, spec in zip((*graph.inputs, *graph.outputs), passed, strict=True):
        value = values[id]
        if isinstance(value, TensorValue) and isinstance(spec, TensorSpec):
            values[id] = replace(value, host_dtype=numpy_dtype(spec.dtype))
    return replace(graph, values=tuple(values))


def _direct(session: Session, info: MethodInfo) -> Session | None:
    """The session that is the whole method, if its outputs are those that the method declares, and have their dims."""
    if len(session.graph.inputs) != len(info.inputs):  # a damaged file: what it says of a delegate is an output of it
        return None
    values = (session.graph.values[id] for id in session.graph.outputs)
    given = [value.dims if isinstance(value, TensorValue) else () for value in values]
    reshaped = any(differ_by_ones(dims, spec.dims) for dims, spec in zip(given, info.outputs, strict=True))
    return None if reshaped else session


def _only_call(file: MethodFile) -> DelegateCall | None:
    """The call of a method that is one delegate call of its inputs and outputs, in order."""
    if len(file.instructions) != 1:
        return None
    call = file.instructions[0]
    return call if isinstance(call, DelegateCall) and call.args == (*file.inputs, *file.outputs) else None
