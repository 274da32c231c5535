"""`hightide inspect`: what is in a program, its graph with live dims as formulas, its plan at a level, its picture."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hightide.cli.options import DEFAULT, Device, Json, check_kind, note
from hightide.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from hightide.tools.inspect.file_report import Inspection
    from hightide.tools.inspect.planning import PlannedPart, Target


def inspect(
    file: Annotated[str, typer.Argument(help=f"A .pte or GGUF file, or '{DEFAULT}'.", show_default=False)],
    graph: Annotated[bool, typer.Option("--graph", help="List the op calls with their live dims as formulas.")] = False,
    at: Annotated[
        str | None, typer.Option(metavar="S=17,pos=40", help="The plan at a level: routes, grids, bytes, FLOPs.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one page with a picture of the graph.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Only this method.")] = None,
    part: Annotated[int | None, typer.Option(min=0, help="Only this part of a method that has several.")] = None,
    fuse: Annotated[bool, typer.Option(help="Show the graph that runs, or with --no-fuse that of the file.")] = True,
    every: Annotated[bool, typer.Option("--all", help="List every layer and every constant.")] = False,
    context: Annotated[int | None, typer.Option(min=1, help="Of a GGUF model: tokens to keep in mind.")] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Look inside a program: methods, what varies, ops, memory; its graph, its plan at a level, its picture."""
    from hightide.tools.inspect.file_report import inspect_file
    from hightide.tools.opened_file import parse_at

    level = None if at is None else parse_at(at)
    inspection = inspect_file(_path(file), _target(device), context=context, fused=fuse)
    chosen = _chosen(inspection, method, part)
    if html is not None:
        from hightide.tools.inspect.inspect_page import write_page

        nbytes = write_page(html, inspection, chosen, level)
        note(f"{html}: {nbytes / 1e6:.2f} MB, {sum(len(p.graph.calls) for p in chosen)} op calls")
    if as_json:
        print(json.dumps(_as_json(inspection, chosen, graph, level), indent=2))
    elif html is None or graph or level is not None:
        _show(inspection, chosen, graph, level, every)
    if inspection.report.missing:
        raise UnsupportedError(f"{file} cannot run here: it needs {', '.join(inspection.report.missing)}")


def _path(file: str) -> Path:
    if file == DEFAULT:
        from hightide.llm.default_model import default_model

        return default_model()
    path = Path(file)
    if not path.is_file():
        raise InputError(f"{path} is not a file")
    check_kind(path)
    return path


def _target(device: str | None) -> Target:
    from hightide.pte.program import choose_device, named_device
    from hightide.tools.inspect.planning import target_of

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
        raise InputError(f"there is no part {number}; there are {', '.join(str(p.part.number) for p in parts)}")
    return found


def _show(
    inspection: Inspection, chosen: list[PlannedPart], graph: bool, level: Mapping[str, int] | None, every: bool
) -> None:
    from rich.console import Console

    from hightide.tools.inspect.inspect_tables import PLAIN_WIDTH, print_graph, print_plan, print_report
    from hightide.tools.inspect.listing import list_graph

    terminal = sys.stdout.isatty()
    width = None if terminal or "COLUMNS" in os.environ else PLAIN_WIDTH
    console = Console(width=width, highlight=False, markup=False, record=not terminal)
    if not terminal:
        console.file = io.StringIO()
    if not graph and level is None:
        print_report(console, inspection.report, every)
    for planned in chosen if graph else ():
        lines = list_graph(planned.graph, planned.formulas, planned.part.names)
        print_graph(console, planned.part.name, lines, len(planned.formulas.levels), every)
    for planned in chosen if level is not None else ():
        print_plan(console, planned.part.name, planned.explain_at(level or {}), every)
    if not terminal:  # a table fills its lines with blanks
        print("\n".join(line.rstrip() for line in console.export_text().rstrip("\n").split("\n")))


def _as_json(
    inspection: Inspection, chosen: list[PlannedPart], graph: bool, level: Mapping[str, int] | None
) -> dict[str, Any]:
    from hightide.tools.inspect.listing import list_graph

    made: dict[str, Any] = dataclasses.asdict(inspection.report)
    if graph:
        made["graphs"] = {
            p.part.name: {
                "symbols": p.part.symbols,
                "checked_levels": [dict(level) for level in p.formulas.levels],
                "calls": [dataclasses.asdict(line) for line in list_graph(p.graph, p.formulas, p.part.names)],
            }
            for p in chosen
        }
    if level is not None:
        made["plans"] = {
            p.part.name: {"at": p.part.level(level), **dataclasses.asdict(p.explain_at(level))} for p in chosen
        }
    return made
