"""Runs a method's instructions over a table of its values: delegates on their sessions, kernels on NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hightide.errors import FOREIGN, DeviceError, DeviceLostError, HightideError, InputError, ProgramError
from hightide.formats.instructions import DelegateCall, FreeCall, JumpFalseCall, KernelCall, MoveCall
from hightide.formats.program_file import EValue, MethodFile, TensorSpec, ValueListSpec
from hightide.graph.values import Dims, TensorValue
from hightide.ops.arguments import named
from hightide.ops.arrays import numpy_dtype, read_array
from hightide.ops.contract import Context, Op, Tensor
from hightide.ops.portable.portable import ReferenceOp
from hightide.planning.levels import InputSpec, check_count
from hightide.pte.kernel_calls import BoundKernel, Signature, bind_kernels
from hightide.runtime.session import Session
from hightide.units import counted

MAX_INSTRUCTIONS = 1_000_000  # of one run: a damaged program may jump in circles
DELEGATE_WEIGHT = 100  # a delegate counts for so many
LARGE = 1 << 24
UNSET: Any = object()  # a value that no instruction has defined yet


Run = Callable[[], None]


@dataclass(frozen=True)
class PartCall:
    """A delegate that is about to run."""

    number: int
    session: Session
    reads: tuple[int, ...]  # values of the method
    writes: tuple[int, ...]
    inputs: list[Any]


class Observer:
    """Stands around every kernel and delegate of a run. `run` does it; `values` are the method's, before and after."""

    def kernel(self, op: type[Op], call: Signature, values: Sequence[Any], run: Run) -> None:
        run()

    def delegate(self, call: PartCall, values: Sequence[Any], run: Run) -> None:
        run()


