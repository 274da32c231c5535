"""A run of the bench as JSON, as tables for a terminal, and as Markdown with its plots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hightide.tools.bench.bench_engine import NAME, short_name
from hightide.tools.bench.goals import goals
from hightide.tools.bench.kernel_shares import KernelShare
from hightide.tools.bench.samples import Row, find_row
from hightide.tools.bench.suite import ModelResult, Result


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def as_json(result: Result) -> dict[str, Any]:
    return {
        "machine": result.machine,
        "compared_by": "cpu_ms" if result.software else "wall_ms",
        "settings": asdict(result.settings),
        "limits": asdict(result.limits),
        "models": [_model_json(model) for model in result.models],
        "matmul": [row.as_json() for row in result.matmul],
        "matmul_kernels": [asdict(share) for share in result.matmul_kernels],
        "built_for": asdict(result.built_for) if result.built_for else None,
        "shares_of_reading": result.shares,
        "goals": [{**asdict(goal), "met": goal.met} for goal in goals(result)],
        "notes": result.notes,
    }


def _model_json(model: ModelResult) -> dict[str, Any]:
    host = {**asdict(model.host), "per_dispatch_us": model.host.per_dispatch_us, "share": model.host.share}
    return {
        "name": model.name,
        "file_bytes": model.file_bytes,
        "peers": model.about,
        "rows": [row.as_json() for row in model.rows],
        "shared": [row.as_json() for row in model.shared],
        "host": host,
        "start": model.start,
        "device_bytes": model.device_bytes,
        "kernels": [asdict(share) for share in model.kernels],
    }


def tables(result: Result, kernels: bool) -> list[Table]:
    """What is shown, most important first."""
    found = []
    if wanted := goals(result):
        rows = [(d.what, d.goal, d.measured, f"{d.ratio:.2f}", "yes" if d.met else "no") for d in wanted]
        found.append(Table("Goals and measured", ("what", "goal", "measured", "ratio", "met"), rows))
    for model in result.models:
        found += _model_tables(model, result.software)
    if result.matmul:
        found.append(_matmul_table(result))
    limits = result.limits
    measured = [
        ("vec4 reads", f"{limits.read_gb_s:.2f} GB/s"),
        ("copy, read and written", f"{limits.copy_gb_s:.2f} GB/s"),
        ("float32 multiply-adds", f"{limits.fma_gflop_s:.1f} GFLOP/s"),
        ("an empty dispatch", f"{limits.dispatch_us:.2f} µs"),
        ("submit and wait", f"{limits.submit_us:.0f} µs"),
        ("submit, wait and read back", f"{limits.readback_us:.0f} µs"),
    ]
    found.append(Table("What the adapter can do", ("limit", "measured"), measured))
    if kernels:
        for model in result.models:
            found.append(_kernel_table(f"{short_name(model.name)}: its kernels", model.kernels))
        if result.matmul_kernels:
            found.append(_kernel_table("q4 matmul: its kernels", result.matmul_kernels))
    return found


def _model_tables(model: ModelResult, software: bool) -> list[Table]:
    name = short_name(model.name)
    rows = [
        (
            f"prefill {row.size}" if row.what == "prefill" else f"decode at {row.size}",
            f"{row.rate:.1f}",
            f"{row.cpu_ms:.1f}",
            f"{row.cpu_ms.low:.1f}–{row.cpu_ms.high:.1f}",
            f"{row.wall_ms:.1f}",
            str(row.cpu_ms.count),
        )
        for row in sorted(model.rows, key=lambda row: (row.what != "prefill", row.size))
    ]
    columns = ("work", "tok/s", "CPU ms", "middle half", "wall ms", "runs")
    found = [Table(f"{name} on hightide", columns, rows)]
    if model.shared:
        found.append(_peer_table(f"{name} beside its peers", model.shared, software))
    host, start, memory = model.host, model.start, model.device_bytes
    peak = start.get("peak_host_bytes")
    facts = [
        ("dispatches a token", str(host.dispatches)),
        ("host time a step", f"{host.host_us / 1e3:.2f} ms, {host.share:.1%} of its CPU time"),
        (
            "host time a dispatch",
            f"{host.per_dispatch_us:.2f} µs; {host.waits_us / host.dispatches:.2f} while the GPU waits",
        ),
        ("bytes written a token", f"{host.written_bytes:.0f}"),
        ("bytes read back a token", f"{host.read_bytes:.0f}"),
        ("GPU objects made a token", f"{host.objects:g}"),
        ("to a known level", f"{host.known_level_us:.1f} µs"),
        ("to a new level", f"{host.new_level_ms:.1f} ms"),
        ("file to first token", f"{start['total_s']:.2f} s ({start['load_s']:.2f} s of it loading)"),
        ("peak host memory", f"{peak / 1e6:.0f} MB" if peak else "not known here"),
        ("device memory", f"{sum(memory.values()) / 1e6:.0f} MB, {memory['weights'] / 1e6:.0f} of it weights"),
    ]
    return [*found, Table(f"{name}: the host", ("what", "measured"), facts)]


def _peer_table(title: str, rows: Sequence[Row], software: bool) -> Table:
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


def _kernel_table(title: str, shares: Sequence[KernelShare]) -> Table:
    columns = ("run", "kernel", "calls", "ms", "of run", "GB/s", "GFLOP/s", "bound by", "of limit")
    rows = [
        (
            k.run,
            f"{k.family}: {k.kernel}",
            str(k.calls),
            f"{k.milliseconds:.2f}",
            f"{k.part:.0%}",
            f"{k.gb_s:.2f}",
            f"{k.gflop_s:.1f}",
            k.bound_by,
            f"{k.share:.0%}",
        )
        for k in shares
    ]
    return Table(title, columns, rows)


def about_machine(result: Result) -> list[str]:
    machine = result.machine
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    by = "CPU time, since the CPU is the adapter" if result.software else "wall time"
    load = machine["load"], machine.get("load_after")
    return [
        f"{machine['adapter']}, {machine['driver']}, {machine['backend']}; {machine['processor']}, "
        f"{machine['cores']} cores; {versions}; {machine['when']}.",
        f"Load of the machine {load[0]} before and {load[1]} after. Medians; engines are compared by {by}.",
    ]


def markdown(result: Result, plots: Sequence[Path]) -> str:
    lines = ["# The bench", "", *about_machine(result), ""]
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
    from hightide.tools.bench.plots import draw

    folder.mkdir(parents=True, exist_ok=True)
    plots = draw(result, folder)
    (folder / "bench.json").write_text(json.dumps(as_json(result), indent=1, ensure_ascii=False) + "\n", "utf-8")
    (folder / "bench.md").write_text(markdown(result, plots), "utf-8")
    return [folder / "bench.json", folder / "bench.md", *plots]
