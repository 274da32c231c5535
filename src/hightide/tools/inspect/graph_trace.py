"""The live dims of a graph as formulas of what varies, checked.

Dims go through the graph once as numbers that remember how they were made (`formulas.Live`). What comes out
is then compared with plans at other levels. A formula that does not hold at every one of them is
not shown: another is fitted to all the levels, and if none fits, the dim is shown as `?` with its values.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from hightide.errors import HightideError
from hightide.graph.graph import Graph
from hightide.graph.symbols import Env, Opaque, Sym, SymExpr, evaluate
from hightide.planning.levels import MaxElements
from hightide.planning.planner import Plan, Planner
from hightide.tools.levels.formulas import Extreme, Formula, Live, formula_of
from hightide.tools.levels.level_sources import MethodSource
from hightide.tools.levels.varying import INT32_MAX, Symbol, dims_at
from hightide.tools.opened_file import Part

LEVELS = 16  # at which formulas are checked
TRIES = 100  # levels tried to find those


@dataclass(frozen=True)
class Unknown:
    """A dim that no formula was found for: its values at the levels that were tried."""

    samples: tuple[tuple[tuple[tuple[str, int], ...], int], ...]  # (level, value)

    def __str__(self) -> str:
        return "?"


Dim: TypeAlias = Formula | Unknown
Rows: TypeAlias = Sequence[tuple[Mapping[str, int], int]]  # (level, value)


@dataclass(frozen=True)
class Formulas:
    """Every tensor's live dims and every SymInt of a graph, by value id."""

    dims: dict[int, tuple[Dim, ...]]
    symints: dict[int, Dim]
    levels: tuple[Mapping[str, int], ...]  # at which they were checked

    @property
    def unknown(self) -> list[Unknown]:
        every = (*(d for dims in self.dims.values() for d in dims), *self.symints.values())
        return [dim for dim in every if isinstance(dim, Unknown)]


@dataclass(frozen=True)
class _Sampled:
    """A level with the integers in the inputs, and what the plan says there."""

    level: Mapping[str, int]
    env: Env
    plan: Plan


def trace(part: Part, graph: Graph | None = None) -> Formulas:
    """The formulas of a part's graph, or of what passes made of it."""
    planner = Planner(part.graph if graph is None else graph, dispatch=False)
    sampled = list(_samples(part, planner, part.source.symbols))
    if not sampled:  # no run comes to it: the dims that it may have at most
        most = planner.plan_max(MaxElements()).dims
        return Formulas({id: tuple(map(formula_of, dims)) for id, dims in most.items()}, {}, ())
    tracer = _Tracer(planner, part, sampled)
    ids = sorted({id for s in sampled for id in s.plan.dims})
    dims = {
        id: tuple(
            tracer.checked(_Axis(id, axis), [(s.level, int(s.plan.dims[id][axis])) for s in sampled])
            for axis in range(len(sampled[0].plan.dims[id]))
        )
        for id in ids
    }
    symints = {
        id: tracer.checked(_Axis(id, None), [(s.level, int(evaluate(s.plan.symints[id], s.env))) for s in sampled])
        for id in sorted({id for s in sampled for id in s.plan.symints})
    }
    return Formulas(dims, symints, tuple(s.level for s in sampled))


def trace_method(source: MethodSource) -> Formulas:
    """What the instructions of a method give: dims of tensors, and integers."""
    rows: list[tuple[Mapping[str, int], dict[int, Any]]] = []
    for level in sample_levels(source.symbols):
        if len(rows) < LEVELS and all(level != other for other, _ in rows):
            live = {name: Live(value, Formula.of(name)) for name, value in level.items()}
            try:
                run = source.run_at(live)
            except HightideError:
                continue
            given = dict(zip(source.file.inputs, dims_at(source.specs, source.symbols, live), strict=True))
            outputs = dict(zip(source.file.outputs, run.outputs, strict=True))
            rows.append((level, given | outputs | run.values))
    dims: dict[int, tuple[Dim, ...]] = {}
    symints: dict[int, Dim] = {}
    for id in sorted({id for _, values in rows for id in values}):
        seen = [(level, values[id]) for level, values in rows if id in values]
        if isinstance(seen[0][1], tuple):
            dims[id] = tuple(_fitted([(level, d[axis]) for level, d in seen]) for axis in range(len(seen[0][1])))
        else:
            symints[id] = _fitted(seen)
    return Formulas(dims, symints, tuple(level for level, _ in rows))


def _fitted(seen: Sequence[tuple[Mapping[str, int], int]]) -> Dim:
    """The formula of a number that remembers how it was made at each level."""
    return _agreed([formula_of(value) for _, value in seen], [(level, int(value)) for level, value in seen])


# ---- levels


def sample_levels(symbols: Sequence[Symbol]) -> Iterable[dict[str, int]]:
    """Levels worth trying: all at the max, all small, one small at a time, then mixed; always the same ones."""
    yield {s.name: s.default for s in symbols}
    if not symbols:
        return
    for n in (1, 2, 4):
        yield {s.name: min(n, s.most) if s.places else s.default for s in symbols}
    for symbol in symbols:
        for n in (3, 7):
            yield {s.name: min(n, s.most) if s is symbol else s.default for s in symbols}
    rng = random.Random(0)
    for _ in range(TRIES):
        yield {s.name: rng.choice(_sizes(s)) for s in symbols}


