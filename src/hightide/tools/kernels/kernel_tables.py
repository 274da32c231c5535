"""What was found out about kernels, as tables and as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from hightide.ops.cost import Cost
from hightide.tools.kernels.judged import JudgedDispatch, JudgedLevel, KernelReport
from hightide.tools.word_tables import WordTable, show
from hightide.units import counted

PREDICTED = "times are predictions from machine code and published facts, not measurements"
HEADS = (
    *("op and route", "calls >", "µs >", "share >", "bound by", "GB/s >"),
    *("registers >", "spills >", "shared >", "waves >", "loop: fma >", "other >", "loads >", "waits >"),
)


def print_judged(judged: KernelReport, console: Console) -> None:
    gpu = judged.gpu
    facts = f"{gpu.units} units at {gpu.clock:g} GHz, {gpu.bandwidth:g} GB/s, {gpu.gflops / 1e3:.3g} TFLOP/s in f32"
    show(console, Text.assemble((judged.file, "bold"), f" for {gpu.name}: {facts}"))
    show(console, Text(PREDICTED, style="dim"))
    for level in judged.levels:
        show(console, Text())
        show(console, Text.assemble((_name(level), "bold"), f": {_totals(level)}"))
        show(console, _table(level))


def as_data(judged: KernelReport) -> dict[str, Any]:
    """All of it, for JSON."""
    return {
        "file": judged.file,
        "target": asdict(judged.gpu),
        "predicted": True,
        "levels": [
            {
                "at": dict(level.at),
                "microseconds": level.microseconds,
                "tokens_per_second": level.rate,
                "dispatches": [_data(one) for one in level.dispatches],
            }
            for level in judged.levels
        ],
    }


def _data(one: JudgedDispatch) -> dict[str, Any]:
    loop = one.code.main_loop
    return {
        "op": one.op,
        "route": one.route,
        "workgroups": one.groups,
        "lanes": one.code.lanes,
        "bytes": one.cost.bytes,
        "flops": one.cost.flops,
        "microseconds": {**asdict(one.time), "total": one.time.total},
        "bound": one.time.bound,
        "registers": one.code.registers,
        "spills": one.code.spills,
        "shared_memory": one.code.shared_memory,
        "waves": one.code.waves,
        "wave_lanes": one.code.wave,
        "loop": None if loop is None else {**loop.own.kinds, "stalls": loop.own.stalls},
    }


def _name(level: JudgedLevel) -> str:
    return " ".join(f"{name}={value}" for name, value in level.at.items()) or "max dims"


def _totals(level: JudgedLevel) -> str:
    rate = "" if level.rate is None else f", {level.rate:.3g} tokens per second"
    bounds: dict[str, float] = {}
    for one in level.dispatches:
        bounds[one.time.bound] = bounds.get(one.time.bound, 0.0) + one.time.total
    most = sorted(bounds.items(), key=lambda pair: -pair[1])
    shares = ", ".join(f"{time / level.microseconds:.0%} by {bound}" for bound, time in most)
    return f"{counted(len(level.dispatches), 'dispatch')}, {level.microseconds / 1e3:.3g} ms{rate}; bound {shares}"


def _table(level: JudgedLevel) -> WordTable:
    table = WordTable(*HEADS)
    for group in _groups(level):
        slowest = max(group, key=lambda one: one.time.total)
        total, code, loop = sum(one.time.total for one in group), slowest.code, slowest.code.main_loop
        kinds = {} if loop is None else loop.own.kinds
        moved = sum((one.cost for one in group), Cost()).bytes
        inside = [
            kinds.get("fma", 0.0),
            kinds.get("valu", 0.0) + kinds.get("slow", 0.0),
            kinds.get("load", 0.0) + kinds.get("shared", 0.0),
            0.0 if loop is None else loop.own.stalls,
        ]
        table.add_row(
            f"{slowest.op.removesuffix('.default')} · {slowest.route}",
            str(len(group)),
            f"{total:.1f}",
            f"{total / level.microseconds:.0%}",
            slowest.time.bound,
            f"{moved / total / 1e3:.0f}",
            str(code.registers),
            str(code.spills),
            str(code.shared_memory),
            str(code.waves),
            *("–" if loop is None else f"{count:.3g}" for count in inside),
        )
    return table


def _groups(level: JudgedLevel) -> Iterator[list[JudgedDispatch]]:
    """By op and machine code, the longest first."""
    found: dict[tuple[str, int], list[JudgedDispatch]] = {}
    for one in level.dispatches:
        found.setdefault((one.op, id(one.code)), []).append(one)
    yield from sorted(found.values(), key=lambda group: -sum(one.time.total for one in group))
