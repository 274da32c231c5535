"""hightide beside llama.cpp, ONNX Runtime, tinygrad and torch on one adapter, in turns, in one run.

python benchmarks/compare.py --setup all                      # installs the other engines, about 2 GB
python benchmarks/compare.py --kernels --out benchmarks/results
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from peerbench.built_for import measure_built_for
from peerbench.peer import KEYS, set_up
from peerbench.random_llama import random_llama
from peerbench.report import as_json as to_json
from peerbench.report import tables, write_results
from peerbench.suite import QUICK, Result, Settings, compare_model, measure_matmul, wanted_kinds

from hightide.cli.bench import bench_settings, print_table
from hightide.cli.options import DEFAULT, note
from hightide.errors import HightideError, InputError
from hightide.gpu.device import Device
from hightide.gpu.limits import measure_limits
from hightide.llm.default_model import default_model
from hightide.runtime.build import choose_device, named_device
from hightide.tools.bench.bench_tables import about_machine
from hightide.tools.bench.machine import describe, load

RANDOM = "random"  # the random Llama, by name


def compare(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help=f"GGUF or .pte files, '{DEFAULT}' for SmolLM2-135M-Instruct, '{RANDOM}' for a Llama with random"
            " weights. Without any: both, a q4 matmul, and one graph at two maximum lengths.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer lengths and rounds.")] = False,
    kernels: Annotated[bool, typer.Option("--kernels", help="Show each kernel beside its limit.")] = False,
    peer: Annotated[list[str] | None, typer.Option(help="Compare with this engine only; may be repeated.")] = None,
    peers: Annotated[bool, typer.Option(help="Compare with the engines that are installed.")] = True,
    setup: Annotated[
        list[str] | None, typer.Option(metavar="PEER", help="Install an engine, or 'all', and exit.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write bench.json, bench.md and plots here.")
    ] = None,
    device: str | None = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure hightide and its peers in turns."""
    if setup:
        for key in KEYS if "all" in setup else setup:
            note(f"installing {key}")
            print(set_up(key))
        return
    gpu = choose_device(named_device(device))
    if gpu is None:
        raise InputError("the comparison needs a WebGPU adapter; none was found, or 'cpu' was asked for")
    settings = QUICK if quick else Settings(bench_settings(False, None, None))
    result = measure(gpu, models or [], settings, peer if peers else [], out)
    written = write_results(result, out) if out else []
    if as_json:
        print(json.dumps(to_json(result), indent=1, ensure_ascii=False))
    else:
        for line in about_machine(result.machine, result.software):
            print(line)
        for table in tables(result, kernels):
            print_table(table)
    for text in result.notes:
        note(text)
    if written:
        note(f"written: {', '.join(map(str, written))}")


def measure(gpu: Device, models: list[str], settings: Settings, keys: list[str] | None, out: Path | None) -> Result:
    """All that was asked for, written after each part, so that a run that is ended keeps what it has."""
    paths = [_path(name) for name in models or [RANDOM, DEFAULT]]
    kinds = wanted_kinds(keys)
    software = gpu.traits.software
    note(f"{gpu.adapter.name}: measuring its limits")
    result = Result(describe(gpu.adapter), settings, measure_limits(gpu, fresh=True), software)

    def built_for() -> None:
        note("one token on a graph built for 2048 and on one built for 1")
        index = str(gpu.adapter.index)
        result.built_for = measure_built_for(random_llama(), device=index, software=software, pairs=settings.pairs)

    work: list[Callable[[], None]] = [
        partial(compare_model, path, gpu, settings, result, kinds, note) for path in paths
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
        if out is not None:
            write_results(result, out)
    result.machine["load_after"] = load()
    return result


def _path(name: str) -> Path:
    known = {DEFAULT: default_model, RANDOM: random_llama}
    if name in known:
        return known[name]()
    if not Path(name).is_file():
        raise InputError(f"{name} is not a file: name a GGUF or .pte model, '{DEFAULT}' or '{RANDOM}'")
    return Path(name)


if __name__ == "__main__":
    typer.run(compare)
