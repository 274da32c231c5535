"""What the bench measured, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hightide.gpu.limits import Limits
from hightide.tools.bench.bench_engine import short_name
from hightide.tools.bench.kernel_shares import KernelShare
from hightide.tools.bench.model_bench import ModelResult
from hightide.units import size


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def model_tables(model: ModelResult) -> list[Table]:
    """How fast it is, and what the host does."""
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
    host, start, memory = model.host, model.start, model.device_bytes
    peak = start.get("peak_host_bytes")
    facts = [
        ("dispatches a token", str(host.dispatches)),
        ("host time a step", f"{host.host_us / 1e3:.2f} ms"),
        ("encoding a step ahead", f"{host.ahead_us / 1e3:.2f} ms of another thread"),
        ("both of a step's CPU time", f"{host.share:.1%}"),
        (
            "host time a dispatch",
            f"{host.per_dispatch_us:.2f} µs of both; {host.waits_us / host.dispatches:.2f} while the GPU waits",
        ),
        ("bytes written a token", f"{host.written_bytes:.0f}"),
        ("bytes read back a token", f"{host.read_bytes:.0f}"),
        ("GPU objects made a token", f"{host.objects:g}"),
        ("to a known level", f"{host.known_level_us:.1f} µs"),
        ("to a new level", f"{host.new_level_ms:.1f} ms"),
        ("file to first token", f"{start['total_s']:.2f} s ({start['load_s']:.2f} s of it loading)"),
        ("peak host memory", size(peak) if peak else "not known here"),
        ("device memory", f"{size(sum(memory.values()))}, {size(memory['weights'])} of it weights"),
    ]
    return [*found, Table(f"{name}: the host", ("what", "measured"), facts)]


def limits_table(limits: Limits) -> Table:
    measured = [
        ("vec4 reads", f"{limits.read_gb_s:.2f} GB/s"),
        ("copy, read and written", f"{limits.copy_gb_s:.2f} GB/s"),
        ("float32 multiply-adds", f"{limits.fma_gflop_s:.1f} GFLOP/s"),
        ("an empty dispatch", f"{limits.dispatch_us:.2f} µs"),
        ("submit and wait", f"{limits.submit_us:.0f} µs"),
        ("submit, wait and read back", f"{limits.readback_us:.0f} µs"),
    ]
    return Table("What the adapter can do", ("limit", "measured"), measured)


def kernel_table(title: str, shares: Sequence[KernelShare]) -> Table:
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


def about_machine(machine: dict[str, Any], software: bool) -> list[str]:
    """Where it was measured, and how."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    by = "CPU time, since the CPU is the adapter" if software else "wall time"
    load = machine["load"], machine.get("load_after")
    return [
        f"{machine['adapter']}, {machine['driver']}, {machine['backend']}; {machine['processor']}, "
        f"{machine['cores']} cores; {versions}; {machine['when']}.",
        f"System load {load[0]} before and {load[1]} after. Figures are medians; engines are compared by {by}.",
    ]
