"""A session as plain data: what a page needs to replay every level of a graph.

Much repeats: layers differ in their buffers only, levels in their parameters and grids. So a level is a *course*, the
bind groups to go through, which many levels share, and for each *slot* of it a parameter block and a grid. Dispatches
that have the same parameters and grid at every level are one slot.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from hightide.errors import UnsupportedError
from hightide.gpu.device import buffer_size
from hightide.graph.symbols import Element, Sym, SymExpr
from hightide.graph.values import Dims, TensorValue
from hightide.ops.kernel import Scratch, Tensor
from hightide.planning.levels import InputSpec
from hightide.planning.memory import MemoryPlan
from hightide.planning.planner import Plan, Planner
from hightide.runtime.ready_plans import shader_of
from hightide.runtime.session_plan import plan_session
from hightide.runtime.step_block import SYMINTS, block_places, small_inputs
from hightide.runtime.words import held_dtype
from hightide.wgsl.shader import Interface, ParamValues, Shader

Data = dict[str, Any]  # of JSON

_COMMENT = re.compile(r"//.*")
_SUBGROUPS = re.compile(r"\b(subgroup(_|[A-Z])|quad(Broadcast|Swap))")


@dataclass
class SharedTables:
    """What the sessions of one export have in common: kernels by the hash of their text, and parameter blocks."""

    kernels: dict[str, Data] = field(default_factory=dict)
    params: list[list[int]] = field(default_factory=list)
    _names: dict[Shader, str] = field(default_factory=dict)
    _blocks: dict[tuple[int, ...], int] = field(default_factory=dict)
    _packed: dict[tuple[Interface, ParamValues], int] = field(default_factory=dict)

    def kernel(self, shader: Shader) -> str:
        if shader not in self._names:
            text = standard_text(shader.text)
            name = self._names[shader] = sha256(text.encode()).hexdigest()[:16]
            self.kernels[name] = {
                "name": shader.name,
                "text": text,
                "reads": len(shader.interface.reads),
                "writes": len(shader.interface.writes),
                "live": shader.live,
            }
        return self._names[shader]

    def block(self, interface: Interface, params: ParamValues) -> int:
        """The number of a block of parameters: its words, without the zeros at its end."""
        key = interface, params
        if key not in self._packed:
            words = memoryview(interface.pack(params)).cast("I").tolist()
            while words and not words[-1]:
                words.pop()
            number = self._blocks.setdefault(tuple(words), len(self.params))
            if number == len(self.params):
                self.params.append(words)
            self._packed[key] = number
        return self._packed[key]


@dataclass(frozen=True)
class SessionTables:
    """The data of a session, the constants that its buffers begin with: (buffer, tensor), and the levels' plans."""

    data: Data
    constants: list[tuple[int, TensorValue]]
    plans: list[Plan]


def session_tables(
    planner: Planner,
    specs: Sequence[InputSpec],
    levels: Sequence[Sequence[Dims]],
    shared: SharedTables,
    fed: Collection[str] = (),
) -> SessionTables:
    """A graph at these levels, each given by the dims of all inputs. Those in `fed` are written on the GPU alone."""
    planned = plan_session(planner, specs, levels)
    if any(plan.pins for plan in planned.plans):
        raise UnsupportedError("its shapes are made from numbers in its inputs, so its levels cannot be listed")
    apart = {id for id, spec in zip(planner.graph.inputs, specs, strict=True) if spec.name in fed}
    buffers = _Buffers(planner, planned.memory, apart)
    courses = _Courses(buffers, shared)
    plans = planned.plans[1:]  # behind the max
    slots = courses.slots(plans)
    graph = planner.graph
    outputs = [graph.values[id] for id in graph.outputs]
    listed = [
        _level(planner, plan, dims, course, [values[first] for first in dict.fromkeys(slots[course])])
        for plan, dims, (course, values) in zip(plans, levels, courses.taken, strict=True)
    ]
    data = {
        "inputs": [
            _drop_none(
                name=spec.name,
                dtype=spec.dtype,
                held=held(graph.values[id]),
                dims=list(spec.dims),
                dynamic=spec.dynamic,
                place=buffers.inputs.get(id),
            )
            for spec, id in zip(specs, graph.inputs, strict=True)
        ],
        "outputs": [
            {"dtype": value.host_dtype, "held": held(value), "place": buffers.place(value.id)}
            if isinstance(value, TensorValue)
            else {"dtype": "int64", "symint": planner.slots[value.id]}
            for value in outputs
        ],
        "buffers": buffers.sizes,
        "symints": {"place": buffers.symints, "count": len(planner.slots)},
        "state": sorted(buffers.number(id) for id in planner.aliases.state),
        "groups": courses.groups,
        "courses": [
            {"groups": list(course), "slots": _numbered(first)}
            for course, first in zip(courses.courses, slots, strict=True)
        ],
        "levels": listed,
    }
    return SessionTables(data, buffers.constants, plans)


def standard_text(text: str) -> str:
    """WGSL as the standard has it, without comments: naga refuses the line that others need for subgroups."""
    lines = (_COMMENT.sub("", line).strip() for line in text.splitlines())
    head = ["enable subgroups;"] if _SUBGROUPS.search(text) else []
    return "\n".join([*head, *filter(None, lines)]) + "\n"


