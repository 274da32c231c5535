"""Where the levels and inputs of a part come from: its own graph, or a run of the method that it is in."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from hightide.errors import HightideError, InputError
from hightide.formats.instructions import DelegateCall, JumpFalseCall, KernelCall
from hightide.formats.program_file import MethodFile, TensorSpec
from hightide.graph.graph import Graph
from hightide.graph.symbols import Element, Env, elements
from hightide.graph.values import Dims
from hightide.planning.levels import InputElements, InputSpec, MaxElements, check_run, graph_inputs
from hightide.planning.planner import Plan, Planner
from hightide.pte.interpreter import Observer, PartCall, Run
from hightide.pte.program import Method, MethodInfo, Program
from hightide.tools.levels.formulas import Live
from hightide.tools.levels.method_trace import MethodRun, MethodTrace
from hightide.tools.levels.varying import ElementAt, Symbol, dims_at, find_symbols, values_at

MOST_BYTES = 64 << 20  # of inputs that a method is tried with
MAX_INDEX = 1 << 20  # an input that takes any number up to this is not one of indices


class Source(Protocol):
    """Where a part's levels and inputs come from."""

    @property
    def symbols(self) -> tuple[Symbol, ...]: ...

    def inputs(
        self, part: int, level: Mapping[str, int], seed: int, tokens: Sequence[int] | None
    ) -> list[np.ndarray]: ...

    def decided(self, part: int, level: Mapping[str, int]) -> tuple[list[Dims], Env]:
        """The live dims of a part's inputs and the integers in them; if those of the level are `Live`, so are they."""


# ---- one graph


class GraphSource:
    """Levels and inputs of a graph that is a whole method: planning it says what it accepts."""

    def __init__(self, graph: Graph, dynamic: Sequence[bool], names: Sequence[str]) -> None:
        self.graph = graph
        self.specs: Sequence[InputSpec] = graph_inputs(graph, dynamic, names)
        self.planner = Planner(graph, dispatch=False)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        return find_symbols(self)

    def runs(self, dims: Sequence[Dims], values: Mapping[ElementAt, int]) -> bool:
        env = _Given(values)
        try:
            for bound in self.planner.plan(dims, env).bounds:
                bound.check(env)
        except HightideError:
            return False
        return True

    def elements(self) -> dict[ElementAt, bool]:
        return _read_elements(self.planner.plan_max(MaxElements()), self.specs)

    def decided(self, part: int, level: Mapping[str, int]) -> tuple[list[Dims], Env]:
        return dims_at(self.specs, self.symbols, level), _Given(values_at(self.symbols, level))

    def inputs(self, part: int, level: Mapping[str, int], seed: int, tokens: Sequence[int] | None) -> list[np.ndarray]:
        dims, env = self.decided(part, level)
        plan = self.planner.plan(dims, env)
        limits = {bound.position: bound.high for bound in reversed(plan.index_bounds)}
        given = _random_inputs(self.specs, dims, values_at(self.symbols, level), limits, seed, tokens)
        for element in {e for expr in plan.symints.values() for e in elements(expr)} - env.keys():
            if given[element.position].size > element.flat:  # not a symbol, since its input may shrink: 0, as planned
                given[element.position].reshape(-1)[element.flat] = 0
        check_run(plan, given, self.specs, InputElements(given, self.specs))
        return given


# ---- a method of several parts


