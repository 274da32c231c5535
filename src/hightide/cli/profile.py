"""`hightide profile`: where the time of a step goes, on the GPU and on the host."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from hightide.cli.groups import grouped
from hightide.cli.model import model_file
from hightide.cli.options import MODEL_HELP, Context, Device, Json, Route, note
from hightide.cli.progress import Tell, bars
from hightide.cli.window import window
from hightide.gpu.timestamps import Timing
from hightide.ops.choices import parse_routes
from hightide.tools.opened_file import open_file, parse_at
from hightide.tools.profile import Profile, profile_file
from hightide.tools.profile.profile_tables import PLAIN_WIDTH, print_profile


class TimedBy(str, Enum):
    inside = "inside"
    passes = "passes"
    submits = "submits"


@dataclass(frozen=True)
class HowTimed:
    timing: Annotated[TimedBy | None, typer.Option(help="Time dispatches more coarsely than the adapter allows.")] = (
        None
    )
    fresh_limits: Annotated[bool, typer.Option("--fresh-limits", help="Measure the adapter's limits again.")] = False


@dataclass(frozen=True)
class ProfileOutputs:
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a trace for ui.perfetto.dev or chrome://tracing.")
    ] = None
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML page with plots.")] = None
    as_json: Json = False


@grouped
def profile(
    file: Annotated[str, typer.Argument(metavar="FILE", help=MODEL_HELP, show_default=False)],
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="S=128,pos=0", help="A level. Repeatable. Default: prefill, then decode."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Timed runs of each level, after as many that are not timed.")] = 5,
    method: Annotated[str, typer.Option(help="The method of a program.")] = "forward",
    *,
    timed: HowTimed,
    context: Context = None,
    device: Device = None,
    route: Route = None,
    outputs: ProfileOutputs,
) -> None:
    """Show where the time of a step goes, on the GPU and on the host.

    For each op and route: its time, GB/s and GFLOP/s, and its share of what
    the adapter can do.
    """
    levels = [parse_at(text) for text in at or ()]
    routes = parse_routes(route or ())
    path = model_file(file)
    with bars() as add:

        def progress(what: str) -> Tell | None:
            if add is None:
                return None
            if what.startswith(("building", "measuring")):
                note(f"{what} …")
                return None
            return add(what, "runs")

        measured = profile_file(
            open_file(path, method=method, device=device, context=context),
            levels,
            runs=runs,
            choices=routes,
            timing=None if timed.timing is None else Timing[timed.timing.name.upper()],
            fresh_limits=timed.fresh_limits,
            progress=progress,
        )
    if outputs.trace is not None:
        outputs.trace.write_text(json.dumps(measured.trace()), "utf-8")
        note(f"{outputs.trace}: open it in ui.perfetto.dev or chrome://tracing")
    if outputs.html is not None:
        outputs.html.write_text(measured.html(), "utf-8")
        note(f"{outputs.html}: open it in a browser")
    if outputs.as_json:
        print(json.dumps(measured.as_json()))
    else:
        _show(measured)


def _show(measured: Profile) -> None:
    print_profile(measured, window(PLAIN_WIDTH))