def formula(expr: SymExpr) -> Any:
    """A number, or ["+", ...], ["*", ...], ["//", a, b], ["in", input, flat index]."""
    if not isinstance(expr, Sym):
        return int(expr)
    terms = []
    for atom, coefficient in expr.terms:
        if isinstance(atom, Element):
            term: Any = ["in", atom.position, atom.flat]
        else:
            term = ["*" if atom.kind == "mul" else "//", formula(atom.left), formula(atom.right)]
        terms.append(term if coefficient == 1 else ["*", coefficient, term])
    if expr.const:
        terms.append(expr.const)
    return terms[0] if len(terms) == 1 else ["+", *terms]


def _level(planner: Planner, plan: Plan, dims: Sequence[Dims], course: int, slots: list[tuple[int, Any]]) -> Data:
    graph = planner.graph
    outputs = [graph.values[id] for id in graph.outputs]
    symints = {planner.slots[id]: formula(expr) for id, expr in plan.symints.items()}
    return {
        "dims": [list(d) for d in dims],
        "course": course,
        "slots": [[block, grid] for block, grid in slots],
        "outputs": [list(plan.dims.get(v.id, v.dims)) if isinstance(v, TensorValue) else [] for v in outputs],
        "symints": [symints.get(slot, 0) for slot in range(len(planner.slots))],
        "bounds": [[formula(b.expr), b.low, b.high, b.message] for b in reversed(plan.bounds)],
        "indices": [[b.position, b.low, b.high, b.what] for b in plan.index_bounds],
    }


class _Buffers:
    """The buffers of a session by number; small inputs and the SymInts share the last."""

    def __init__(self, planner: Planner, memory: MemoryPlan, apart: Collection[int]) -> None:
        self.graph, self.root, self.memory = planner.graph, planner.aliases.root, memory
        self.sizes = [buffer_size(size) for size in memory.shared_sizes]
        self.constants: list[tuple[int, TensorValue]] = []
        self.inputs: dict[int, list[int]] = {}  # [buffer, offset, bytes], by value id
        self._own: dict[int, int] = {}
        small = small_inputs(self.graph, planner.aliases, memory.own, apart)
        for id, size in memory.own.items():
            if id in small:
                continue
            self._own[id] = len(self.sizes)
            self.sizes.append(buffer_size(size))
            value = self.graph.values[id]
            assert isinstance(value, TensorValue)
            if id in self.graph.inputs:
                self.inputs[id] = [self._own[id], 0, buffer_size(size)]
            else:
                self.constants.append((self._own[id], value))
        places = block_places(small)
        for id in small:
            self._own[id] = len(self.sizes)
            self.inputs[id] = [len(self.sizes), *places[id]]
        self.symints = [len(self.sizes), *places[SYMINTS]]
        self.sizes.append(sum(places[SYMINTS]))

    def number(self, what: int | Scratch) -> int:
        if isinstance(what, Scratch):
            return self.memory.shared[what]
        root = self.root[what]
        return self._own[root] if root in self._own else self.memory.shared[root]

    def place(self, what: int | Scratch) -> int | list[int]:
        """What a bind group has: a whole buffer, or [buffer, offset, bytes]."""
        root = what if isinstance(what, Scratch) else self.root[what]
        inside = self.inputs.get(root) if isinstance(root, int) else None
        number = self.number(what)
        return inside if inside is not None and inside[0] == self.symints[0] else number


class _Courses:
    """The bind groups and courses of some plans."""

    def __init__(self, buffers: _Buffers, shared: SharedTables) -> None:
        self.buffers, self.shared = buffers, shared
        self.groups: list[Any] = []  # [kernel, place, ...]
        self.courses: list[tuple[int, ...]] = []
        self.taken: list[tuple[int, list[tuple[int, Any]]]] = []  # per plan: its course, (block, grid) per dispatch
        self._groups: dict[Any, int] = {}
        self._courses: dict[tuple[int, ...], int] = {}

    def slots(self, plans: Iterable[Plan]) -> list[list[int]]:
        """Take the plans. For each course, the first dispatch that has what each has, at all its levels."""
        for plan in plans:
            course = tuple(self._group(step.dispatch) for step in plan.steps)
            number = self._courses.setdefault(course, len(self.courses))
            if number == len(self.courses):
                self.courses.append(course)
            values = [
                (self.shared.block(step.dispatch.kernel.interface, step.dispatch.params), formula(step.dispatch.groups))
                for step in plan.steps
            ]
            self.taken.append((number, values))
        return [list(self._firsts(number, len(course))) for number, course in enumerate(self.courses)]

    def _firsts(self, course: int, length: int) -> Iterator[int]:
        levels = [values for number, values in self.taken if number == course]
        seen: dict[str, int] = {}
        for n in range(length):
            yield seen.setdefault(repr([values[n] for values in levels]), n)

    def _group(self, dispatch: Any) -> int:
        kernel = self.shared.kernel(shader_of(dispatch))
        bound = [b.value.id if isinstance(b, Tensor) else b for b in (*dispatch.reads, *dispatch.writes)]
        group = [kernel, *(self.buffers.place(what) for what in bound)]
        key = repr(group)
        if key not in self._groups:
            self._groups[key] = len(self.groups)
            self.groups.append(group)
        return self._groups[key]


def _numbered(firsts: Sequence[int]) -> list[int]:
    numbers: Mapping[int, int] = {first: n for n, first in enumerate(dict.fromkeys(firsts))}
    return [numbers[first] for first in firsts]


def held(value: Any) -> str:
    return held_dtype(value.dtype) if isinstance(value, TensorValue) else "int32"


def _drop_none(**fields: Any) -> Data:
    return {name: value for name, value in fields.items() if value is not None}