class MethodSource:
    """Levels and inputs of a method's parts: the method runs on the references, and what its parts get is kept."""

    def __init__(self, program: Program, info: MethodInfo, file: MethodFile) -> None:
        self.program, self.file = program, file
        self.specs: Sequence[InputSpec] = info.inputs
        self._last: tuple[Any, dict[int, list[np.ndarray]]] | None = None
        self._decided: dict[Any, MethodRun] = {}  # by level

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        return find_symbols(self)

    @cached_property
    def method(self) -> Method:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that some kernels run on NumPy: here everything does
            return self.program.method(self.file.name)

    def delegate_inputs(self, call: DelegateCall, count: int) -> tuple[tuple[bool, ...], tuple[str, ...]]:
        """(dynamic, name) of each input of a delegate."""
        named = {id: spec.name for id, spec in zip(self.file.inputs, self.specs, strict=True)}
        specs = [(id, self.file.values[id]) for id in call.args[:count]]
        dynamic = tuple(isinstance(spec, TensorSpec) and spec.dynamic for _, spec in specs)
        return dynamic, tuple(named.get(id, f"value {id}") for id, _ in specs)

    def runs(self, dims: Sequence[Dims], values: Mapping[ElementAt, int]) -> bool:
        # Which branch is taken depends on the data: there, both signs are tried.
        return all(self._accepts(dims, values, fill) for fill in ((0, 1, -1) if self._branches else (0,)))

    def _accepts(self, dims: Sequence[Dims], values: Mapping[ElementAt, int], fill: int) -> bool:
        try:
            given = _zero_inputs(self.specs, dims, values)
            for array in given:
                if array.dtype.kind == "f":
                    array[...] = fill
            self._run(given)
        except HightideError:
            return False
        return True

    def elements(self) -> dict[ElementAt, bool]:
        """Integers that delegates read from the method's own inputs, and those that `item()` takes out of them."""
        position = {id: n for n, id in enumerate(self.file.inputs)}
        found: dict[ElementAt, bool] = {}
        for instruction in self.file.instructions:
            if isinstance(instruction, DelegateCall):
                session = self.method.sessions[instruction.delegate]
                read = _read_elements(session.planner.plan_max(MaxElements()), session.specs)
                for (n, flat), pinned in read.items():
                    if (id := instruction.args[n]) in position:
                        at = position[id], flat
                        found[at] = found.get(at, False) or pinned
            elif isinstance(instruction, KernelCall) and instruction.op.startswith("aten::_local_scalar_dense"):
                found |= {(position[id], 0): True for id in instruction.args[:1] if id in position}
        for n, spec in enumerate(self.specs):
            if not isinstance(self.file.values[self.file.inputs[n]], TensorSpec) and spec.dtype == "int64":
                found.setdefault((n, 0), True)
        return dict(sorted(found.items()))

    def decided(self, part: int, level: Mapping[str, int]) -> tuple[list[Dims], Env]:
        run = self.run_at(level)
        if part not in run.parts:
            raise InputError(f"{self.file.name} does not come to its part {part} at this level")
        return run.parts[part].dims, run.parts[part].env

    def run_at(self, level: Mapping[str, int]) -> MethodRun:
        """What a run at a level shows: dims and integers, which are `Live` if those of the level are."""
        key = tuple(level.items()), any(isinstance(value, Live) for value in level.values())
        if key not in self._decided:
            dims, values = dims_at(self.specs, self.symbols, level), values_at(self.symbols, level)
            runs = [self._trace.trace(given, dims, values) for given in self._given(dims, values, 0, None)]
            parts = {n: part for run in reversed(runs) for n, part in run.parts.items()}
            seen = {id: value for run in reversed(runs) for id, value in run.values.items()}
            self._decided[key] = MethodRun(parts, seen, runs[0].outputs)
        return self._decided[key]

    @cached_property
    def _branches(self) -> bool:
        return any(isinstance(instruction, JumpFalseCall) for instruction in self.file.instructions)

    def _given(
        self, dims: Sequence[Dims], values: Mapping[ElementAt, int], seed: int, tokens: Sequence[int] | None
    ) -> Iterator[list[np.ndarray]]:
        """Random inputs; where there are branches, also with one sign alone, which may lead to others."""
        _check_size(self.specs, dims)
        given = _random_inputs(self.specs, dims, values, self._limits, seed, tokens)
        yield given
        for sign in (1, -1) if self._branches else ():
            yield [_of_sign(array, sign) for array in given]

    @cached_property
    def _trace(self) -> MethodTrace:
        return MethodTrace(self.method)

    def inputs(self, part: int, level: Mapping[str, int], seed: int, tokens: Sequence[int] | None) -> list[np.ndarray]:
        seen = self._seen(level, seed, tokens)
        if part not in seen:
            raise InputError(f"{self.file.name} does not come to its part {part} with these inputs; try another seed")
        return [array.copy() for array in seen[part]]

    def _seen(self, level: Mapping[str, int], seed: int, tokens: Sequence[int] | None) -> dict[int, list[np.ndarray]]:
        """What all parts are given in a run at a level; the last one is kept."""
        key = (tuple(level.items()), seed, None if tokens is None else tuple(tokens))
        if self._last is None or self._last[0] != key:
            dims, values = dims_at(self.specs, self.symbols, level), values_at(self.symbols, level)
            seen: dict[int, list[np.ndarray]] = {}
            for given in self._given(dims, values, seed, tokens):
                seen = self._run(given) | seen
            self._last = key, seen
        return self._last[1]

    @cached_property
    def _limits(self) -> dict[int, int]:
        """The largest index that each input of integers takes, where there is one."""
        taken = {symbol.element[0] for symbol in self.symbols if symbol.element is not None}
        dims = dims_at(self.specs, self.symbols, {s.name: min(s.most, 1) for s in self.symbols})
        values = {s.element: s.default for s in self.symbols if s.element is not None}
        if not self.runs(dims, values):
            dims = [spec.dims for spec in self.specs]
        limits = {}
        for n, spec in enumerate(self.specs):
            if np.dtype(spec.dtype).kind == "i" and n not in taken:
                most = self._largest_index(n, dims, values, min(MAX_INDEX, int(np.iinfo(spec.dtype).max)))
                if most < MAX_INDEX:
                    limits[n] = most
        return limits

    def _largest_index(self, input: int, dims: Sequence[Dims], values: Mapping[ElementAt, int], most: int) -> int:
        def accepts(index: int) -> bool:
            try:
                given = _zero_inputs(self.specs, dims, values)
                given[input][...] = index
                self._run(given)
            except HightideError:
                return False
            return True

        if accepts(most):
            return most
        low, high = 0, most  # accepted, refused
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if accepts(middle) else (low, middle)
        return low

    def _run(self, given: list[np.ndarray]) -> dict[int, list[np.ndarray]]:
        """What each part was given in a run from the start; state stays as it was."""
        seen = _Seen()
        self.method.observe(given, seen)
        return seen.inputs


