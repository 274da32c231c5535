"""From a call's arguments to its level: inputs checked, the plan found or made, live integers read.

Everything here happens before the first byte is written, so that a refused call loses nothing.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from hightide.errors import InputError, ProgramError
from hightide.graph.graph import Graph
from hightide.graph.symbols import Element, Env, Sym, SymExpr, evaluate
from hightide.graph.values import Dims, SymIntValue, TensorValue
from hightide.planning.planner import Plan, Planner
from hightide.units import counted

INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class InputSpec:
    """What one input may be: max dims, and whether they may shrink. A SymInt is an int64 without dims."""

    name: str
    dims: Dims
    dtype: str
    dynamic: bool

    def array(self, given: Any) -> np.ndarray:
        """`given` (NumPy, torch, lists, numbers) as a contiguous array of this spec, or InputError."""
        if type(given) is np.ndarray and self._takes(given):
            return given
        array = _to_numpy(given)
        if array is None:
            try:
                array = np.asarray(given)
            except ValueError as error:
                raise InputError(f"input {self.name} is not an array: {error}") from None
            if array.dtype == object:
                raise InputError(f"input {self.name} is a {type(given).__name__}, not an array of numbers")
            array = self._cast(array)
        wanted = np.dtype(self.dtype)
        if array.dtype != wanted:
            if array.dtype.kind != wanted.kind or array.itemsize > wanted.itemsize:
                raise InputError(f"input {self.name} is {array.dtype}; the program takes {self.dtype}")
            array = array.astype(wanted)
        dims = array.shape
        if len(dims) != len(self.dims):
            raise InputError(
                f"input {self.name} has rank {len(dims)} {list(dims)}; the program takes rank {len(self.dims)}"
                f" {list(self.dims)}"
            )
        if not self.dynamic and dims != self.dims:
            raise InputError(f"input {self.name} is {list(dims)}; the program takes exactly {list(self.dims)}")
        for n, (got, most) in enumerate(zip(dims, self.dims, strict=True)):
            if got > most:
                raise InputError(f"dim {n} of input {self.name} is {got}; the program takes at most {most}")
        return np.ascontiguousarray(array).reshape(dims)

    def _takes(self, array: np.ndarray) -> bool:
        """Whether it is an array of this spec already, as a step loop's are: what follows would take 4 µs for each."""
        dims = array.shape
        fits = dims == self.dims or (
            self.dynamic and len(dims) == len(self.dims) and all(map(operator.le, dims, self.dims))
        )
        return fits and array.dtype == self.dtype and array.flags.c_contiguous

    def _cast(self, array: np.ndarray) -> np.ndarray:
        """Plain Python numbers as the program's type, where that keeps them; else as they are."""
        wanted = np.dtype(self.dtype)
        if array.dtype.kind not in "iu" and array.dtype.kind != wanted.kind and array.size:
            return array
        if wanted.kind in "iu" and array.dtype.kind in "iu" and array.size:
            limits, low, high = np.iinfo(wanted), int(array.min()), int(array.max())
            if low < limits.min or high > limits.max:
                bad = low if low < limits.min else high
                raise InputError(f"input {self.name} has {bad}, which does not fit {self.dtype}")
        return array.astype(wanted)


def check_count(specs: Sequence[InputSpec], given: Sequence[Any]) -> None:
    if len(specs) != len(given):
        names = ", ".join(spec.name for spec in specs) or "none"
        were = "was" if len(given) == 1 else "were"
        raise InputError(f"the program takes {counted(len(specs), 'input')} ({names}); {len(given)} {were} given")


def graph_inputs(graph: Graph, dynamic: Sequence[bool] | None, names: Sequence[str] | None) -> list[InputSpec]:
    """What each input may be; unless told otherwise all are dynamic, and named in0, in1, ..."""
    count = len(graph.inputs)
    dynamic = [True] * count if dynamic is None else dynamic
    names = [f"in{n}" for n in range(count)] if names is None else names
    specs = []
    for id, may_change, name in zip(graph.inputs, dynamic, names, strict=True):
        match graph.values[id]:
            case TensorValue() as value:
                specs.append(InputSpec(name, value.dims, value.host_dtype, may_change))
            case SymIntValue():
                specs.append(InputSpec(name, (), "int64", False))
            case value:
                raise ProgramError(f"input {name} is neither a tensor nor a SymInt, but {value}")
    return specs


