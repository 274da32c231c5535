"""What came of an export: the errors at each size, and where the ops run. It prints as tables."""

from __future__ import annotations

import io
import math
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console, Group
from rich.text import Text

from hightide.tools.export.placed_ops import PlacedOp
from hightide.tools.word_tables import Cell, Words, WordTable, show
from hightide.units import counted, size

GOOD, BAD, FAINT = "green", "bold red", "dim"
PLAIN_WIDTH = 110  # where there is no terminal


@dataclass(frozen=True)
class CheckedSize:
    """One check: the program beside the eager module, from the same fresh state."""

    name: str  # "S=17"
    errors: tuple[float, ...] = ()  # of each output, of its range; of integers the share that differs
    dispatches: int = 0  # of the last call
    problem: str = ""  # what is wrong
    skipped: str = ""  # why nothing was compared: the module itself refuses the size


@dataclass(frozen=True)
class ExportReport:
    """What was written, how far it is from eager, and where its ops run."""

    path: str  # "" if no file was asked for
    bytes: int
    signature: str  # of the method: what it takes and gives
    device: str
    tolerance: float
    sizes: tuple[CheckedSize, ...]
    ops: tuple[PlacedOp, ...]
    graphs: int  # that run on the device
    runs: int  # op calls in them, after passes
    note: str = ""  # what the exporter could not do, if anything

    @property
    def passed(self) -> bool:
        """Whether every size that the module takes is right, and there is one."""
        return not any(s.problem for s in self.sizes) and any(not s.skipped for s in self.sizes)

    @property
    def worst(self) -> float:
        return max((error for checked in self.sizes for error in checked.errors), default=math.nan)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed}

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=PLAIN_WIDTH, highlight=False, markup=False, color_system=None)
        with console.capture() as shown:
            show(console, render(self))
        return shown.get().rstrip("\n")


def render(report: ExportReport) -> Group:
    name = report.path or "the program"
    head = f"{name}: {size(report.bytes)}, forward{report.signature}; beside eager on {report.device}"
    lines: list[Any] = [Text(head), Text(), _sizes(report)]
    for checked in report.sizes:
        if checked.problem:
            lines.append(Text(f"{checked.name}: {checked.problem}", BAD))
        if checked.skipped:
            lines.append(Text(f"{checked.name}: not checked, {checked.skipped}", "yellow"))
    lines += [Text(), _ops(report.ops), Text(_amounts(report), FAINT)]
    lines += [Text(report.note, "yellow")] if report.note else []
    lines += [Text(), verdict(report)]
    return Group(*(Words(line) if isinstance(line, Text) else line for line in lines))


def verdict(report: ExportReport) -> Text:
    checked = [s for s in report.sizes if not s.skipped]
    if report.passed:
        amount = f"{counted(len(checked), 'size')} checked, at most {_number(report.worst)} from eager"
        return Text(f"passed: {amount}", GOOD)
    if not checked:
        return Text("FAILED: the module takes none of the sizes that were tried", BAD)
    wrong = [s.name for s in checked if s.problem]
    return Text(f"FAILED at {'; '.join(wrong)}", BAD)


def _sizes(report: ExportReport) -> WordTable:
    outputs = max((len(checked.errors) for checked in report.sizes), default=0)
    names = ["error"] if outputs == 1 else [f"out{n}" for n in range(outputs)]
    table = WordTable("size", "dispatches >", *(f"{name} >" for name in names), "allowed >", "", head_style="bold")
    for checked in report.sizes:
        errors = [_number(error) for error in checked.errors]
        errors += [""] * (outputs - len(errors))
        ran = bool(checked.errors)
        state = Text("FAILED", BAD) if checked.problem else Text("-", FAINT) if checked.skipped else Text("ok", GOOD)
        dispatches, allowed = str(checked.dispatches) if ran else "", _number(report.tolerance) if ran else ""
        table.add_row(checked.name, dispatches, *errors, allowed, state)
    return table


def _ops(ops: tuple[PlacedOp, ...]) -> WordTable:
    host = any(op.host for op in ops)
    table = WordTable("op", "delegated >", "joined >", *(("host >", "why") if host else ()), head_style="bold")
    for op in sorted(ops, key=lambda op: op.host > 0):
        counts = [str(n) if n else "-" for n in (op.delegated, op.joined, op.host)]
        more: list[Cell] = [counts[2], Text(op.why, "yellow")] if host else []
        table.add_row(op.name, *counts[:2], *more)
    return table


def _amounts(report: ExportReport) -> str:
    calls, host = sum(op.delegated + op.joined for op in report.ops), sum(op.host for op in report.ops)
    beside = f", {counted(host, 'call')} on the host" if host else ""
    graphs = f"{counted(calls, 'op call')}: after passes, {report.runs} in {counted(report.graphs, 'graph')}"
    return (graphs if report.graphs else "no graph") + beside


def _number(error: float) -> str:
    return "0" if error == 0 else "-" if math.isnan(error) else f"{error:.1e}"
