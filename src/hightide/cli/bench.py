"""`hightide bench`: how fast models run here, and how close each kernel is to what the adapter can do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from hightide.cli.options import Device, Json, note
from hightide.cli.window import window
from hightide.errors import InputError
from hightide.gpu.limits import measure_limits
from hightide.llm.default_model import DEFAULT, named_model
from hightide.runtime.build import choose_device, named_device
from hightide.tools.bench.bench_engine import short_name
from hightide.tools.bench.bench_tables import Table, about_machine, kernel_table, limits_table, model_tables
from hightide.tools.bench.machine import describe, load
from hightide.tools.bench.model_bench import QUICK, BenchSettings, measure_model, open_engine
from hightide.tools.word_tables import WordTable, show

PLAIN_WIDTH = 160  # of a pipe


def bench(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help=f"GGUF or .pte files; '{DEFAULT}' is SmolLM2-135M-Instruct."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer lengths and rounds.")] = False,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Show each kernel beside the limit that binds it.")
    ] = False,
    prefill: Annotated[str | None, typer.Option(metavar="16,128", help="Prompt lengths to measure.")] = None,
    decode: Annotated[str | None, typer.Option(metavar="0,1024", help="Context lengths to decode at.")] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Measure prefill and decode speed, host overhead, memory and kernels.

    Figures are medians of several rounds after a warm-up. On a software adapter they are CPU time.
    """
    paths = [named_model(name) for name in models or [DEFAULT]]
    settings = bench_settings(quick, prefill, decode)
    gpu = choose_device(named_device(device))
    if gpu is None:
        raise InputError("the bench needs a WebGPU adapter; none was found, or 'cpu' was asked for")
    note(f"{gpu.adapter.name}: measuring its limits")
    limits, machine = measure_limits(gpu, fresh=True), describe(gpu.adapter)
    index = str(gpu.adapter.index)
    results = [measure_model(open_engine(p, index, settings), p, index, limits, settings, note) for p in paths]
    machine["load_after"] = load()
    if as_json:
        found = {"machine": machine, "limits": vars(limits), "models": [result.as_json() for result in results]}
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    for line in about_machine(machine, gpu.traits.software):
        show(window(PLAIN_WIDTH), Text(line))
    for result in results:
        shown = [*model_tables(result)]
        if kernels:
            shown.append(kernel_table(f"{short_name(result.name)}: its kernels", result.kernels))
        for table in shown:
            print_table(table)
    print_table(limits_table(limits))


def bench_settings(quick: bool, prefill: str | None, decode: str | None) -> BenchSettings:
    settings = QUICK if quick else BenchSettings()
    if prefill is not None:
        settings = replace(settings, prefill=_sizes("--prefill", prefill, 1))
    return settings if decode is None else replace(settings, decode=_sizes("--decode", decode, 0))


def print_table(table: Table) -> None:
    """In a pipe lines are as long as they are."""
    first, *others = table.columns
    shown = WordTable(first, *others, head_style="bold")
    for row in table.rows:
        shown.add_row(*row)
    console = window(PLAIN_WIDTH)
    show(console, Text(), Text(table.title, "bold"), shown)


def _sizes(option: str, text: str, least: int) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) >= least for part in parts):
        raise InputError(f"{option} takes lengths from {least} up, like 16,128, not {text!r}")
    return tuple(sorted({int(part) for part in parts}))