class Interpreter:
    """One method. Its mutable buffers live here; what a delegate keeps lives in its session."""

    def __init__(self, method: MethodFile, specs: Sequence[InputSpec], sessions: Sequence[Session]) -> None:
        self.method = method
        self.specs = specs
        self.sessions = sessions
        self._kernels = bind_kernels(method)
        self._first = [_first_value(value) for value in method.values]
        self._state_ids = state_ids(method, self._kernels)
        self._torn: list[tuple[Session, Any]] = []  # sessions whose state a run may have left half changed
        self.state = self._first_state()  # mutable buffers, by value

    def run(self, given: Sequence[Any], observer: Observer | None = None) -> list[np.ndarray]:
        """Outputs for these inputs; buffers and delegates' state change only if every instruction succeeds.

        With an observer no state changes at all.
        """
        check_count(self.specs, given)
        values = list(self._first)
        for id, array in self.state.items():
            values[id] = array
        for id, spec, value in zip(self.method.inputs, self.specs, given, strict=True):
            array = spec.array(value)
            values[id] = array if isinstance(self.method.values[id], TensorSpec) else array.item()
        self._restore()
        self._torn = [(session, session.snapshot()) for session in self.sessions if session.planner.aliases.state]
        try:
            self._execute(values, observer or Observer())
            outputs = [self._output(id, values) for id in self.method.outputs]
        except BaseException:
            self._restore()
            raise
        if observer is None:
            self.state, self._torn = {id: values[id] for id in self._state_ids}, []
        self._restore()
        return outputs

    def _restore(self) -> None:
        """Undo what a run that did not succeed changed; a second signal in a row may leave this to the next run."""
        with suppress(DeviceLostError):  # a lost device has nothing to bring back; the error that told of it goes on
            for session, snapshot in self._torn:
                session.restore(snapshot)
        self._torn = []

    def _execute(self, values: list[Any], observer: Observer) -> None:
        at, count = 0, 0
        with np.errstate(all="ignore"):  # torch too goes on with infinities
            while at < len(self.method.instructions):
                count += DELEGATE_WEIGHT if isinstance(self.method.instructions[at], DelegateCall) else 1
                if count > MAX_INSTRUCTIONS:
                    raise ProgramError(f"method {self.method.name} did not end after {MAX_INSTRUCTIONS} instructions")
                at = self._step(at, values, observer)

    def reset(self) -> None:
        self._torn = []
        state = self._first_state()
        for session in self.sessions:
            session.reset()
        self.state = state

    def _step(self, at: int, values: list[Any], observer: Observer) -> int:
        """Runs instruction `at`; the index of the next one."""
        instruction = self.method.instructions[at]
        match instruction:
            case KernelCall(op=name):
                where = f"instruction {at} ({name})"
                try:
                    op, call = self._kernels[at].op, self._kernels[at].signature
                    observer.kernel(op, call, values, partial(self._run_kernel, op, call, values))
                except HightideError as error:
                    raise type(error)(f"{where}: {error}") from None
                except FOREIGN as error:  # from NumPy
                    raise InputError(f"{where}: {error}") from error
                except MemoryError as error:
                    raise DeviceError(f"{where}: {error or 'out of memory'}") from error
            case DelegateCall(delegate=delegate, args=args):
                session, inputs = self.sessions[delegate], len(self.sessions[delegate].specs)
                given = [self._argument(id, values) for id in args[:inputs]]
                part = PartCall(delegate, session, args[:inputs], args[inputs:], given)
                observer.delegate(part, values, partial(self._run_delegate, part, values))
            case MoveCall(source=source, target=target):
                values[target] = values[source]
            case JumpFalseCall(condition=condition, destination=destination):
                if not _is_true(self._argument(condition, values)):
                    return destination
            case FreeCall(value=id):
                values[id] = UNSET
        return at + 1

    def _run_kernel(self, op: type[Op], call: Signature, values: list[Any]) -> None:
        changed = {id: np.array(self._argument(id, values)) for id in call.changes}
        given = [changed[id] if id in changed else _widened(self._argument(id, values)) for id in call.reads]
        arguments = named(op, given)
        if _may_grow(given):
            self._check_outputs(op, arguments, call)
        result = op.evaluate(arguments)
        results = result if len(call.writes) != 1 or isinstance(result, tuple | list) else (result,)
        if len(results) != len(call.writes):
            raise ProgramError(
                f"the program expects {counted(len(call.writes), 'output')}, but the op gives {len(results)}"
            )
        for id, value in (*zip(call.writes, results, strict=True), *changed.items()):
            values[id] = self._fitting(id, value)

    def _check_outputs(self, op: type[Op], arguments: dict[str, Any], call: Signature) -> None:
        """Numbers that sizes may be made of: what they make must be within its max dims before it is made."""
        if op.outputs in (Op.outputs, ReferenceOp.outputs):
            return
        shapes = {name: _as_shape(value) for name, value in arguments.items()}
        dims = op.bound(shapes).outputs(Context({}, {}, scratch_limit=1 << 27))
        for id, got in zip(call.writes, dims, strict=False):
            spec = self.method.values[id]
            if isinstance(spec, TensorSpec) and math.prod(got) > math.prod(spec.dims):
                raise InputError(f"the output would be {list(got)}, over its max dims {list(spec.dims)}")

    def _run_delegate(self, part: PartCall, values: list[Any]) -> None:
        graph = part.session.graph
        for id, made, output in zip(part.writes, graph.outputs, part.session.run(part.inputs), strict=True):
            value, spec = graph.values[made], self.method.values[id]
            if isinstance(value, TensorValue) and isinstance(spec, TensorSpec):
                output = _without_ones(output, value.dims, spec.dims)
            values[id] = self._fitting(id, output)

    def _argument(self, id: int, values: list[Any]) -> Any:
        spec = self.method.values[id]
        if isinstance(spec, ValueListSpec):
            return tuple(None if item == -1 else self._argument(item, values) for item in spec.items)
        if values[id] is UNSET:
            raise ProgramError(f"value {id} of method {self.method.name} is read before it is defined")
        return values[id]

    def _fitting(self, id: int, value: Any) -> Any:
        """A result as the program declares it: a tensor within its max dims, or a number."""
        spec = self.method.values[id]
        if not isinstance(spec, TensorSpec):
            if isinstance(value, np.ndarray | np.generic) and value.size != 1:
                raise InputError(f"value {id} would be {list(value.shape)}, but the program has a number there")
            value = value.item() if isinstance(value, np.ndarray | np.generic) else value
            if isinstance(value, int) and abs(value) > 2**63:
                raise InputError(f"value {id} would be an integer that does not fit 64 bits")
            return value
        array = np.asarray(value)
        if array.ndim != len(spec.dims) or any(d > most for d, most in zip(array.shape, spec.dims, strict=True)):
            raise InputError(f"the output would be {list(array.shape)}, over its max dims {list(spec.dims)}")
        return array.astype(numpy_dtype(spec.dtype), copy=False)

    def _output(self, id: int, values: list[Any]) -> np.ndarray:
        value = self._argument(id, values)
        try:
            return np.array(value, order="C")  # a copy: it may be a buffer of ours
        except ValueError:
            raise InputError(f"output value {id} is a list of tensors of different dims") from None

    def _first_state(self) -> dict[int, np.ndarray]:
        return {id: _first_buffer(self.method.values[id]) for id in self._state_ids}


