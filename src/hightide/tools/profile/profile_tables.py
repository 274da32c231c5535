"""A profile as text: for each level a table by op and route, the totals, and what the host did."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from hightide.tools.profile.profile_data import Group, LevelProfile, ProfileData
from hightide.tools.word_tables import WordTable, show
from hightide.units import counted

# Columns after the first, with the narrowest window that shows them.
COLUMNS = (("time", 0), ("share", 0), ("calls", 64), ("GB/s", 76), ("GFLOP/s", 88), ("of limit", 48))
PLAIN_WIDTH = 100  # of a pipe
BUSY = 1.5  # processes per core that want to run
SMALL = 0.0005  # ops with less than this share of the time are put together


def as_text(profile: ProfileData, width: int = PLAIN_WIDTH) -> str:
    """Without colour."""
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    print_profile(profile, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip()


def print_profile(profile: ProfileData, console: Console) -> None:
    parts = f", {len(profile.parts)} parts" if len(profile.parts) > 1 else ""
    show(console, Text.assemble((profile.subject, "bold"), f"{parts} on {where_text(profile)}"))
    show(console, Text(f"timed by {profile.timing.value}", style="dim"))
    show(console, Text(f"the adapter's limits: {limits_text(profile)}", style="dim"))
    if busy := busy_text(profile):
        show(console, Text(busy, style="yellow"))
    for level in profile.levels:
        show(console, Text())
        for line in _level(level, console.width):
            show(console, line)


def where_text(profile: ProfileData) -> str:
    return ", ".join(filter(None, (profile.adapter, profile.driver)))  # some drivers have no name


def limits_text(profile: ProfileData) -> str:
    limits = profile.limits
    return (
        f"reads {limits.read_gb_s:.3g} GB/s, copies {limits.copy_gb_s:.3g} GB/s, {limits.fma_gflop_s:.3g} GFLOP/s, "
        f"{limits.dispatch_us:.2g} µs a dispatch"
    )


def busy_text(profile: ProfileData) -> str:
    if profile.load is None or profile.load < BUSY:
        return ""
    return f"the machine was busy ({profile.load:.1f} processes per core): times are longer than alone, more runs help"


def totals_text(level: LevelProfile) -> str:
    """The sum of the dispatches beside the step as it is without measuring."""
    step, timed, gpu = level.step_seconds, level.timed_seconds, level.gpu_seconds
    runs = counted(len(level.runs), "run")
    dispatches = counted(len(level.dispatches), "dispatch") + (" takes" if len(level.dispatches) == 1 else " take")
    cpu = ""
    if level.software:
        plain, measured = level.cpu_seconds
        cpu = f"; CPU time {duration(plain)} and {duration(measured)} ({_percent_more(measured, plain)})"
    return (
        f"{dispatches} {duration(gpu)} in all; the whole step takes {duration(step)} when "
        f"nothing is timed and {duration(timed)} when they are ({_percent_more(timed, step)}){cpu}; medians of {runs} "
        f"each, after a first step of {duration(level.first)}"
    )


def host_text(level: LevelProfile) -> str:
    return "host: " + ", ".join(f"{name} {duration(seconds)}" for name, seconds in level.host.items())


def finding_text(level: LevelProfile) -> str:
    """Where to look first."""
    if not level.dispatches:
        return "no dispatches: nothing is computed on the GPU"
    top = level.by_route()[0]
    share = top.seconds / level.gpu_seconds if level.gpu_seconds else 0.0
    at = {
        "memory": f"at {top.of_limit:.0%} of the adapter's read bandwidth",
        "arithmetic": f"at {top.of_limit:.0%} of the adapter's multiply-adds",
        "dispatch": f"little work each: empty dispatches alone would take {top.of_limit:.0%} of that",
    }[top.binding]
    return f"{share:.0%} of the time is {short(top.name)} by {top.route}, {at}"


def short(op: str) -> str:
    return op.removesuffix(".default")


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds / size < 999.5 else f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _level(level: LevelProfile, width: int) -> Iterator[RenderableType]:
    yield Text.assemble((level.name, "bold"), ": ", finding_text(level))
    if level.dispatches:
        yield _table(level, width)
    yield Text(totals_text(level))
    yield Text(host_text(level))


def _table(level: LevelProfile, width: int) -> WordTable:
    unit, size = ("ms", 1e-3) if level.gpu_seconds >= 1e-3 else ("µs", 1e-6)
    shown = [name for name, least in COLUMNS if width >= least]
    rows: list[tuple[str, list[str], str]] = []

    def add(name: str, group: Group, style: str = "") -> None:
        share = group.seconds / level.gpu_seconds if level.gpu_seconds else 0.0
        cells = {
            "time": f"{group.seconds / size:.2f}",
            "share": f"{share:.1%}",
            "calls": str(group.calls),
            "GB/s": f"{group.gb_s:.2f}",
            "GFLOP/s": f"{group.gflop_s:.2f}",
            "of limit": f"{group.of_limit:.0%} {group.binding if width >= 60 else group.binding[0]}",
        }
        rows.append((name, [cells[column] for column in shown], style))

    routes = level.by_route()
    for op in level.by_op():
        if op.seconds < SMALL * level.gpu_seconds:
            continue
        of_op = [route for route in routes if route.name == op.name]
        if len(of_op) == 1:
            add(f"{short(op.name)} · {of_op[0].route}", op)
            continue
        add(short(op.name), op)
        for route in of_op:
            add(f"  {route.route}", route, style="dim")
    small = [d for d in level.by_op() if d.seconds < SMALL * level.gpu_seconds]
    if small:
        names = {group.name for group in small}
        rest = level.group("", "", "", (d for d in level.dispatches if d.op in names))
        add(counted(len(small), "more op"), rest, style="dim")
    add("all", level.total, style="bold")
    table = WordTable("op and route", *(f"{unit if name == 'time' else name} >" for name in shown))
    for name, cells, style in rows:
        table.add_row(name, *cells, style=style)
    return table


def _percent_more(timed: float, step: float) -> str:
    if not step:
        return "no time"
    return f"{timed / step - 1:+.1%}"
