"""`hightide bench`: how fast models run here, beside other engines and beside what the adapter can do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hightide.cli.options import DEFAULT, Device, Json, note
from hightide.errors import HightideError, InputError

if TYPE_CHECKING:
    from hightide.tools.bench.bench_report import Table
    from hightide.tools.bench.suite import Result, Settings

RANDOM = "random"  # the random Llama, by name
MODELS_HELP = (
    f"GGUF or .pte files, '{DEFAULT}' for SmolLM2-135M-Instruct, '{RANDOM}' for a Llama of random weights."
    " Without any: both, a q4 matmul, and one graph at two max lengths."
)


def bench(
    models: Annotated[list[str] | None, typer.Argument(metavar="MODEL", help=MODELS_HELP)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and rounds.")] = False,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Show every kernel beside the limit that binds it.")
    ] = False,
    peer: Annotated[list[str] | None, typer.Option(help="Compare with this engine only; may be repeated.")] = None,
    peers: Annotated[bool, typer.Option(help="Compare with the engines that are installed.")] = True,
    setup: Annotated[
        list[str] | None, typer.Option(metavar="PEER", help="Install an engine to compare with, or 'all', and end.")
    ] = None,
    prefill: Annotated[str | None, typer.Option(metavar="16,128", help="Lengths of prompts to read.")] = None,
    decode: Annotated[str | None, typer.Option(metavar="0,1024", help="Lengths of context to decode after.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write bench.json, bench.md and plots here.")
    ] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Measure prefill and decode, the host's part, memory, and the kernels; beside peers, in turns, in one run.

    Figures are medians of runs in turns after a warm-up. Where the adapter is the CPU itself, engines are
    compared by CPU time.
    """
    if setup:
        _set_up(setup)
        return
    from hightide.tools.bench.bench_report import about_machine, tables, write_results
    from hightide.tools.bench.bench_report import as_json as to_json

    def write(result: Result) -> list[Path]:
        return write_results(result, out) if out else []

    result = _measure(models or [], _settings(quick, prefill, decode), peer if peers else [], device, write)
    written = write(result)
    if as_json:
        print(json.dumps(to_json(result), indent=1, ensure_ascii=False))
    else:
        for line in about_machine(result):
            print(line)
        for table in tables(result, kernels):
            _show(table)
    for text in result.notes:
        note(text)
    if written:
        note(f"written: {', '.join(map(str, written))}")


def _measure(
    models: list[str],
    settings: Settings,
    keys: list[str] | None,
    device: str | None,
    after: Callable[[Result], object],
) -> Result:
    """All that was asked for; `after` each part, so that a run that is ended keeps what it has."""
    from hightide.gpu.limits import measure_limits
    from hightide.runtime.build import choose_device, named_device
    from hightide.tools.bench.built_for import measure_built_for
    from hightide.tools.bench.machine import describe, load
    from hightide.tools.bench.random_llama import random_llama
    from hightide.tools.bench.suite import Result, measure_matmul, measure_model, wanted_kinds

    paths = [_path(name) for name in models or [RANDOM, DEFAULT]]
    kinds = wanted_kinds(keys)
    gpu = choose_device(named_device(device))
    if gpu is None:
        raise InputError("the bench measures a WebGPU adapter, and there is none here, or 'cpu' was asked for")
    software = gpu.adapter.kind == "CPU"
    note(f"{gpu.adapter.name}: measuring its limits")
    result = Result(describe(gpu.adapter), settings, measure_limits(gpu, fresh=True), software)

    def built_for() -> None:
        note("one token on a graph built for 2048 and on one built for 1")
        index = str(gpu.adapter.index)
        result.built_for = measure_built_for(random_llama(), device=index, software=software, pairs=settings.pairs)

    work: list[Callable[[], None]] = [
        partial(measure_model, path, gpu, settings, result, kinds, note) for path in paths
    ]
    if not models:
        work = [partial(measure_matmul, gpu, settings, result, kinds, note), built_for, *work]
    for part in work:
        try:
            part()
        except HightideError as error:
            if len(work) == 1:
                raise
            result.notes.append(str(error).splitlines()[0])  # what else was measured is not lost
        except KeyboardInterrupt:
            result.notes.append("Stopped before everything was measured.")
            break
        after(result)
    result.machine["load_after"] = load()
    return result


def _path(name: str) -> Path:
    from hightide.llm.default_model import default_model
    from hightide.tools.bench.random_llama import random_llama

    if name == DEFAULT:
        return default_model()
    if name == RANDOM:
        return random_llama()
    if not Path(name).is_file():
        raise InputError(f"{name} is not a file: name a GGUF or .pte model, '{DEFAULT}' or '{RANDOM}'")
    return Path(name)


def _settings(quick: bool, prefill: str | None, decode: str | None) -> Settings:
    from dataclasses import replace

    from hightide.tools.bench.suite import QUICK, Settings

    settings = QUICK if quick else Settings()
    if prefill is not None:
        settings = replace(settings, prefill=_sizes("--prefill", prefill, 1))
    return settings if decode is None else replace(settings, decode=_sizes("--decode", decode, 0))


def _sizes(option: str, text: str, least: int) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) >= least for part in parts):
        raise InputError(f"{option} takes lengths from {least} up, like 16,128, not {text!r}")
    return tuple(sorted({int(part) for part in parts}))


def _set_up(keys: list[str]) -> None:
    from hightide.tools.bench.peer import KEYS, set_up

    for key in KEYS if "all" in keys else keys:
        note(f"installing {key}")
        print(set_up(key))


def _show(table: Table) -> None:
    """For people: cells are folded where the window is narrow; in a pipe lines are as long as they are."""
    from rich.console import Console
    from rich.table import Table as RichTable

    shown = RichTable(title=table.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(table.columns):
        shown.add_column(column, overflow="fold", justify="left" if number == 0 else "default")
    for row in table.rows:
        shown.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
    console.print()
    console.print(shown)
