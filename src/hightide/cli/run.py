"""`hightide run`: call one method of a program and print or save what it gives."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hightide.cli.groups import grouped
from hightide.cli.inputs import collect
from hightide.cli.options import Device, Json, Route, note
from hightide.errors import InputError
from hightide.ops.choices import parse_routes
from hightide.option_checks import check_int
from hightide.pte.program import load


@dataclass(frozen=True)
class RunInputs:
    """What the method is given."""

    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[NAME=]FILE|JSON",
            help="An input: a .npy, .npz, .bin or .json file, or JSON. Repeatable.",
        ),
    ] = None
    random: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]SHAPE", help="A random input of a shape, such as tokens=1x17. Repeatable."),
    ] = None
    seed: Annotated[int, typer.Option(help="Seed for the random inputs.")] = 0
    data: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A .ptd file that the program needs. Repeatable.")
    ] = None


@grouped
def run(
    program: Annotated[Path, typer.Argument(metavar="PROGRAM", help="A .pte file.", show_default=False)],
    method: Annotated[str, typer.Option(help="The method to call.")] = "forward",
    *,
    given: RunInputs,
    output: Annotated[
        Path | None, typer.Option(help="Save the outputs to a .npz file, a .npy file (one output) or a folder.")
    ] = None,
    device: Device = None,
    route: Route = None,
    as_json: Json = False,
) -> None:
    """Run one method of a program.

    Prints the outputs, or saves them. Inputs without a name are taken in order.
    """
    check_int("--seed", given.seed, 0)
    start = time.perf_counter()
    with load(program, device=device, data=given.data or (), routes=parse_routes(route or ())) as loaded:
        function = loaded.method(method)
        built = time.perf_counter()
        outputs = function(
            *collect(function.inputs, given.inputs or [], given.random or [], given.seed, loaded.metadata)
        )
        end = time.perf_counter()
        names = [spec.name for spec in function.outputs]
    if output is not None:
        save(output, names, outputs)
    print(json.dumps(_as_json(names, outputs, data=output is None)) if as_json else _as_text(names, outputs))
    note(f"built in {built - start:.2f} s, ran in {(end - built) * 1000:.1f} ms")


def save(path: Path, names: Sequence[str], outputs: Sequence[np.ndarray]) -> None:
    if path.suffix == ".npz":
        arrays: dict[str, Any] = dict(zip(names, outputs, strict=True))
        np.savez(path, **arrays)
    elif path.suffix == ".npy":
        if len(outputs) != 1:
            raise InputError(f"a .npy file holds one array, but there are {len(outputs)} outputs; use .npz or a folder")
        np.save(path, outputs[0])
    elif path.suffix:
        raise InputError(f"outputs cannot be saved as {path.suffix}; use .npz, .npy or a folder")
    else:
        path.mkdir(parents=True, exist_ok=True)
        for name, array in zip(names, outputs, strict=True):
            np.save(path / f"{name}.npy", array)


def _as_json(names: Sequence[str], outputs: Sequence[np.ndarray], data: bool) -> list[dict[str, object]]:
    return [
        {"name": name, "dtype": str(array.dtype), "dims": list(array.shape)}
        | ({"data": array.tolist()} if data else {})
        for name, array in zip(names, outputs, strict=True)
    ]


def _as_text(names: Sequence[str], outputs: Sequence[np.ndarray]) -> str:
    lines = []
    for name, array in zip(names, outputs, strict=True):
        lines.append(f"{name} {array.dtype}{list(array.shape)}")
        lines.append(np.array2string(array, threshold=24, edgeitems=3, precision=5, max_line_width=110))
    return "\n".join(lines)