class _Seen(Observer):
    """Keeps what each delegate is given the first time."""

    def __init__(self) -> None:
        self.inputs: dict[int, list[np.ndarray]] = {}

    def delegate(self, call: PartCall, values: Sequence[Any], run: Run) -> None:
        arrays = [spec.array(value) for spec, value in zip(call.session.specs, call.inputs, strict=True)]
        self.inputs.setdefault(call.number, arrays)
        run()


# ---- inputs


class _Given(dict[Element, int]):
    """The integers in inputs whose other elements are 0."""

    def __init__(self, values: Mapping[ElementAt, int]) -> None:
        super().__init__({Element(*at): value for at, value in values.items()})

    def __missing__(self, element: Element) -> int:
        return 0


def _read_elements(plan: Plan, specs: Sequence[InputSpec]) -> dict[ElementAt, bool]:
    """The elements of inputs of fixed dims that SymInts are read from, and whether shapes are made from them."""
    pinned = {e for expr in plan.pins for e in elements(expr)}
    read = {e for expr in plan.symints.values() for e in elements(expr)}
    found = sorted(read | pinned, key=lambda e: (e.position, e.flat))
    return {(e.position, e.flat): e in pinned for e in found if not specs[e.position].dynamic}


def _zero_inputs(specs: Sequence[InputSpec], dims: Sequence[Dims], values: Mapping[ElementAt, int]) -> list[np.ndarray]:
    """InputError for inputs that cannot hold these values, or that are too large to try."""
    _check_size(specs, dims)
    given = [np.zeros(d, spec.dtype) for d, spec in zip(dims, specs, strict=True)]
    _place_values(given, specs, values)
    return given


def _place_values(given: Sequence[np.ndarray], specs: Sequence[InputSpec], values: Mapping[ElementAt, int]) -> None:
    for (position, flat), value in values.items():
        array = given[position].reshape(-1)
        if flat >= array.size or (array.dtype.kind in "iu" and value > np.iinfo(array.dtype).max):
            raise InputError(f"element {flat} of input {specs[position].name} cannot be {value}")
        array[flat] = value


def _check_size(specs: Sequence[InputSpec], dims: Sequence[Dims]) -> None:
    nbytes = sum(math.prod(d) * np.dtype(spec.dtype).itemsize for d, spec in zip(dims, specs, strict=True))
    if nbytes > MOST_BYTES:
        raise InputError(f"inputs of {nbytes} bytes are not tried; {MOST_BYTES} is the most")


def _random_inputs(
    specs: Sequence[InputSpec],
    dims: Sequence[Dims],
    values: Mapping[ElementAt, int],
    limits: Mapping[int, int],
    seed: int,
    tokens: Sequence[int] | None,
) -> list[np.ndarray]:
    """Inputs at these dims: floats around 0, indices within their limits, other integers 0 or 1."""
    rng = np.random.default_rng(seed)
    given = []
    for n, (spec, d) in enumerate(zip(specs, dims, strict=True)):
        kind = np.dtype(spec.dtype).kind
        array: np.ndarray
        if spec.name == "settings":  # of the choice of ids: zeros are greedy
            array = np.zeros(d, spec.dtype)
        elif kind == "f":
            array = rng.standard_normal(d).astype(spec.dtype)
        else:
            array = rng.integers(0, limits.get(n, 1) + 1, d).astype(spec.dtype)
            if n not in limits and array.ndim:
                array[..., :1] = 1  # a mask that leaves nothing is not a valid input
        given.append(array)
    if tokens is not None:
        _place_tokens(given, specs, limits, tokens)
    _place_values(given, specs, values)
    return given


def _of_sign(array: np.ndarray, sign: int) -> np.ndarray:
    if array.dtype.kind == "f":
        return sign * np.abs(array)
    return np.full_like(array, sign > 0) if array.dtype.kind == "b" else array


def _place_tokens(
    given: list[np.ndarray], specs: Sequence[InputSpec], limits: Mapping[int, int], tokens: Sequence[int]
) -> None:
    named = [n for n, spec in enumerate(specs) if spec.name == "tokens"] or sorted(limits)
    if not named:
        raise InputError("this part takes no tokens")
    if not tokens:
        raise InputError("there are no tokens")
    array = given[named[0]]
    array[...] = np.resize(np.asarray(tokens, array.dtype), array.shape)