class InputElements(dict[Element, int]):
    """Reads the input elements that SymInts stand for, each once per run, checked to fit 32 bits."""

    def __init__(self, inputs: Sequence[np.ndarray], specs: Sequence[InputSpec]) -> None:
        super().__init__()
        self.inputs, self.specs = inputs, specs

    def __missing__(self, element: Element) -> int:
        value = int(self.inputs[element.position].reshape(-1)[element.flat])
        check_int32(self.specs[element.position].name, value, value)
        self[element] = value
        return value


class MaxElements(dict[Element, int]):
    """Stands in for input elements while a session is built: all are `value`; 1, since some program may divide."""

    def __init__(self, value: int = 1) -> None:
        super().__init__()
        self.value = value

    def __missing__(self, element: Element) -> int:
        return self.value


Ready = TypeVar("Ready")


class Levels(Generic[Ready]):
    """The plans of one session by level; the least recently used one goes first.

    `prepare` turns a new plan into what the session replays; it is not kept, so that a session that nobody
    holds is freed at once.
    """

    def __init__(self, planner: Planner, capacity: int = 64) -> None:
        self.planner, self.capacity = planner, capacity
        self.planned = 0  # how many plans were made
        self._pins: dict[tuple[Dims, ...], tuple[Sym, ...]] = {}  # what else decides a level, by input dims
        self._ready: OrderedDict[tuple[tuple[Dims, ...], tuple[int, ...]], Ready] = OrderedDict()

    def find(self, dims: tuple[Dims, ...], env: Env, prepare: Callable[[Plan], Ready]) -> Ready:
        pins = self._pins.get(dims, ())
        key = (dims, tuple(evaluate(pin, env) for pin in pins))
        ready = self._ready.get(key)
        if ready is not None:
            self._ready.move_to_end(key)
            return ready
        plan = self.planner.plan(dims, env)
        ready = prepare(plan)
        self.planned += 1
        if set(plan.pins) - set(pins):
            self._pins[dims] = pins = (*pins, *(pin for pin in plan.pins if pin not in pins))
            key = (dims, tuple(evaluate(pin, env) for pin in pins))
        self._ready[key] = ready
        while len(self._ready) > self.capacity:
            self._ready.popitem(last=False)
        return ready

    def clear(self) -> None:
        self._ready.clear()

    def __len__(self) -> int:
        return len(self._ready)


def check_run(plan: Plan, inputs: Sequence[np.ndarray], specs: Sequence[InputSpec], env: Env) -> None:
    """What the level alone does not decide: positions within the context, indices within their table."""
    for bound in reversed(plan.bounds):  # attention says "context" where the slice of a table before it says "rows"
        bound.check(env)
    for index in plan.index_bounds:
        array = inputs[index.position]
        if array.size == 1:  # a decode step: two reductions of NumPy take 9 µs, this 0.2
            least = most = int(array.item())
        elif array.size:
            least, most = int(array.min()), int(array.max())
        else:
            continue
        if not index.low <= least <= most <= index.high:
            bad = least if least < index.low else most
            name = specs[index.position].name
            raise InputError(f"input {name} has {index.what} {bad}; it must be in {index.low}..{index.high}")


def live_symint(expr: SymExpr, env: Env) -> int:
    """A SymInt's value in this run, checked to fit the 32 bits that kernels read."""
    value = evaluate(expr, env)
    if not INT32.min <= value <= INT32.max:
        raise InputError(f"a SymInt of this program would be {value}, which does not fit 32 bits")
    return value


def check_int32(name: str, low: int, high: int) -> None:
    if low < INT32.min or high > INT32.max:
        bad = low if low < INT32.min else high
        raise InputError(f"input {name} has {bad}, which does not fit the 32-bit integers of the GPU")


def _to_numpy(given: Any) -> np.ndarray | None:
    """Arrays of any library without a copy where it can be had; None for lists and numbers."""
    if isinstance(given, np.ndarray):
        return given
    if isinstance(given, np.generic):
        return np.asarray(given)
    if hasattr(given, "detach"):  # torch: gradients and other devices have no direct NumPy view
        given = given.detach().cpu()
        return np.asarray(given.numpy())
    return np.asarray(given) if hasattr(given, "__array__") else None
