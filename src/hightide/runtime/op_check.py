"""An op call as a small graph of its own, whose answer is known: what a GPU gives is compared with the reference.

The graph has the call's own constants and literals. Where a dim can be smaller without leading to other kernels, it is:
a table of 150,000 tokens is checked with a hundred.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from hightide.errors import HightideError, InputError
from hightide.formats.gguf import block_size
from hightide.gpu.device import Device
from hightide.graph.blob import Blob
from hightide.graph.graph import Graph, OpCall, input_ids, output_ids
from hightide.graph.symbols import Sym, SymExpr
from hightide.graph.values import Dims, ListValue, LiteralValue, SymIntValue, TensorValue
from hightide.ops import REGISTRY
from hightide.ops.arguments import arguments_of
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.builder import GraphBuilder
from hightide.ops.case import Case, Const, In, all_cases, cases_of
from hightide.ops.choices import Choices
from hightide.ops.contract import IndexBound
from hightide.ops.kernel import Tensor
from hightide.planning.levels import InputElements, check_run, graph_inputs
from hightide.planning.planner import Plan, Planner
from hightide.runtime.case_graph import CaseGraph
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.need import Need, needs_of
from hightide.runtime.references import read_array
from hightide.traits import Traits

LARGE = 96  # dims beyond this are made smaller
SMALLER = (64, 128, 256)  # a dim becomes the first of these, and what it has beyond a multiple of 64
POSITIONS = (5, 2, 1, 0)  # for a SymInt that shapes do not need: the first that the op allows
LENIENT = 20.0  # times an op's tolerance: data is arbitrary here, and a wrong kernel is off by far more
LEAST, HALVES, INEXACT = 1e-4, 2e-2, 0.15  # tolerances: the smallest; of halves; of routes that trade precision
ROUNDED_APART = 0.05  # the share of integers that may differ by one: codes halfway between two


@dataclass(frozen=True)
class OpCheck:
    """A graph of one op call, and what it is given."""

    graph: Graph
    planner: Planner
    given: Mapping[int, np.ndarray]  # inputs by value; the others are random
    ranges: Mapping[int, tuple[float, float]]  # of random inputs
    tolerance: float

    def problem(self, device: Device) -> str:
        """What is wrong with the answer on this device, or "". Wrong is what is wrong with two sets of inputs."""
        choices = dict(self.planner.choices.chosen)
        with GpuSession(self.graph, device, [False] * len(self.graph.inputs), choices=choices) as gpu:
            for seed in (7, 8):
                problem = self._run(gpu, self.inputs(seed))
                if not problem:
                    return ""
        return problem

    def inputs(self, seed: int) -> list[np.ndarray]:
        """Inputs that the op allows; InputError if none are found."""
        rng = np.random.default_rng(seed)
        specs = graph_inputs(self.graph, [False] * len(self.graph.inputs), None)
        for position in POSITIONS:
            plan = None
            bounds: dict[int, IndexBound] = {}
            for _ in range(2):  # the first plan says which inputs are indices, and their bounds
                arrays = [self._input(id, rng, position, bounds.get(n)) for n, id in enumerate(self.graph.inputs)]
                env = InputElements(arrays, specs)
                try:
                    plan = self.planner.plan([array.shape for array in arrays], env)
                except InputError:
                    break
                bounds = {bound.position: bound for bound in plan.index_bounds}
            try:
                if plan is not None:
                    check_run(plan, arrays, specs, env)
                    return arrays
            except InputError:
                continue
        raise InputError("no inputs were found that the op allows")

    def _input(self, id: int, rng: np.random.Generator, position: int, bound: IndexBound | None) -> np.ndarray:
        if id in self.given:
            return self.given[id]
        value = self.graph.values[id]
        assert isinstance(value, TensorValue)
        if id not in self.ranges:  # made for a SymInt
            return np.full(value.dims, position, value.dtype)
        low, high = (max(bound.low, -9), bound.high) if bound else self.ranges[id]
        return random_array(rng, value.dims, value.dtype, low, high)

    def _run(self, gpu: GpuSession, inputs: list[np.ndarray]) -> str:
        cpu = CpuSession(self.graph, [False] * len(inputs), dtype="float64")
        gpu.reset()
        gpu.poison()
        got = [*gpu.run(inputs), *gpu.read_state()]
        expected = [*cpu.run(inputs), *cpu.read_state()]
        problems = (lenient_problem(g, e, self.tolerance) for g, e in zip(got, expected, strict=True))
        return next(filter(None, problems), "")


def random_array(rng: np.random.Generator, dims: Dims, dtype: str, low: float, high: float) -> np.ndarray:
    """Between `low` and `high`, both included for integers."""
    if dtype == "bool":
        return rng.integers(0, 2, dims).astype(bool)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(max(int(low), limits.min), min(int(high), limits.max) + 1, dims).astype(dtype)
    return rng.uniform(low, high, dims).astype(dtype)


def lenient_problem(got: np.ndarray, expected: np.ndarray, tolerance: float) -> str:
    """What is wrong beyond doubt, or "": where the reference is not finite, anything is right."""
    if got.shape != expected.shape:
        return f"the dims are {list(got.shape)}, not {list(expected.shape)}"
    if got.dtype.kind != "f":
        apart = np.abs(got.astype(np.int64) - expected.astype(np.int64))
        wrong = int(np.count_nonzero(apart))
        if got.dtype.kind != "b" and apart.max(initial=0) <= 1 and wrong <= ROUNDED_APART * got.size:
            return ""
        return f"{wrong} of {got.size} integers differ" if wrong else ""
    finite = np.isfinite(expected)
    if not finite.any():
        return ""
    if lost := int(np.count_nonzero(~np.isfinite(got[finite]))):
        return f"{lost} of {got.size} values are not finite"
    error = float(np.abs(got[finite].astype(np.float64) - expected[finite]).max())
    share = error / max(float(np.abs(expected[finite]).max()), 1e-3)
    return f"error {share:.2e} of the range, over {tolerance:.0e}" if share > tolerance else ""


def check_of(need: Need, planner: Planner, plan: Plan, call: OpCall) -> OpCheck | None:
    """A check of what `call` needs at a plan's level; None where no small graph leads to the same kernels.

    A case of the op that leads to these kernels has inputs that fit each other; else they are random.
    """
    for found in (_case_check(need, planner.choices), _call_check(need, planner, plan, call)):
        if found is not None:
            return found
    return None


def _case_check(need: Need, choices: Choices) -> OpCheck | None:
    """From the op's own cases."""
    found = _case_needs(REGISTRY[need.op], choices.traits, tuple(sorted(choices.chosen.items()))).get(need)
    if found is None:
        return None
    given = dict(zip(found.planner.graph.inputs, found.inputs, strict=True))
    return _call_check(need, found.planner, found.plan, found.call, given)


