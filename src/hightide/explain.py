"""What a call would do: its plan as a table of ops, routes, live dims, grids and bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hightide.gpu.memory import gpu_bytes
from hightide.graph.aliases import input_ids, output_ids
from hightide.graph.symbols import Env, evaluate
from hightide.graph.values import Dims, TensorValue
from hightide.ops.contract import GPU_TYPE, Tensor
from hightide.plan import Plan, Planner, fold


@dataclass(frozen=True)
class Row:
    """One dispatch, or an op call that needs none."""

    op: int
    name: str
    route: str  # "view" where the op shares its source's memory, "host" for SymInts, "numpy" for a reference
    dims: tuple[Dims, ...]  # live dims of the outputs
    grid: tuple[int, int]
    bytes: int  # of the tensors bound, at their live dims


@dataclass(frozen=True)
class Explanation:
    """The rows of one level; prints as a table."""

    device: str
    level: tuple[Dims, ...]
    rows: tuple[Row, ...]

    @property
    def dispatches(self) -> int:
        return sum(row.grid != (0, 0) for row in self.rows)

    def __str__(self) -> str:
        head = ("op", "name", "route", "live dims", "grid", "bytes bound")
        cells = [
            (
                str(row.op),
                row.name,
                row.route,
                " ".join(_dims(d) for d in row.dims),
                "" if row.grid == (0, 0) else "x".join(str(g) for g in row.grid if g != 1) or "1",
                f"{row.bytes:,}" if row.bytes else "",
            )
            for row in self.rows
        ]
        widths = [max(len(line[n]) for line in (head, *cells)) for n in range(len(head))]
        lines = [f"{self.device}, inputs {' '.join(_dims(d) for d in self.level)}: {self.dispatches} dispatches"]
        for line in (head, *cells):
            left = "  ".join(cell.ljust(width) for cell, width in zip(line[:-1], widths, strict=False))
            lines.append(f"{left}  {line[-1].rjust(widths[-1])}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__


def explain(session: Any, given: Sequence[Any]) -> Explanation:
    """The plan that `session` (on a GPU or on NumPy) takes for these inputs; nothing is run."""
    inputs, plan, env = session.level(given)
    return explain_plan(session.planner, plan, env, [a.shape for a in inputs], session.name)


def explain_plan(planner: Planner, plan: Plan, env: Env, level: Sequence[Dims], device: str) -> Explanation:
    graph, rows = planner.graph, []
    dispatches: dict[int, list[Any]] = {}
    for step in plan.steps:
        dispatches.setdefault(step.call.index, []).append(step.dispatch)
    for call in graph.calls:
        outs = tuple(plan.dims[id] for id in output_ids(graph, call) if id in plan.dims)
        for dispatch in dispatches.get(call.index, ()):
            bound = [b for b in (*dispatch.reads, *dispatch.writes) if isinstance(b, Tensor)]
            rows.append(
                Row(
                    call.index,
                    call.name,
                    dispatch.kernel.name,
                    outs,
                    fold(max(0, evaluate(dispatch.groups, env))),
                    sum(_bytes(b.value, b.dims) for b in bound),
                )
            )
        if call.index not in dispatches:
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
            rows.append(Row(call.index, call.name, route, outs, (0, 0), moved))
    return Explanation(device, tuple(level), tuple(rows))


def _bytes(value: TensorValue, dims: Dims) -> int:
    return gpu_bytes(value.dtype, dims) if value.dtype in GPU_TYPE else math.prod(dims) * 4


def _dims(dims: Dims) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"
