"""One self-contained HTML page: the picture of the graph, and for every op its dims, routes, kernels and source.

The page loads nothing: its script and style are in it, and its security policy forbids the network.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from hightide.errors import HightideError
from hightide.formats.instructions import DelegateCall, KernelCall
from hightide.formats.program_file import TensorSpec
from hightide.graph.graph import OpCall, output_ids
from hightide.graph.symbols import evaluate
from hightide.graph.values import TensorValue
from hightide.ops import REGISTRY
from hightide.planning.costs import cost_of
from hightide.planning.planner import Step
from hightide.tools.inspect.file_report import Inspection
from hightide.tools.inspect.listing import CallLine, layers_of
from hightide.tools.inspect.method_listing import VALUE, MethodListing
from hightide.tools.inspect.picture import draw, draw_flows
from hightide.tools.inspect.planning import PlannedPart
from hightide.tools.levels.formulas import Formula
from hightide.tools.levels.varying import Symbol
from hightide.wgsl.grid import fold
from hightide.wgsl.shader import Shader

FILES = ("page.html", "page.css", "picture.js", "panel.js")


def write_page(
    path: Path, inspection: Inspection, parts: Sequence[PlannedPart], level: Mapping[str, int] | None
) -> int:
    """Writes the page; its size in bytes."""
    page = make_page(inspection, parts, level).encode()
    path.write_bytes(page)
    return len(page)


def make_page(inspection: Inspection, parts: Sequence[PlannedPart], level: Mapping[str, int] | None = None) -> str:
    kernels = _Kernels()
    report = dataclasses.asdict(inspection.report)
    for method in report["methods"]:
        for part in method["parts"]:
            part["constants"] = part["constants"][:20]
    graphs = [_part(part, level, kernels) for part in parts]
    listings = inspection.listings_of(parts)
    numbers = {part.part.name: len(listings) + n for n, part in enumerate(parts)}  # methods come before their parts
    by_name = {graph["name"]: graph for graph in graphs}
    graphs[:0] = [_method(listing, level, numbers, by_name) for listing in listings]
    data = {"report": report, "parts": graphs, "kernels": kernels.data}
    folder = resources.files("hightide.tools.inspect").joinpath("assets")
    html, css, *scripts = (folder.joinpath(name).read_text("utf-8") for name in FILES)
    name = Path(inspection.report.path).name
    return Template(html).substitute(title=_escaped(name), css=css, js="\n".join(scripts), data=_embedded(data))


def planned_levels(symbols: Sequence[Symbol], asked: Mapping[str, int] | None) -> Iterator[dict[str, int]]:
    """The levels that the page has plans of: the one asked for, one token, a few, the max."""
    default = {s.name: s.default for s in symbols}
    if asked is not None:
        yield default | dict(asked)
    if symbols and symbols[0].places:
        middle = {s.name: s.most // 2 for s in symbols if s.name == "pos"}
        yield default | {s.name: min(1, s.most) for s in symbols if s.places} | middle
        yield default | {s.name: min(16, s.most) for s in symbols if s.places}
    yield default


def _part(planned: PlannedPart, asked: Mapping[str, int] | None, kernels: _Kernels) -> dict[str, Any]:
    part, graph, formulas = planned.part, planned.graph, planned.formulas
    lines = planned.lines
    names = dict(zip(graph.inputs, part.names, strict=True))
    tensors = {id: name for id, name in names.items() if isinstance(graph.values[id], TensorValue)}
    picture = draw(graph, tensors, layers_of(lines))
    levels: list[dict[str, int]] = []
    plans: list[dict[str, Any]] = []
    for at in planned_levels(part.source.symbols, asked):
        if at not in levels:
            try:
                plans.append(_plan(planned, at, kernels))
            except HightideError:
                if asked is not None and not levels:
                    raise  # the one that was asked for
                continue
            levels.append(at)
    dims = {id: [_dim(d) for d in value] for id, value in formulas.dims.items()}
    return {
        "name": part.name,
        "symbols": [{"name": s.name, "most": s.most} for s in part.source.symbols],
        "levels": levels,
        "plans": plans,
        "nodes": {f"n{call.index}": _node(planned, call, line) for call, line in zip(graph.calls, lines, strict=True)},
        "inputs": {f"i{id}": {"name": name, "value": id} for id, name in names.items()},
        "outputs": {f"o{n}": {"name": f"output {n}", "value": id} for n, id in enumerate(graph.outputs)},
        "values": {
            id: {"dtype": value.dtype, "max": list(value.dims), "dims": dims.get(id)}
            for id, value in enumerate(graph.values)
            if isinstance(value, TensorValue) and value.constant is None and id in dims
        },
        "symints": {id: _dim(formula) for id, formula in formulas.symints.items()},
        "checked": len(formulas.levels),
        "top": picture.top.data(),
        "groups": {name: {"label": picture.labels[name], **g.data()} for name, g in picture.groups.items()},
    }


def _method(
    listing: MethodListing,
    asked: Mapping[str, int] | None,
    numbers: Mapping[str, int],
    parts: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """A method as a graph of its own: what runs on NumPy, and its parts as nodes that can be opened."""
    formulas, file, symbols = listing.formulas, listing.file, listing.source.symbols
    dims = {id: [_dim(d) for d in value] for id, value in formulas.dims.items()}
    nodes = {f"n{line.op}": _instruction(listing, line, numbers) for line in listing.lines}
    places = dict.fromkeys([*(f"i{id}" for id in file.inputs), *nodes], -1)
    places |= {f"o{n}": -1 for n in range(len(file.outputs))}
    picture = draw_flows(places, listing.flows())
    levels: list[dict[str, int]] = []
    levels += [at for at in planned_levels(symbols, asked) if at not in levels]
    return {
        "name": f"{file.name}, all instructions",
        "mark": VALUE,
        "symbols": [{"name": s.name, "most": s.most} for s in symbols],
        "levels": levels,
        "plans": [_plan_of_parts(listing, parts, at) for at in levels],
        "nodes": nodes,
        "inputs": {f"i{id}": {"name": name, "value": id} for id, name in listing.names.items()},
        "outputs": {f"o{n}": {"name": f"output {n}", "value": id} for n, id in enumerate(file.outputs)},
        "values": {
            id: {"dtype": spec.dtype, "max": list(spec.dims), "dims": dims[id]}
            for id, spec in enumerate(file.values)
            if isinstance(spec, TensorSpec) and spec.constant is None and id in dims
        },
        "symints": {id: _dim(formula) for id, formula in formulas.symints.items()},
        "checked": len(formulas.levels),
        "top": picture.top.data(),
        "groups": {},
    }


def _plan_of_parts(
    listing: MethodListing, parts: Mapping[str, Mapping[str, Any]], at: Mapping[str, int]
) -> dict[str, Any]:
    """What the parts take together at a level, by the instruction that calls them; see `_plan`."""
    made: dict[str, Any] = {}
    for n, instruction in enumerate(listing.file.instructions):
        if isinstance(instruction, DelegateCall):
            part = parts[listing.parts[instruction.delegate]]
            plan = part["plans"][part["levels"].index(at)] if at in part["levels"] else {}
            rows = [row for rows in plan.values() for row in rows]
            made[f"n{n}"] = [["part", -1, 0, [], *(sum(row[column] for row in rows) for column in (4, 5, 6))]]
    return made


def _instruction(listing: MethodListing, line: CallLine, numbers: Mapping[str, int]) -> dict[str, Any]:
    instruction = listing.file.instructions[line.op]
    about, part = "", None
    if isinstance(instruction, KernelCall):
        about = inspect.getdoc(listing.op(instruction)) or ""
    elif isinstance(instruction, DelegateCall):
        part = numbers[listing.parts[instruction.delegate]]
    return {
        "op": line.op,
        "name": line.name,
        "short": line.name.rpartition("::")[2],
        "family": listing.family(instruction),
        "about": about,
        "view": False,
        "gives": [id for id, _, _ in line.gives],
        "arguments": [[a.name, a.text, list(a.ids)] for a in line.arguments],
        "part": part,
    }


def _node(planned: PlannedPart, call: OpCall, line: CallLine) -> dict[str, Any]:
    op = REGISTRY[call.name]
    short = call.name.removesuffix(".default").rpartition("::")[2]
    for prefix in ("aten.", "et_vk.", "hightide."):
        short = short.removeprefix(prefix)
    return {
        "op": call.index,
        "name": call.name,
        "short": short,
        "family": REGISTRY[call.name].family,
        "about": inspect.getdoc(op) or "",
        "view": call.index in planned.planner.aliases.views,
        "gives": list(output_ids(planned.graph, call)),
        "arguments": [[a.name, a.text, list(a.ids)] for a in line.arguments],
    }


def _plan(planned: PlannedPart, at: Mapping[str, int], kernels: _Kernels) -> dict[str, Any]:
    """Dispatches by node: [route, kernel, groups, grid, bytes read, bytes written, FLOPs]."""
    plan, env = planned.plan_at(at)
    made: dict[str, Any] = {}
    for step in plan.steps:
        groups = max(0, int(evaluate(step.dispatch.groups, env)))
        cost = cost_of(step, env, plan)
        row = [kernels.number(step), groups, list(fold(groups)), cost.bytes_read, cost.bytes_written, cost.flops]
        made.setdefault(f"n{step.call.index}", []).append([step.dispatch.kernel.name, *row])
    return made


class _Kernels:
    """The kernels of all plans, each with its source as the adapter gets it."""

    def __init__(self) -> None:
        self.data: list[dict[str, str]] = []
        self._numbers: dict[Shader, int] = {}

    def number(self, step: Step) -> int:
        kernel = step.dispatch.kernel
        shader = kernel.shader(step.dispatch.halves)
        if shader not in self._numbers:
            self._numbers[shader] = len(self.data)
            self.data.append({"name": kernel.name, "file": kernel.file, "source": shader.text})
        return self._numbers[shader]


def _dim(dim: Any) -> dict[str, Any]:
    if isinstance(dim, Formula):
        return {"text": str(dim), "formula": dim.data()}
    return {"text": "?", "samples": [[dict(level), value] for level, value in dim.samples]}


def _embedded(data: Any) -> str:
    """JSON that cannot end the script element it is in."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
