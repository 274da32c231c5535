"""What there is of each op: its family, where it runs, and the types and routes that its cases plan.

Names, families and places come from the registry. Types and routes come from `routes.json`, which
`scripts/make_ops_doc.py` writes by planning the op cases.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files

from hightide.ops import FAMILIES, REGISTRY
from hightide.ops.contract import Op, SymIntOp, has_kernel

GPU, NUMPY, HOST = "GPU + NumPy", "NumPy only", "host"
Routes = dict[str, dict[str, list[str]]]  # op name -> {"types": [...], "routes": [...]}


@dataclass(frozen=True)
class OpRow:
    """One name of the registry; several names may be one op."""

    name: str
    family: str
    runs_on: str  # GPU, NUMPY, or HOST for an op on SymInts
    summary: str  # "" for one of many ops made from a template
    types: tuple[str, ...]  # element types of the tensors, as programs declare them
    routes: tuple[str, ...]  # kernels, and "view" where nothing is dispatched

    @property
    def gpu(self) -> bool:
        return self.runs_on == GPU


def op_table(routes: Routes | None = None) -> list[OpRow]:
    """Every op by family, then by name; `routes` in place of the file's."""
    routes = read_routes() if routes is None else routes
    order = list(FAMILIES)
    rows = [_row(name, op, routes.get(name, {})) for name, op in REGISTRY.items()]
    return sorted(rows, key=lambda row: (order.index(row.family), row.name))


def read_routes() -> Routes:
    routes: Routes = json.loads(files("hightide.ops").joinpath("routes.json").read_text("utf-8"))
    return routes


def count_line(rows: Iterable[OpRow]) -> str:
    """How many there are, and how many of them run where."""
    counts = Counter(row.runs_on for row in rows)
    parts = ", ".join(f"{counts[place]} {place}" for place in (GPU, NUMPY, HOST) if counts[place])
    total = counts.total()
    return f"{total} op{'s' * (total != 1)}: {parts}"


def _row(name: str, op: type[Op], planned: dict[str, list[str]]) -> OpRow:
    place = HOST if issubclass(op, SymIntOp) else GPU if has_kernel(op) else NUMPY
    types, routes = (tuple(planned.get(key, ())) for key in ("types", "routes"))
    summary = (op.__doc__ or "").strip().split("\n")[0]
    return OpRow(name, op.family, place, summary, types, routes)
