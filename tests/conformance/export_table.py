"""Runs a folder of programs that `model_exports.py` made, whole and split, and writes a page about them.

    python tests/conformance/export_table.py FOLDER docs/exports.md

What a program is (its graphs, ops and dispatches) is planned for a software adapter, without one, so that a test can
check the rows of the programs that are kept.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest has it, where this is a script
from schedules import error_of_range, numbered

from hightide import HightideError, load
from hightide.formats.instructions import DelegateCall, KernelCall
from hightide.formats.pte import read_program
from hightide.pte.kernel_calls import is_host_work
from hightide.tools.inspect.file_report import inspect_file
from hightide.tools.inspect.planning import target_of

TOLERANCE = 2e-4  # of an output's range
ROUNDED = 1e-2  # where activations are rounded to 8 bits: one that is halfway may go either way, which is rare
BACKENDS = {"vulkan": "Vulkan", "xnnpack": "XNNPACK", "portable": "none"}
HEAD = """# Exported models

What the exporter (executorch {executorch}, torch {torch}) makes of {count} models with random weights, and what
hightide makes of that. `make test-exports TABLE=docs/exports.md` exports them (`model_exports.py`), runs them and
writes this page (`export_table.py`).

Each program runs through a schedule of calls on one session: the least, odd, middle and largest live sizes, in both
directions; a decoder with a cache reads prompts, goes on token by token, and starts again. It runs
[whole](concepts/whole-methods.md), and split as the file has it. An error is the largest difference from the eager
module in float32, by the range of that output, of all calls; {tolerance} is allowed. Where activations or keys are
rounded to 8 bits (marked \\*), a value that is halfway may go either way: such a call may differ by {rounded}, but half
of the calls must be within {tolerance}.

*For* is whose partitioner chose the delegates. *Split* counts what a call runs in turns if nothing is joined:
delegates, and ops on NumPy. *Graphs* are what hightide joins them to, *dispatches* what these take at the largest
sizes on a software adapter. *On the host* are the ops that NumPy still runs, and how often: those that no GPU can, and
work on sizes.

{right} of {made} programs are right whole and split, at all sizes. The exporter fails at {failed}.

"""
COLUMNS = (
    "| program | what it is | for | live | split | graphs | dispatches | on the host | error, whole | error, split |"
)
REFUSED = """
## What {} refuses

| program | what it is | for | its message |
| --- | --- | --- | --- |
"""
OPS = """
## Ops on the GPU

Calls after passes; those on the host are in the table above.

| program | ops |
| --- | --- |
"""


@dataclass(frozen=True)
class Facts:
    """What is known of a program without running it, as cells of its row."""

    live: str
    split: str
    graphs: str
    dispatches: str
    host: str
    ops: str  # on the GPU


def facts(path: Path) -> Facts:
    calls = [i for method in read_program(path).methods.values() for i in method.instructions]
    delegates = sum(isinstance(i, DelegateCall) for i in calls)
    kernels = sum(isinstance(i, KernelCall) and not is_host_work(i.op) for i in calls)
    methods = [
        method for method in inspect_file(path, target_of(None)).report.methods if method.parts or method.outside
    ]
    ops: Counter[str] = Counter()
    host: Counter[str] = Counter()
    for method in methods:
        for part in method.parts:
            ops.update({_short(op): count for op, count in part.runs.items()})
        host.update({_short(op): count for op, count in (*method.outside.items(), *method.host.items())})
    symbols = {name: most for method in methods for name, most in method.symbols.items()}
    return Facts(
        live=", ".join(f"{name} ≤ {most}" for name, most in symbols.items()) or "–",
        split=f"{delegates} + {kernels}",
        graphs=str(sum(len(method.parts) for method in methods)),
        dispatches=str(sum(part.dispatches for method in methods for part in method.parts)),
        host=_counted(host),
        ops=_counted(ops),
    )


def steps_of(folder: Path, name: str) -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
    """Inputs and expected outputs, in order."""
    with np.load(folder / f"{name}.npz") as arrays:
        for n in range(1 + max(int(key.split(".")[0]) for key in arrays)):
            yield numbered(arrays, f"{n}.in"), numbered(arrays, f"{n}.out")


def errors(folder: Path, name: str, whole: bool, device: str | None = None) -> list[float]:
    """The largest error of each step, on one session."""
    found = []
    with load(folder / f"{name}.pte", device, whole=whole) as program:
        method = program.method("forward")
        for inputs, wanted in steps_of(folder, name):
            found.append(max(_error(*pair) for pair in zip(method(*inputs), wanted, strict=True)))
    return found


def is_right(found: list[float], rounded: bool) -> bool:
    return max(found) <= (ROUNDED if rounded else TOLERANCE) and median(found) <= TOLERANCE


def is_expected(entry: Mapping[str, Any], found: Mapping[bool, list[float] | str]) -> bool:
    """Whether a program is right whole and split, or refused both ways as its entry of the index says."""
    if "refused" in entry:
        return all(isinstance(each, str) and entry["refused"] in each for each in found.values())
    return all(not isinstance(each, str) and is_right(each, entry["rounded"]) for each in found.values())


def _error(got: np.ndarray, want: np.ndarray) -> float:
    """As `error_of_range`; tokens that a vocabulary is without have logits of -inf on both sides."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return math.inf
    if want.dtype.kind == "f":
        gone = np.isneginf(want)
        if not np.array_equal(gone, np.isneginf(got)):
            return math.inf
        got, want = got[~gone], want[~gone]
    return error_of_range(got, want)