@dataclass(frozen=True)
class _CaseCall:
    """A call of a case at one of its levels."""

    planner: Planner
    inputs: list[np.ndarray]
    plan: Plan
    call: OpCall


@cache
def _case_needs(op: type, traits: Traits, chosen: tuple[tuple[str, str], ...]) -> dict[Need, _CaseCall]:
    """What the cases of an op need, each with the first call that has it."""
    found: dict[Need, _CaseCall] = {}
    for case in cases_by_op().get(op, ()):
        built = CaseGraph(case, np.random.default_rng(7))
        specs = graph_inputs(built.graph, None, None)
        planner = Planner(built.graph, choices=Choices(traits, dict(chosen)))
        for live in built.levels():
            inputs = built.arrays(live)
            with suppress(HightideError):
                plan = planner.plan([array.shape for array in inputs], InputElements(inputs, specs))
                for need, call in needs_of(plan).items():
                    found.setdefault(need, _CaseCall(planner, inputs, plan, call))
    return found


@cache
def cases_by_op() -> dict[type, list[Case]]:
    """The cases of each op."""
    found: dict[type, list[Case]] = {}
    for case in [*all_cases(), *cases_of("blocks")]:
        found.setdefault(REGISTRY[case.op], []).append(case)
    return found


def _call_check(
    need: Need, planner: Planner, plan: Plan, call: OpCall, given: Mapping[int, np.ndarray] = {}
) -> OpCheck | None:
    """From a call of a graph at a plan's level; `given` are inputs of that graph."""
    small = _SmallGraph(planner, plan, call, given)
    shrunk: dict[int, int] = {}
    try:
        if small.need({}) != need:
            return None
        for size in small.large():
            for smaller in _smaller(size):
                if _leads_to(small, {**shrunk, size: smaller}, need):
                    shrunk[size] = smaller
                    break
        return small.check(shrunk)
    except (HightideError, ValueError, TypeError, IndexError, KeyError):  # a call that cannot stand alone
        return None


