"""The small graphs that kernels are checked with: an op call of a program, or of an op case, on its own.

The graph has the call's own constants and literals. Where a dim can be smaller without leading to other kernels, it is:
a table of 150,000 tokens is checked with a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from hightide.errors import HightideError, InputError
from hightide.formats.gguf import block_size
from hightide.graph.blob import Blob, Zeros
from hightide.graph.graph import Graph, OpCall, input_ids, output_ids
from hightide.graph.symbols import Sym, SymExpr
from hightide.graph.values import Dims, ListValue, LiteralValue, SymIntValue, TensorValue
from hightide.ops import REGISTRY
from hightide.ops.arguments import arguments_of
from hightide.ops.arrays import read_array
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.builder import GraphBuilder
from hightide.ops.case import Case, Const, In, all_cases, cases_of
from hightide.ops.choices import Choices
from hightide.ops.kernel import Tensor
from hightide.planning.levels import InputElements, graph_inputs
from hightide.planning.planner import Plan, Planner
from hightide.runtime.case_graph import CaseGraph
from hightide.runtime.need import Need, needs_of
from hightide.runtime.op_check import OpCheck, random_array
from hightide.traits import Traits

LARGE = 96  # dims beyond this are made smaller
SMALLER = (64, 128, 256, 512, 1024, 2048)  # a dim becomes the first of these, and what it has beyond a multiple of 64
LENIENT = 20.0  # times an op's tolerance: data is arbitrary here, and a wrong kernel is off by far more
LEAST, HALVES, INEXACT = 1e-4, 2e-2, 0.15  # tolerances: the smallest; of halves; of routes that trade precision


def check_of(need: Need, planner: Planner, plan: Plan, call: OpCall) -> OpCheck | None:
    """A check of what `call` needs at a plan's level; None where no small graph leads to the same kernels.

    A case of the op that leads to these kernels has inputs that fit each other; else they are random.
    """
    for found in (_case_check(need, planner.choices), call_check(need, planner, plan, call)):
        if found is not None:
            return found
    return None


def _case_check(need: Need, choices: Choices) -> OpCheck | None:
    """From the op's own cases."""
    found = _case_needs(need.op, choices.traits, tuple(sorted(choices.chosen.items()))).get(need)
    if found is None:
        return None
    given = dict(zip(found.planner.graph.inputs, found.inputs, strict=True))
    return call_check(need, found.planner, found.plan, found.call, given)


@dataclass(frozen=True)
class _CaseCall:
    """A call of a case at one of its levels."""

    planner: Planner
    inputs: list[np.ndarray]
    plan: Plan
    call: OpCall


@cache
def _case_needs(op: str, traits: Traits, chosen: tuple[tuple[str, str], ...]) -> dict[Need, _CaseCall]:
    """What the cases of an op need, each with the first call that has it."""
    found: dict[Need, _CaseCall] = {}
    for case in cases_by_op().get(REGISTRY[op].names, ()):
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
def cases_by_op() -> dict[tuple[str, ...], list[Case]]:
    """The cases of each op, by its names."""
    found: dict[tuple[str, ...], list[Case]] = {}
    for case in [*all_cases(), *cases_of("blocks")]:
        found.setdefault(REGISTRY[case.op].names, []).append(case)
    return found


def call_check(
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
    _fitting: Mapping[str, np.ndarray] = field(default_factory=dict)  # by argument

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
        arrays = OpCheck(graph, planner, self._arrays, self._ranges, 0.0).inputs(None)
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
        self._fitting = REGISTRY[self.call.name].fitting({n: self._plain(id) for n, id in self.call.args.items()})
        given, names = self.call.args, [argument.name for argument in arguments_of(REGISTRY[self.call.name])]
        args = [self._argument(given[name], name) if name in given else None for name in names]
        outs = [graph.values[id] for id in output_ids(graph, self.call)]
        dtypes = tuple(out.dtype for out in outs if isinstance(out, TensorValue))
        out = self._builder.call(self.call.name, *args, dtype=dtypes)
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
        dims = self._dims(value.id)
        root = self.planner.graph.values[self.planner.aliases.root[value.id]]
        assert isinstance(root, TensorValue)
        written = name in REGISTRY[self.call.name].mutates
        constant = root.constant is not None and root.id not in self.planner.aliases.state
        if value.dtype in BLOCK_TYPES:
            return self._blocks(root, dims)
        if not self._data and (constant or written):
            return self._builder.stored(dims, value.dtype, Zeros(math.prod(dims) * np.dtype(value.dtype).itemsize))
        if constant and not written:
            array = self._own(root).reshape(self.plan.dims[value.id])
            return self._builder.constant(array[tuple(slice(size) for size in dims)].astype(value.dtype))
        low, high = like_cases(self.call.name, name, value.dtype)
        if written:
            return self._builder.constant(random_array(np.random.default_rng(3), dims, value.dtype, low, high))
        made = self._builder.input(dims, value.dtype)
        self._ranges[made.id] = low, high
        if value.id in self.given:
            self._arrays[made.id] = self.given[value.id]
        elif name in self._fitting:
            self._arrays[made.id] = self._fitting[name]
        return made

    def _plain(self, id: int) -> Any:
        """An argument as `Op.fitting` takes it."""
        value = self.planner.graph.values[id]
        return self._dims(id) if isinstance(value, TensorValue) else getattr(value, "value", None)

    def _dims(self, id: int) -> Dims:
        return tuple(self._sizes.get(size, size) for size in self.plan.dims[id])

    def _blocks(self, root: TensorValue, dims: Dims) -> TensorValue:
        """The first matrices of a weight in blocks, of these the first rows, and of these the first blocks."""
        elements, size = block_size(root.dtype)
        if len(dims) != len(root.dims) or dims[-1] % elements or root.constant is None:
            raise InputError("blocks that are cut")
        row, kept = (width // elements * size for width in (root.dims[-1], dims[-1]))
        numbers = np.arange(math.prod(root.dims[:-1])).reshape(root.dims[:-1])
        rows = numbers[tuple(map(slice, dims[:-1]))].reshape(-1).tolist() if self._data else ()
        data = b"".join(bytes(root.constant.region(n * row, kept)) for n in rows)
        return self._builder.stored(dims, root.dtype, Blob(data, 0, len(data)))

    def _own(self, root: TensorValue) -> np.ndarray:
        assert root.constant is not None
        return read_array(root.constant.view(), root.stored_dtype, root.dims).astype(root.dtype)


@cache
def like_cases(op: str, name: str, dtype: str) -> tuple[float, float]:
    """The range of an argument in the op's cases, or a common one."""
    place = next((n for n, argument in enumerate(arguments_of(REGISTRY[op])) if argument.name == name), -1)
    for case in cases_by_op().get(REGISTRY[op].names, ()):
        spec = case.args[place] if 0 <= place < len(case.args) else None
        specs: Sequence[Any] = spec if isinstance(spec, list) else [spec]
        for one in specs:
            if isinstance(one, In) and one.dtype == dtype:
                return one.low, one.high
            if isinstance(one, Const) and str((array := one.make(np.random.default_rng(7))).dtype) == dtype:
                return float(array.min()), float(array.max())
    return (0, 3) if np.dtype(dtype).kind in "iu" else (-2, 2)