def _short(op: str) -> str:
    """`aten.add.Tensor` and `aten::add.out` as `add`; what hightide fuses has its name too."""
    name = op.split("::")[-1] if "::" in op else op.split(".", 1)[-1]
    return name.split(".")[0]


def _counted(ops: Mapping[str, int]) -> str:
    return ", ".join(f"`{op}` {count}" for op, count in sorted(ops.items())) or "–"


# ---- the page


def page(folder: Path, results: Mapping[str, Mapping[bool, list[float] | str]]) -> str:
    """`results`: name -> whole -> the errors of its steps, or why it does not run."""
    index = _described(json.loads((folder / "index.json").read_text()))
    refused = {name: found for name, by_form in results.items() if isinstance(found := by_form[True], str)}
    known = {name: facts(folder / f"{name}.pte") for name in results if name not in refused}
    rows, right = [], 0
    for name, known_here in known.items():
        entry, by_form = index[name], results[name]
        right += is_expected(entry, by_form)
        cells = [name + "\\*" * entry["rounded"], entry["about"], BACKENDS[entry["backend"]]]
        cells += [known_here.live, known_here.split, known_here.graphs, known_here.dispatches, known_here.host]
        rows.append(_row(*cells, *(_cell(by_form[whole]) for whole in (True, False))))
    failed = {name: entry for name, entry in index.items() if "fails" in entry}
    head = HEAD.format(
        **{package: next(iter(index.values()))[package] for package in ("executorch", "torch")},
        count=len(index),
        made=len(results),
        right=right,
        failed=f"{len(failed)}" if failed else "none",
        tolerance=f"{TOLERANCE:.0e}".replace("e-0", "e-"),
        rounded=f"{ROUNDED:.0e}".replace("e-0", "e-"),
    )
    text = head + COLUMNS + "\n" + "| --- " * COLUMNS.count(" | ") + "| --- |\n" + "\n".join(rows) + "\n"
    said = {name: entry["fails"] for name, entry in failed.items()}
    for title, messages in (("the exporter", said), ("hightide", refused)):
        if messages:
            rows = [_row(n, index[n]["about"], BACKENDS[index[n]["backend"]], f"`{m}`") for n, m in messages.items()]
            text += REFUSED.format(title) + "\n".join(rows) + "\n"
    return text + OPS + "\n".join(_row(name, here.ops) for name, here in known.items()) + "\n"


def _described(index: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """With what `the same` stands for: the model whose name this one's begins with."""
    same = "the same"
    for name, entry in index.items():
        base = next((other for other in index if other != name and name.startswith(f"{other}_")), None)
        if entry["about"].startswith(same) and base is not None:
            entry["about"] = index[base]["about"] + entry["about"].removeprefix(same)
    return index


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _cell(found: list[float] | str) -> str:
    return found if isinstance(found, str) else f"{max(found):.1e}".replace("e-0", "e-")


def ran(folder: Path, name: str) -> dict[bool, list[float] | str]:
    result: dict[bool, list[float] | str] = {}
    for whole in (True, False):
        try:
            result[whole] = errors(folder, name, whole)
        except HightideError as error:
            result[whole] = str(error)
    return result


def main() -> None:
    folder, path = map(Path, sys.argv[1:])
    warnings.simplefilter("ignore")
    index = json.loads((folder / "index.json").read_text())
    results = {}
    for name in (name for name, entry in index.items() if "fails" not in entry):
        results[name] = ran(folder, name)
        print(name, *map(_cell, results[name].values()), flush=True)
    path.write_text(page(folder, results), "utf-8")


if __name__ == "__main__":
    main()
