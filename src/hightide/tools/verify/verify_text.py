"""The report as text: a line per level, a table of ops, and everything known about what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from hightide.tools.verify.compare import Errors
from hightide.tools.verify.results import LevelResult, OpResult, VerifyReport
from hightide.tools.verify.side_by_side import PairedLevel
from hightide.tools.word_tables import Words, WordTable
from hightide.units import counted

GOOD, BAD, FAINT = "green", "bold red", "dim"
SHOWN = 8  # of the problems of one kind
WIDE = 80  # characters; below, tables have fewer columns
PLAIN_WIDTH = 80  # of a pipe


def render(report: VerifyReport, all_ops: bool = False, width: int = 80) -> Group:
    """The whole report, for rich; `all_ops`: every op at every level, not a line per kind."""
    narrow = width < WIDE
    parts: list[Any] = [_head(report)]
    if report.levels:
        parts += [_levels(report.levels, narrow), Text()]
        parts += [_ops(level, narrow) for level in report.levels] if all_ops else [_kinds(report.levels, narrow)]
        parts.append(Text())
    if report.pairs:
        parts += [_pairs(report, narrow), Text()]
    for level in report.levels:
        if (culprit := level.culprit) is not None:
            parts += [_culprit(level, culprit), Text()]
    parts += [Text(line, BAD) for line in _routes_and_problems(report)]
    parts += [Text(note, FAINT) for note in report.notes]
    parts.append(verdict(report))
    return Group(*(Words(part) if isinstance(part, Text) else part for part in parts))


def verdict(report: VerifyReport) -> Text:
    """One line: for `--quiet`, and at the end."""
    if report.passed:
        return Text(f"{report.file}: passed ({_amount(report)})", GOOD)
    line = f"{report.file}: FAILED"
    if (found := report.culprit) is not None:
        level, op = found
        line += f" in {op.label} at {level.name}: {op.problem}"
    elif failing := next(iter(_routes_and_problems(report)), ""):
        line += f": {failing}"
    elif pair := next((pair for pair in report.pairs if not pair.passed), None):
        line += f": {_pair_problem(report, pair)}"
    return Text(line, BAD)


def _head(report: VerifyReport) -> Text:
    beside = f"beside {report.against}" if report.against else "beside the float64 references"
    return Text(f"{report.file} on {', '.join(dict.fromkeys(report.devices))}, {beside}; seed {report.seed}\n")


def _amount(report: VerifyReport) -> str:
    parts = []
    if report.levels:
        ops = {(level.part, op.index) for level in report.levels for op in level.ops if op.alone is not None}
        routes = {r.routes for level in report.levels for op in level.ops for r in op.others}
        parts.append(f"{counted(len(ops), 'op')} at {counted(len(report.levels), 'level')}")
        if routes:
            parts.append(counted(len(routes), "other route"))
    if report.pairs:
        worst = max((e.max_rel for pair in report.pairs for e in pair.outputs), default=0.0)
        parts.append(f"at most {worst:.1e} from {report.against} at {counted(len(report.pairs), 'level')}")
    return ", ".join(parts)


# ---- tables


def _levels(levels: Sequence[LevelResult], narrow: bool) -> WordTable:
    table = _table("level", "ops >", "worst op alone", ">", "outputs >", "")
    for level in levels:
        ran = [op for op in level.ops if op.alone is not None]
        worst = max(ran, key=lambda op: _share(op), default=None)
        outputs = max((e.max_rel for e in level.outputs), default=None)
        table.add_row(
            _where(level, levels),
            str(len(ran)),
            "" if worst is None else f"{worst.index} {_short(worst.name, narrow)}",
            "" if worst is None or worst.alone is None else _number(worst.alone.max_rel),
            "" if outputs is None else _number(outputs),
            Text("ok", GOOD) if level.passed else Text("FAILED", BAD),
        )
    return table


def _kinds(levels: Sequence[LevelResult], narrow: bool) -> WordTable:
    """Ops of one name together, over all levels."""
    kinds: dict[str, list[OpResult]] = {}
    for level in levels:
        for op in level.ops:
            if op.status in ("ok", "bad"):
                kinds.setdefault(op.name, []).append(op)
    table = _table("op", "calls >", "alone >", "chained >", "allowed >", *([] if narrow else ["routes"]))
    for name, ops in kinds.items():
        alone = max((op.alone.max_rel for op in ops if op.alone is not None), default=None)
        chained = max((op.chained.max_rel for op in ops if op.chained is not None), default=None)
        routes = dict.fromkeys(route for op in ops for route in op.routes)
        table.add_row(
            Text(_short(name, narrow), BAD if any(op.status == "bad" for op in ops) else ""),
            str(len(ops)),
            "" if alone is None else _number(alone),
            "" if chained is None else _number(chained),
            _number(max(op.tolerance for op in ops)),
            *([] if narrow else [Text(", ".join(routes), FAINT)]),
        )
    return table


def _ops(level: LevelResult, narrow: bool) -> Group:
    more = ["dims", "NaN >", "allowed >", "routes"]
    table = _table("op >", "name", "alone >", "chained >", *([] if narrow else more), lead=2)
    for op in level.ops:
        if op.status == "host":
            continue
        ran = op.alone is not None
        details = (
            " ".join(_dims(dims) for dims in op.dims),
            str(op.alone.nan[0]) if op.alone is not None and op.alone.nan[0] != op.alone.nan[1] else "",
            _number(op.tolerance) if ran else "",
            Text(", ".join(dict.fromkeys(op.routes)), FAINT),
        )
        table.add_row(
            str(op.index),
            Text(_short(op.name, narrow), BAD if op.status == "bad" else "" if ran else FAINT),
            "" if op.alone is None else _number(op.alone.max_rel),
            "" if op.chained is None else _number(op.chained.max_rel),
            *([] if narrow else details),
        )
    return Group(Words(Text(f"{level.part} at {level.name}")), table)


def _pairs(report: VerifyReport, narrow: bool) -> Group:
    table = _table("level", "outputs >", "allowed >", "first op that differs", ">", "")
    for pair in report.pairs:
        first = pair.first_bad
        table.add_row(
            pair.name,
            _number(max((e.max_rel for e in pair.outputs), default=0.0)),
            _number(pair.tolerance),
            "" if first is None else f"{first.index} {_short(first.name, narrow)}",
            "" if first is None else _number(first.errors.max_rel),
            Text("ok", GOOD) if pair.passed else Text("FAILED", BAD),
        )
    notes = dict.fromkeys(pair.note for pair in report.pairs if pair.note)
    lines = [Words(Text(f"not compared op by op: {note}", FAINT)) for note in notes]
    return Group(Words(Text(f"beside {report.against}:")), table, *lines)


# ---- what is wrong


def _culprit(level: LevelResult, op: OpResult) -> Group:
    rows = [("routes", ", ".join(op.routes))] if op.routes else []
    if op.dims:
        rows.append(("output", " ".join(_dims(dims) for dims in op.dims)))
    rows.append(("wrong", op.problem))
    if op.alone is not None:
        rows += _error_rows(op.alone, op.tolerance)
    if op.chained is not None:
        rows.append(("chained", f"{_number(op.chained.max_rel)} after the ops before it"))
    good = [route for route in op.others if not route.problem]
    if good:
        rows.append(("but right", ", ".join(f"on the route {route.choice}={route.option}" for route in good)))
    rows += [("note", hint) for hint in op.hints]
    table = WordTable("", "")
    for name, text in rows:
        table.add_row(Text(f"  {name}", FAINT), text)
    where = f"at {level.name}" + (f" on {level.device}" if level.device else "")
    title = Words(Text(f"{op.label} of {level.part} is wrong by itself {where}:", BAD))
    return Group(title, table)


def _error_rows(errors: Errors, tolerance: float) -> list[tuple[str, str]]:
    rows = []
    if errors.box:
        rows.append(("where", "[" + ", ".join(f"{a}" if a == b else f"{a}..{b}" for a, b in errors.box) + "]"))
    if errors.worst is not None:
        rows.append(
            (
                "worst",
                f"{list(errors.worst)}: {errors.got:.7g}, expected {errors.want:.7g};"
                f" {_number(errors.max_rel)} of its row's largest, {_number(tolerance)} allowed",
            )
        )
    rows.append(("error", f"at most {_number(errors.max_abs)}, rms {_number(errors.rms)} of the values' own"))
    if any(errors.nan) or any(errors.inf):
        nan, inf = errors.nan, errors.inf
        rows.append(("NaN, inf", f"{nan[0]} and {inf[0]}, expected {nan[1]} and {inf[1]}"))
    return rows


def _routes_and_problems(report: VerifyReport) -> Iterable[str]:
    for level in report.levels:
        where = f"at {level.name}"
        yield from (f"{problem} ({where})" for problem in level.problems)
        for op, route in list(level.bad_routes)[:SHOWN]:
            off = "" if route.errors is None else f", {_number(route.errors.max_rel)} off"
            yield (
                f"{op.label} on the route {route.choice}={route.option} ({', '.join(route.routes)}) {where}:"
                f" {route.problem}{off}"
            )


def _pair_problem(report: VerifyReport, pair: PairedLevel) -> str:
    worst = max(e.max_rel for e in pair.outputs)
    first = pair.first_bad
    since = "" if first is None else f", from op {first.index} ({first.name}) on"
    return f"{_number(worst)} from {report.against} at {pair.name}{since}"


# ---- words and numbers


def _table(*heads: str, lead: int = 1) -> WordTable:
    return WordTable(*heads, head_style=FAINT, lead=lead)


def _where(level: LevelResult, levels: Sequence[LevelResult]) -> str:
    several = len({other.part for other in levels}) > 1
    devices = len({other.device for other in levels}) > 1
    return " ".join(filter(None, (level.part if several else "", level.name, level.device if devices else "")))


def _share(op: OpResult) -> float:
    """How much of what it is allowed an op takes."""
    if op.alone is None:
        return 0.0
    return op.alone.max_rel / op.tolerance if op.tolerance else float(op.alone.max_rel > 0)


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}"


def _short(name: str, narrow: bool) -> str:
    name = name.removesuffix(".default")
    return name.split(".", 1)[-1] if narrow else name


def _dims(dims: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"
