"""Writes docs/ops.md and src/hightide/ops/routes.json from the registry and the op cases.

Each case is planned at the levels its test runs, which needs no GPU: the kernels of the plan are its
routes, and the tensors bound to them give the types.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from hightide.graph.graph import Graph, OpCall, output_ids
from hightide.graph.values import ListValue, TensorValue
from hightide.ops import REGISTRY
from hightide.ops.case import Case, all_cases
from hightide.ops.contract import Tensor
from hightide.ops.table import OpRow, Routes, count_line, op_table
from hightide.planning.levels import InputElements, MaxElements, graph_inputs
from hightide.planning.planner import Plan, Planner
from hightide.runtime.case_graph import LEVELS, CaseGraph

ROOT = Path(__file__).resolve().parents[1]
CASES = all_cases()
DOC, DATA = ROOT / "docs" / "ops.md", ROOT / "src" / "hightide" / "ops" / "routes.json"
HEAD = """# `hightide ops`: what is supported

`hightide ops` prints this table, and `hightide ops NAME` a part of it; `scripts/make_ops_doc.py` writes this page.

Every op that runs on the GPU also has a NumPy reference; an op on SymInts is arithmetic on the host. Types and routes
are those that the op cases in `ops/<family>/cases.py` cover, planned at each level that the tests run. Other types may
work, and a type that does not is refused when a session is built. Where float32 is listed, float16 works too: stored as
halves on an adapter that has them, else as float32. The route `view` dispatches nothing. A dash means that the op has
nothing to plan (NumPy only, host) or that no case plans it. Weights in GGUF blocks have tests of their own and are not
in the table. [Programs](guide/programs.md) says how many of torch's own op samples agree with eager.
"""

Found = dict[str, tuple[set[str], set[str]]]  # op name -> (types, routes)


def main() -> None:
    routes = plan_cases()
    DATA.write_text(data_text(routes), encoding="utf-8", newline="\n")
    DOC.write_text(doc_text(routes), encoding="utf-8", newline="\n")


def plan_cases() -> Routes:
    """The types and routes that the cases plan, by op name; a name without cases has those of its op's other names."""
    found: Found = {}
    for case in CASES:
        _plan_case(case, found)
    routes: Routes = {}
    for name, op in sorted(REGISTRY.items()):
        names = [name] if name in found else [other for other in found if REGISTRY[other] is op]
        if names:
            types, kernels = (sorted(set().union(*(found[other][n] for other in names))) for n in (0, 1))
            routes[name] = {"types": types, "routes": kernels}
    return routes


def data_text(routes: Routes) -> str:
    """One line per op, so that a change reads well."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in routes.items())
    return f"{{\n{lines}\n}}\n"


def doc_text(routes: Routes) -> str:
    rows = op_table(routes)
    lines = ["| op | family | runs on | types | routes |", "| --- | --- | --- | --- | --- |", *map(_doc_row, rows)]
    return "\n".join([HEAD, *lines, "", f"{count_line(rows)}.", ""])


def _doc_row(row: OpRow) -> str:
    routes = ", ".join(f"`{route}`" for route in row.routes)
    return f"| `{row.name}` | {row.family} | {row.runs_on} | {', '.join(row.types) or '–'} | {routes or '–'} |"


def _plan_case(case: Case, found: Found) -> None:
    built = CaseGraph(case, np.random.default_rng(7))
    planner, count = Planner(built.graph), len(built.graph.inputs)
    specs = graph_inputs(built.graph, [True] * count, [f"in{n}" for n in range(count)])
    for call in built.graph.calls:
        if call.index in planner.aliases.views:
            types, routes = found.setdefault(call.name, (set(), set()))
            types |= _types_of(built.graph, call)
            routes.add("view")
    _collect(planner.plan_max(MaxElements()), found)
    for live in LEVELS:
        inputs = built.arrays(live)
        _collect(planner.plan([array.shape for array in inputs], InputElements(inputs, specs)), found)


def _collect(plan: Plan, found: Found) -> None:
    for step in plan.steps:
        types, routes = found.setdefault(step.call.name, (set(), set()))
        bound = (*step.dispatch.reads, *step.dispatch.writes)
        types |= {tensor.dtype for tensor in bound if isinstance(tensor, Tensor)}
        routes.add(step.dispatch.kernel.name)


def _types_of(graph: Graph, call: OpCall) -> set[str]:
    """The types of a call's own tensors, for one that binds none."""
    ids = [*call.args.values(), *output_ids(graph, call)]
    values = [graph.values[id] for id in ids]
    values += [graph.values[id] for value in values if isinstance(value, ListValue) for id in value.items]
    return {value.dtype for value in values if isinstance(value, TensorValue)}


if __name__ == "__main__":
    main()