def _smaller(size: int) -> Iterator[int]:
    return (least + size % 64 for least in SMALLER if least + size % 64 < size)


def _leads_to(small: _SmallGraph, sizes: Mapping[int, int], need: Need) -> bool:
    try:
        return small.need(sizes) == need
    except (HightideError, ValueError, TypeError, IndexError, KeyError):
        return False


@dataclass
class _SmallGraph:
    """Graphs of one call alone, with some sizes of dims replaced by smaller ones."""

    planner: Planner
    plan: Plan
    call: OpCall
    given: Mapping[int, np.ndarray]
    _sizes: Mapping[int, int] = field(default_factory=dict)
    _data: bool = False
    _builder: GraphBuilder = field(default_factory=GraphBuilder)
    _symint: tuple[SymExpr, SymIntValue] | None = None
    _arrays: dict[int, np.ndarray] = field(default_factory=dict)
    _ranges: dict[int, tuple[float, float]] = field(default_factory=dict)

    def large(self) -> list[int]:
        """The sizes that may be made smaller, the largest first."""
        if self.given:
            return []
        graph = self.planner.graph
        tensors = [id for id in (*input_ids(graph, self.call), *output_ids(graph, self.call)) if id in self.plan.dims]
        sizes = {size for id in tensors for size in self.plan.dims[id]}
        return sorted((size for size in sizes if size > LARGE), reverse=True)

    def need(self, sizes: Mapping[int, int]) -> Need | None:
        """What the call needs with these sizes."""
        graph = self._graph(sizes, data=False)
        planner = self._planner(graph)
        arrays = OpCheck(graph, planner, self._arrays, self._ranges, 0.0).inputs(7)
        plan = planner.plan([a.shape for a in arrays], InputElements(arrays, graph_inputs(graph, None, None)))
        found = [need for need, call in needs_of(plan).items() if call.name == self.call.name]
        return found[0] if len(found) == 1 else None

    def check(self, sizes: Mapping[int, int]) -> OpCheck:
        graph = self._graph(sizes, data=True)
        return OpCheck(graph, self._planner(graph), self._arrays, self._ranges, self._tolerance(graph))

    def _planner(self, graph: Graph) -> Planner:
        return Planner(graph, scratch_limit=self.planner.scratch_limit, choices=self.planner.choices)

    def _tolerance(self, graph: Graph) -> float:
        halves = any(isinstance(v, TensorValue) and v.dtype == "float16" for v in graph.values)
        usual = max(LENIENT * REGISTRY[self.call.name].tolerance, HALVES if halves else LEAST)
        return usual if self.planner.choices.exact else max(usual, INEXACT)

    def _graph(self, sizes: Mapping[int, int], data: bool) -> Graph:
        self._sizes, self._data, self._symint = sizes, data, None
        self._builder, self._arrays, self._ranges = GraphBuilder(), {}, {}
        graph = self.planner.graph
        named = {name: self._argument(id, name) for name, id in self.call.args.items()}
        outs = [graph.values[id] for id in output_ids(graph, self.call)]
        dtypes = tuple(out.dtype for out in outs if isinstance(out, TensorValue))
        out = self._builder.call(self.call.name, dtype=dtypes, **named)
        made = out if isinstance(out, tuple) else (out,)
        wanted = self._written()
        return self._builder.graph(*(value for value, old in zip(made, outs, strict=True) if old.id in wanted))

    def _written(self) -> set[int]:
        """The outputs that kernels write; others are placeholders."""
        steps = (step.dispatch for step in self.plan.steps if step.call is self.call)
        return {bound.value.id for dispatch in steps for bound in dispatch.writes if isinstance(bound, Tensor)}

    def _argument(self, id: int, name: str) -> Any:
        value = self.planner.graph.values[id]
        match value:
            case LiteralValue(value=literal):
                return literal
            case ListValue(items=items):
                return [self._argument(item, name) for item in items]
            case SymIntValue():
                return self._live(self.plan.symints[id])
        return self._tensor(value, name)

    def _live(self, expr: SymExpr) -> Any:
        """A SymInt: a number where the level decides it, else read from an input, as far from the others as it was."""
        if isinstance(expr, Sym) and expr in self.plan.pins:
            return self.plan.pins[expr]
        if isinstance(expr, int):
            return expr
        if self._symint is None:
            element = self._builder.input((1,), "int32")
            self._symint = expr, self._builder.call("et_vk.select_as_symint.default", element, 0, 0)
            return self._symint[1]
        first, value = self._symint
        apart = expr - first
        if not isinstance(apart, int):
            raise InputError("SymInts that do not go together")
        return self._builder.call("add", value, apart) if apart else value

    def _tensor(self, value: TensorValue, name: str) -> TensorValue:
        dims = tuple(self._sizes.get(size, size) for size in self.plan.dims[value.id])
        root = self.planner.graph.values[self.planner.aliases.root[value.id]]
        assert isinstance(root, TensorValue)
        written = name in REGISTRY[self.call.name].mutates
        constant = root.constant is not None and root.id not in self.planner.aliases.state
        if value.dtype in BLOCK_TYPES:
            return self._blocks(root, dims)
        if constant and not written:
            array = self._own(root).reshape(self.plan.dims[value.id]) if self._data else np.zeros(dims, value.dtype)
            return self._builder.constant(array[tuple(slice(size) for size in dims)].astype(value.dtype))
        low, high = like_cases(REGISTRY[self.call.name], name, value.dtype)
        if written:
            return self._builder.constant(random_array(np.random.default_rng(3), dims, value.dtype, low, high))
        made = self._builder.input(dims, value.dtype)
        self._ranges[made.id] = low, high
        if value.id in self.given:
            self._arrays[made.id] = self.given[value.id]
        return made

    def _blocks(self, root: TensorValue, dims: Dims) -> TensorValue:
        """The first rows of a weight in blocks."""
        if dims[1:] != root.dims[1:] or root.constant is None:
            raise InputError("blocks that are cut")
        elements, size = block_size(root.dtype)
        length = int(np.prod(dims)) // elements * size
        data = bytes(root.constant.region(0, length)) if self._data else b""
        return self._builder.stored(dims, root.dtype, Blob(data, 0, len(data)))

    def _own(self, root: TensorValue) -> np.ndarray:
        assert root.constant is not None
        return read_array(root.constant.view(), root.stored_dtype, root.dims).astype(root.dtype)


@cache
def like_cases(op: type, name: str, dtype: str) -> tuple[float, float]:
    """The range of an argument in the op's cases, or a common one."""
    place = next((n for n, argument in enumerate(arguments_of(op)) if argument.name == name), -1)
    for case in cases_by_op().get(op, ()):
        spec = case.args[place] if 0 <= place < len(case.args) else None
        specs: Sequence[Any] = spec if isinstance(spec, list) else [spec]
        for one in specs:
            if isinstance(one, In) and one.dtype == dtype:
                return one.low, one.high
            if isinstance(one, Const) and str((array := one.make(np.random.default_rng(7))).dtype) == dtype:
                return float(array.min()), float(array.max())
    return (0, 3) if np.dtype(dtype).kind in "iu" else (-2, 2)

