"""What was found out about kernels, as tables and as data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from hightide.tools.kernels.judged import JudgedDispatch, JudgedLevel, KernelReport
from hightide.tools.kernels.target_gpus import TargetGpu
from hightide.tools.word_tables import WordTable, show
from hightide.units import counted

PREDICTED = "times are predictions from machine code and published facts, not measurements"
HEADS = (
    *("op and route", "calls >", "µs >", "share >", "bound by", "GB/s >"),
    *("registers >", "spills >", "shared >", "waves >", "loop: fma >", "other >", "loads >", "waits >"),
)


def print_judged(judged: KernelReport, console: Console) -> None:
    show(console, Text.assemble((judged.file, "bold"), f" for {judged.gpu.name}: {facts_text(judged.gpu)}"))
    show(console, Text(PREDICTED, style="dim"))
    for level in judged.levels:
        show(console, Text())
        show(console, Text.assemble((level.name, "bold"), f": {totals_text(level)}"))
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


def totals_text(level: JudgedLevel) -> str:
    rate = "" if level.rate is None else f", {level.rate:.3g} tokens per second"
    shares = ", ".join(f"{share:.0%} by {bound}" for bound, share in level.bounds)
    return f"{counted(len(level.dispatches), 'dispatch')}, {level.microseconds / 1e3:.3g} ms{rate}; bound {shares}"


def facts_text(gpu: TargetGpu) -> str:
    return f"{gpu.units} units at {gpu.clock:g} GHz, {gpu.bandwidth:g} GB/s, {gpu.gflops / 1e3:.3g} TFLOP/s in f32"


def _table(level: JudgedLevel) -> WordTable:
    table = WordTable(*HEADS)
    for group in level.groups:
        code = group.slowest.code
        loop = code.main_loop
        table.add_row(
            group.name,
            str(len(group.dispatches)),
            f"{group.microseconds:.1f}",
            f"{group.microseconds / level.microseconds:.0%}",
            group.slowest.time.bound,
            f"{group.rate:.0f}",
            str(code.registers),
            str(code.spills),
            str(code.shared_memory),
            str(code.waves),
            *(["–"] * 4 if loop is None else [f"{count:.3g}" for count in loop.brief]),
        )
    return table
