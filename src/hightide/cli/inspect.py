"""`hightide inspect`: what is in a program, its graph with live dims as formulas, its plan at a level, its picture."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from hightide.cli.groups import grouped
from hightide.cli.model import model_file
from hightide.cli.options import MODEL_HELP, Device, Json, note
from hightide.cli.window import window
from hightide.errors import InputError, UnsupportedError
from hightide.runtime.build import choose_device, named_device
from hightide.tools.inspect.file_report import Inspection, inspect_file
from hightide.tools.inspect.inspect_page import write_page
from hightide.tools.inspect.inspect_tables import PLAIN_WIDTH, print_graph, print_plan, print_report
from hightide.tools.inspect.planning import PlannedPart, Target, target_of
from hightide.tools.opened_file import parse_at
from hightide.units import counted


@dataclasses.dataclass(frozen=True)
class ShownParts:
    """Which graphs are looked at."""

    method: Annotated[str | None, typer.Option(help="Only this method.")] = None
    part: Annotated[int | None, typer.Option(min=0, help="Only this part, of a method that has several.")] = None
    fuse: Annotated[bool, typer.Option(help="Show the graph that runs; with --no-fuse, those in the file.")] = True


@grouped
def inspect(
    file: Annotated[str, typer.Argument(metavar="FILE", help=MODEL_HELP, show_default=False)],
    graph: Annotated[bool, typer.Option("--graph", help="List the op calls, with live dims as formulas.")] = False,
    at: Annotated[
        str | None, typer.Option(metavar="S=17,pos=40", help="Show the plan at a level: routes, grids, bytes, FLOPs.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML page with a picture of the graph.")
    ] = None,
    *,
    parts: ShownParts,
    every: Annotated[bool, typer.Option("--all", help="List every layer and every constant.")] = False,
    context: Annotated[int | None, typer.Option(min=1, help="Tokens that the KV cache of a GGUF model holds.")] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Show what is in a program or model: methods, live shapes, ops, memory.

    With options also its graph, its plan at a level, and a picture.
    Nothing is built for it, and no adapter is needed.
    """
    level = None if at is None else parse_at(at)
    inspection = inspect_file(model_file(file), _target(device), context=context, fused=parts.fuse)
    chosen = _chosen(inspection, parts.method, parts.part)
    if html is not None:
        nbytes = write_page(html, inspection, chosen, level)
        note(f"{html}: {nbytes / 1e6:.2f} MB, {counted(sum(len(p.graph.calls) for p in chosen), 'op call')}")
    if as_json:
        print(json.dumps(_as_json(inspection, chosen, graph, level), indent=2))
    elif html is None or graph or level is not None:
        _show(inspection, chosen, graph, level, every)
    if inspection.report.missing:
        raise UnsupportedError(f"{file} cannot run here: it needs {', '.join(inspection.report.missing)}")


def _target(device: str | None) -> Target:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without an adapter the report says what it planned for
        return target_of(choose_device(named_device(device)))


def _chosen(inspection: Inspection, method: str | None, number: int | None) -> list[PlannedPart]:
    """The parts that are asked for."""
    if method is not None and method not in inspection.parts and not inspection.report.missing:
        known = ", ".join(inspection.parts) or "none that run"
        raise InputError(f"{inspection.report.path} has no method {method!r}; it has {known}")
    parts = [p for name, ps in inspection.parts.items() if method in (None, name) for p in ps]
    if number is None:
        return parts
    found = [p for p in parts if p.part.number == number]
    if not found:
        raise InputError(f"there is no part {number}; the parts are {', '.join(str(p.part.number) for p in parts)}")
    return found


def _show(
    inspection: Inspection, chosen: list[PlannedPart], graph: bool, level: Mapping[str, int] | None, every: bool
) -> None:
    console = window(PLAIN_WIDTH)
    if not graph and level is None:
        print_report(console, inspection.report, every)
    for listing in inspection.listings_of(chosen) if graph else ():
        title = f"{listing.file.name}: {listing.summary}"
        print_graph(console, title, listing.lines, len(listing.formulas.levels), every)
    for planned in chosen if graph else ():
        title = f"{planned.part.name}: {planned.summary}"
        print_graph(console, title, planned.lines, len(planned.formulas.levels), every)
    for planned in chosen if level is not None else ():
        print_plan(console, planned.part.name, planned.explain_at(level or {}), every)


def _as_json(
    inspection: Inspection, chosen: list[PlannedPart], graph: bool, level: Mapping[str, int] | None
) -> dict[str, Any]:
    made: dict[str, Any] = dataclasses.asdict(inspection.report)
    if graph:
        made["graphs"] = {
            p.part.name: {
                "symbols": p.part.symbols,
                "checked_levels": [dict(level) for level in p.formulas.levels],
                "calls": [dataclasses.asdict(line) for line in p.lines],
            }
            for p in chosen
        }
        made["instructions"] = {
            listing.file.name: [dataclasses.asdict(line) for line in listing.lines]
            for listing in inspection.listings_of(chosen)
        }
    if level is not None:
        made["plans"] = {
            p.part.name: {"at": p.part.level(level), **dataclasses.asdict(p.explain_at(level))} for p in chosen
        }
    return made