def _sizes(symbol: Symbol) -> list[int]:
    """Small and odd ones, those near the max, and multiples of powers of two (a program may take no other)."""
    most = symbol.most if symbol.most < INT32_MAX else 64
    wanted = [1, 2, 3, 5, 6, 7, 8, 11, 13, 16, 17, 24, 29, 32, 37, 64, 96, 128]
    wanted += [most, most - 1, most - 2, most - 8, most - 16, most - 32, most // 2, most // 3, most // 4]
    return sorted({n for n in wanted if (1 if symbol.places else 0) <= n <= most} | {min(1, most)})


def _samples(part: Part, planner: Planner, symbols: Sequence[Symbol]) -> Iterable[_Sampled]:
    seen: set[tuple[int, ...]] = set()
    for level in sample_levels(symbols):
        key = tuple(level.values())
        if key in seen or len(seen) == LEVELS or _keeps_too_many(level):
            continue
        try:
            dims, env = part.level_at(level)
            plan = planner.plan(dims, env)
            for bound in plan.bounds:
                bound.check(env)
        except HightideError:
            continue
        seen.add(key)
        yield _Sampled(level, env, plan)


def _keeps_too_many(level: Mapping[str, int]) -> bool:
    """More logits than tokens: planned, as a slice that starts below 0 counts from its end, but nobody asks for it."""
    return level.get("keep", 0) > level.get("S", INT32_MAX)


# ---- tracing


@dataclass(frozen=True)
class _Axis:
    """One dim of a tensor, or a SymInt."""

    id: int
    axis: int | None


class _Tracer:
    """Passes over a graph with numbers that remember, each at one of the levels, made when they are needed."""

    def __init__(self, planner: Planner, part: Part, sampled: Sequence[_Sampled]) -> None:
        self.planner, self.part, self.sampled = planner, part, sampled
        # First a level where no two things are the same by chance, then the max, then all others.
        self.order = sorted(range(len(sampled)), key=self._alike)
        self.passes: list[dict[_Axis, Formula]] = []

    def checked(self, axis: _Axis, rows: Rows) -> Dim:
        """The formula of a dim; passes are made until one gives it."""
        if all(value == rows[0][1] for _, value in rows):
            return Formula.of(rows[0][1])
        found = (self._pass(n).get(axis) for n in range(len(self.order)))
        return _agreed((formula for formula in found if formula is not None), rows)

    def _alike(self, at: int) -> tuple[int, int]:
        values = list(self.sampled[at].level.values())
        return -len(set(values)), -min(values, default=0)

    def _pass(self, n: int) -> dict[_Axis, Formula]:
        while len(self.passes) <= n:
            level = self.sampled[self.order[len(self.passes)]].level
            self.passes.append(_traced(self.planner, self.part, level))
        return self.passes[n]


def _traced(planner: Planner, part: Part, level: Mapping[str, int]) -> dict[_Axis, Formula]:
    """Formulas of dims and of SymInts, as they come out of one pass."""
    live = {name: Live(value, Formula.of(name)) for name, value in level.items()}
    try:
        dims, env = part.level_at(live)
        plan = planner.plan(dims, env)
    except HightideError:  # a number that remembers must not change what is accepted; if it does, nothing is traced
        return {}
    found = {_Axis(id, axis): formula_of(d) for id, dims in plan.dims.items() for axis, d in enumerate(dims)}
    return found | {_Axis(id, None): _of_symint(expr, env) for id, expr in plan.symints.items()}


def _of_symint(expr: SymExpr, env: Env) -> Formula:
    if not isinstance(expr, Sym):
        return formula_of(expr)
    total = formula_of(expr.const)
    for atom, c in expr.terms:
        if isinstance(atom, Opaque):
            left, right = _of_symint(atom.left, env), _of_symint(atom.right, env)
            value = left * right if atom.kind == "mul" else left // right
        else:
            value = formula_of(env[atom])
        total = total + formula_of(c) * value
    return total


# ---- checking and fitting


def holds(formula: Formula, rows: Rows) -> bool:
    try:
        return all(formula.value(level) == value for level, value in rows)
    except ZeroDivisionError:
        return False


def _agreed(traced: Iterable[Formula], rows: Rows) -> Dim:
    """Of formulas from several passes one that holds everywhere, or the larger or smaller of two, or the values."""
    found: dict[Formula, None] = {}
    for formula in traced:
        if formula not in found:
            if holds(formula, rows):
                return formula
            found[formula] = None
    for left, right in combinations(found, 2):
        for kind in ("max", "min"):
            clamped = Formula({(Extreme(kind, left, right),): 1})
            if holds(clamped, rows):
                return clamped
    return fit(rows) or Unknown(tuple((tuple(level.items()), value) for level, value in rows))


def fit(rows: Rows) -> Formula | None:
    """The simplest formula that gives these values, with more levels to agree than numbers to choose."""
    if all(value == rows[0][1] for _, value in rows):
        return Formula.of(int(rows[0][1]))
    names = [name for name in rows[0][0] if len({level[name] for level, _ in rows}) > 1]
    single = [Formula.of(name) for name in names]
    squares = [a * b for a, b in combinations(single, 2)]
    for features in (single, [*single, *squares]):
        if (found := _linear(features, rows)) is not None:
            return found
    return None


def _linear(features: Sequence[Formula], rows: Rows) -> Formula | None:
    """Whole numbers a, b, ... with a * feature + b * feature + ... + c; exact at every level."""
    table = np.array([[f.value(level) for f in features] + [1] for level, _ in rows], np.float64)
    if np.linalg.matrix_rank(table) < table.shape[1] or len(rows) < table.shape[1] + 2:
        return None
    solved = np.linalg.lstsq(table, np.array([value for _, value in rows], np.float64), rcond=None)[0]
    found = Formula.of(round(solved[-1]))
    for feature, c in zip(features, solved[:-1], strict=True):
        found = found + Formula.of(round(c)) * feature
    return found if holds(found, rows) else None
