"""`hightide profile`: where the time of a step goes, on the GPU and on the host."""

from __future__ import annotations

import json
import os
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hightide.cli.options import DEFAULT, MODEL_HELP, Context, Device, Json, note
from hightide.cli.progress import Tell, bars
from hightide.errors import InputError

if TYPE_CHECKING:
    from hightide.tools.profile import Profile


class TimedBy(str, Enum):
    inside = "inside"
    passes = "passes"
    submits = "submits"


def profile(
    file: Annotated[str, typer.Argument(metavar="FILE", help=MODEL_HELP, show_default=False)],
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="S=128,pos=0", help="A level; may be given several times. Default: prefill, then decode."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Timed runs of each level, besides as many that are not.")] = 5,
    method: Annotated[str, typer.Option(help="Which method of a program.")] = "forward",
    choose: Annotated[
        list[str] | None, typer.Option(metavar="CHOICE=OPTION", help="Force a route, such as linear.gemv=split.")
    ] = None,
    timing: Annotated[
        TimedBy | None, typer.Option(help="Time dispatches more coarsely than the adapter allows.")
    ] = None,
    fresh_limits: Annotated[
        bool, typer.Option("--fresh-limits", help="Measure the adapter's limits again, in this run.")
    ] = False,
    context: Context = None,
    device: Device = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a trace for ui.perfetto.dev or chrome://tracing.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with plots.")] = None,
    as_json: Json = False,
) -> None:
    """Time every dispatch of a step on the GPU, and the host beside it.

    Each op and route with its time, bandwidth and arithmetic, and how near it comes to what the adapter can do.
    """
    from hightide.gpu.timestamps import Timing
    from hightide.tools.opened_file import open_file, parse_at
    from hightide.tools.profile import profile_file

    levels = [parse_at(text) for text in at or ()]
    choices = dict(_choice(text) for text in choose or ())
    path = _path(file)
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
            choices=choices,
            timing=None if timing is None else Timing[timing.name.upper()],
            fresh_limits=fresh_limits,
            progress=progress,
        )
    if trace is not None:
        trace.write_text(json.dumps(measured.trace()), "utf-8")
        note(f"{trace}: open it in ui.perfetto.dev or chrome://tracing")
    if html is not None:
        html.write_text(measured.html(), "utf-8")
        note(f"{html}: open it in a browser")
    if as_json:
        print(json.dumps(measured.as_json()))
    else:
        _show(measured)


def _show(measured: Profile) -> None:
    from rich.console import Console

    from hightide.tools.profile.profile_tables import PLAIN_WIDTH, print_profile

    told = sys.stdout.isatty() or "COLUMNS" in os.environ
    print_profile(measured, Console(highlight=False, width=None if told else PLAIN_WIDTH))


def _path(name: str) -> Path:
    if name == DEFAULT:
        from hightide.llm.default_model import default_model

        return default_model()
    if not Path(name).is_file():
        raise InputError(f"{name} is not a file: name a GGUF or .pte file, or '{DEFAULT}'")
    return Path(name)


def _choice(text: str) -> tuple[str, str]:
    """`linear.gemv=split`, if there is such a choice and such an option."""
    import hightide.ops  # noqa: F401 (ops declare their choices)
    from hightide.ops.choices import CHOICES

    name, equals, option = text.partition("=")
    if not equals or name not in CHOICES:
        known = ", ".join(sorted(CHOICES)) or "none"
        raise InputError(f"{text!r} is not CHOICE=OPTION; the choices are {known}")
    if option not in CHOICES[name].options:
        raise InputError(f"{name} has no option {option!r}; it has {', '.join(CHOICES[name].options)}")
    return name, option
