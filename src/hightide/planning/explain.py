"""What a call would do: its plan as a table of ops, routes, live dims, grids, bytes and FLOPs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hightide.graph.graph import OpCall, input_ids, output_ids
from hightide.graph.symbols import Env, evaluate
from hightide.graph.values import Dims, TensorValue
from hightide.notebook import table
from hightide.ops.cost import Cost
from hightide.ops.storage import GPU_TYPE, gpu_bytes
from hightide.planning.costs import cost_of
from hightide.planning.planner import Plan, Planner, Step
from hightide.units import count, counted, size
from hightide.wgsl.grid import fold

HEAD = ("op", "name", "route", "live dims", "grid", "bytes", "FLOPs")


@dataclass(frozen=True)
class Row:
    """One dispatch, or an op call that needs none."""

    op: int
    name: str
    route: str  # "view" where the op shares its source's memory, "host" for SymInts, "numpy" for a reference
    dims: tuple[Dims, ...]  # live dims of the outputs
    grid: tuple[int, int]
    bytes: int  # the least that it has to read and write
    flops: int = 0

    def cells(self) -> tuple[str, ...]:
        return (
            str(self.op),
            self.name,
            self.route,
            " ".join(dims_text(d) for d in self.dims),
            "" if self.grid == (0, 0) else "x".join(str(g) for g in self.grid if g != 1) or "1",
            size(self.bytes) if self.bytes else "",
            count(self.flops) if self.flops else "",
        )


@dataclass(frozen=True)
class Explanation:
    """The rows of one level; prints as a table."""

    device: str
    level: tuple[Dims, ...]
    rows: tuple[Row, ...]

    @property
    def dispatches(self) -> int:
        return sum(row.grid != (0, 0) for row in self.rows)

    @property
    def cost(self) -> Cost:
        """Of all dispatches; bytes that are read and written are not told apart."""
        return Cost(sum(row.bytes for row in self.rows), 0, sum(row.flops for row in self.rows))

    @property
    def summary(self) -> str:
        inputs = " ".join(dims_text(d) for d in self.level)
        moved = f"{size(self.cost.bytes)} to read and write, {count(self.cost.flops)} FLOPs"
        return f"{self.device}, inputs {inputs}: {counted(self.dispatches, 'dispatch')}, {moved}"

    def __str__(self) -> str:
        lines = [self.summary, *_aligned([HEAD, *(row.cells() for row in self.rows)], right=(4, 5, 6))]
        return "\n".join(lines)

    __repr__ = __str__

    def html(self) -> str:
        return table(self.summary, HEAD, (row.cells() for row in self.rows), right=(0, 4, 5, 6))

    _repr_html_ = html


class Explanations(tuple[Explanation, ...]):
    """Those of a method's parts, in the order in which they run."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(part.html() for part in self)


def explain(session: Any, given: Sequence[Any]) -> Explanation:
    """The plan that `session` (on a GPU or on NumPy) takes for these inputs; nothing is run."""
    inputs, plan, env = session.level(given)
    return explain_plan(session.planner, plan, env, [a.shape for a in inputs], session.name)


def explain_plan(planner: Planner, plan: Plan, env: Env, level: Sequence[Dims], device: str) -> Explanation:
    steps: dict[int, list[Step]] = {}
    for step in plan.steps:
        steps.setdefault(step.call.index, []).append(step)
    rows = [row for call in planner.graph.calls for row in _rows(planner, plan, env, call, steps.get(call.index, ()))]
    return Explanation(device, tuple(level), tuple(rows))


def dims_text(dims: Iterable[object]) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"


def _rows(planner: Planner, plan: Plan, env: Env, call: OpCall, steps: Sequence[Step]) -> Iterator[Row]:
    graph = planner.graph
    outs = tuple(plan.dims[id] for id in output_ids(graph, call) if id in plan.dims)
    for step in steps:
        cost = cost_of(step, env, plan)
        grid = fold(max(0, evaluate(step.dispatch.groups, env)))
        yield Row(call.index, call.name, step.dispatch.kernel.name, outs, grid, cost.bytes, cost.flops)
    if steps:
        return
    if not outs:
        route = "host"
    elif call.index in planner.aliases.views:
        route = "view"
    else:
        route = "empty" if planner.dispatch else "numpy"
    moved = 0
    if route == "numpy":
        tensors = [graph.values[id] for id in (*input_ids(graph, call), *output_ids(graph, call))]
        moved = sum(_bytes(v, plan.dims[v.id]) for v in tensors if isinstance(v, TensorValue))
    yield Row(call.index, call.name, route, outs, (0, 0), moved)


def _bytes(value: TensorValue, dims: Dims) -> int:
    return gpu_bytes(value.dtype, dims) if value.dtype in GPU_TYPE else math.prod(dims) * 4


def _aligned(lines: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    """Columns side by side, those of numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if n in right else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