def differ_by_ones(most: Dims, declared: Dims) -> bool:
    """Whether max dims are the same but for dims of 1."""
    return most != declared and [d for d in most if d != 1] == [d for d in declared if d != 1]


def _without_ones(array: np.ndarray, most: Dims, declared: Dims) -> np.ndarray:
    """A delegate's output with the dims that the program declares, where they differ only by dims of 1."""
    if not differ_by_ones(most, declared):
        return array
    live = iter([size for size, d in zip(array.shape, most, strict=True) if d != 1])
    return array.reshape([1 if d == 1 else next(live) for d in declared])


def tensor_array(spec: TensorSpec, data: memoryview) -> np.ndarray:
    """A tensor's data as an array of its dims; the bytes follow its dim order."""
    stored = read_array(data, spec.dtype, [spec.dims[d] for d in spec.dim_order])
    return stored.transpose(np.argsort(spec.dim_order)) if spec.dims else stored


def _first_buffer(spec: EValue) -> np.ndarray:
    assert isinstance(spec, TensorSpec)
    if spec.initial is None:
        return np.zeros(spec.dims, numpy_dtype(spec.dtype))
    return tensor_array(spec, spec.initial.view())


def _first_value(spec: EValue) -> Any:
    if isinstance(spec, TensorSpec):
        return UNSET if spec.constant is None else tensor_array(spec, spec.constant.view())
    return spec


def state_ids(method: MethodFile, kernels: Mapping[int, BoundKernel]) -> list[int]:
    """Buffers that persist: those with an initial value, and those written in place before anything defines them."""
    state, used = set[int](), {*method.outputs}
    defined = set(method.inputs)
    for n, instruction in enumerate(method.instructions):
        match instruction:
            case KernelCall(args=args):
                call = kernels[n].signature
                in_place = set(call.changes) | (set(call.writes) & set(call.reads))
                state |= {id for id in in_place - defined if _is_computed(method.values[id])}
                defined |= set(call.writes)
                used.update(args, *(spec.items for id in args if isinstance(spec := method.values[id], ValueListSpec)))
            case DelegateCall(args=args):
                defined |= set(args)
                used.update(args)
            case MoveCall(target=target):
                defined.add(target)
    initial = {
        id for id in used - {-1} if isinstance(spec := method.values[id], TensorSpec) and spec.initial is not None
    }
    return sorted(state | initial)


def _may_grow(given: Sequence[Any]) -> bool:
    """Whether numbers among the arguments, multiplied, are more than any tensor of a small program has elements."""
    numbers = [n for value in given for n in (value if isinstance(value, tuple) else (value,))]
    return math.prod(abs(n) or 1 for n in numbers if type(n) is int) > LARGE


def _as_shape(value: Any) -> Any:
    """An argument as `outputs` takes it."""
    if isinstance(value, tuple):
        return tuple(_as_shape(item) for item in value)
    if not isinstance(value, np.ndarray):
        return value
    dtype = str(value.dtype)
    return Tensor(TensorValue(0, value.shape, dtype, dtype), value.shape)


def _is_true(value: Any) -> bool:
    if isinstance(value, bool | int | float | np.ndarray | np.generic):
        return bool(np.all(value))
    raise ProgramError(f"a jump depends on {value!r}, which is neither true nor false")


def _is_computed(spec: EValue) -> bool:
    return isinstance(spec, TensorSpec) and spec.constant is None


def _widened(value: Any) -> Any:
    """Halves are computed in float32 and rounded once, in the result."""
    if isinstance(value, tuple):
        return tuple(_widened(item) for item in value)
    is_half = isinstance(value, np.ndarray) and value.dtype == np.float16
    return value.astype(np.float32) if is_half else value
