"""A run of the bench as JSON, as tables for a terminal, and as Markdown with its plots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hightide.tools.bench.bench_engine import NAME, short_name
from hightide.tools.bench.bench_tables import Table, about_machine, kernel_table, limits_table, model_tables
from hightide.tools.bench.samples import WorkRow, find_row
from peerbench.goals import goals
from peerbench.plots import draw
from peerbench.suite import Result


def as_json(result: Result) -> dict[str, Any]:
    return {
        "machine": result.machine,
        "compared_by": "cpu_ms" if result.software else "wall_ms",
        "settings": asdict(result.settings),
        "limits": asdict(result.limits),
        "models": [model.as_json() for model in result.models],
        "matmul": [row.as_json() for row in result.matmul],
        "matmul_kernels": [asdict(share) for share in result.matmul_kernels],
        "built_for": asdict(result.built_for) if result.built_for else None,
        "shares_of_reading": result.shares,
        "goals": [{**asdict(goal), "met": goal.met} for goal in goals(result)],
        "notes": result.notes,
    }


def tables(result: Result, kernels: bool) -> list[Table]:
    """What is shown, most important first."""
    found = []
    if wanted := goals(result):
        rows = [(d.what, d.goal, d.measured, f"{d.ratio:.2f}", "yes" if d.met else "no") for d in wanted]
        found.append(Table("Goals and measured", ("what", "goal", "measured", "ratio", "met"), rows))
    for model in result.models:
        speed, *others = model_tables(model.own)
        name = f"{short_name(model.own.name)} beside its peers"
        peers = [_peer_table(name, model.shared, result.software)] if model.shared else []
        found += [speed, *peers, *others]
    if result.matmul:
        found.append(_matmul_table(result))
    found.append(limits_table(result.limits))
    if kernels:
        for model in result.models:
            found.append(kernel_table(f"{short_name(model.own.name)}: its kernels", model.own.kernels))
        if result.matmul_kernels:
            found.append(kernel_table("q4 matmul: its kernels", result.matmul_kernels))
    return found


def _peer_table(title: str, rows: Sequence[WorkRow], software: bool) -> Table:
    """Engines by what they take; the ratio is theirs by hightide's."""
    lines = []
    for what, size in dict.fromkeys((row.what, row.size) for row in rows if row.engine != NAME):
        ours = find_row(rows, what, size, NAME)
        for row in sorted((r for r in rows if (r.what, r.size) == (what, size)), key=lambda r: r.on_cpu):
            ratio = row.milliseconds(software) / ours.milliseconds(software) if ours else float("nan")
            name = f"{row.engine} (one thread)" if row.on_cpu else row.engine
            work = {"prefill": f"prefill {size}", "decode": f"decode at {size}", "matmul": f"M = {size}"}[what]
            spread = f"{row.cpu_ms.low:.1f}–{row.cpu_ms.high:.1f}"
            lines.append((work, name, f"{row.cpu_ms:.1f}", spread, f"{row.wall_ms:.1f}", f"{ratio:.2f}"))
    return Table(title, ("work", "engine", "CPU ms", "middle half", "wall ms", "by hightide"), lines)


def _matmul_table(result: Result) -> Table:
    return _peer_table("One q4 matmul, K 2048, N 8192, group 32", result.matmul, result.software)


def markdown(result: Result, plots: Sequence[Path]) -> str:
    lines = ["# The bench", "", *about_machine(result.machine, result.software), ""]
    for peers in {name: about for model in result.models for name, about in model.about.items()}.items():
        lines += [f"* {peers[0]}: {peers[1].get('version', '')}, on {peers[1].get('device', '')}"]
    for note in result.notes:
        lines += [f"* {note}"]
    for plot in plots:
        lines += ["", f"![{plot.stem}]({plot.name})"]
    for table in tables(result, kernels=True):
        lines += ["", f"## {table.title}", "", *_markdown_table(table)]
    return "\n".join(lines) + "\n"


def _markdown_table(table: Table) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    return [line(table.columns), line(["---"] * len(table.columns)), *map(line, table.rows)]


def write_results(result: Result, folder: Path) -> list[Path]:
    """bench.json, bench.md and, where matplotlib is installed, plots."""
    folder.mkdir(parents=True, exist_ok=True)
    plots = draw(result, folder)
    (folder / "bench.json").write_text(json.dumps(as_json(result), indent=1, ensure_ascii=False) + "\n", "utf-8")
    (folder / "bench.md").write_text(markdown(result, plots), "utf-8")
    return [folder / "bench.json", folder / "bench.md", *plots]
