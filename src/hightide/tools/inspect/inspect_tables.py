"""An inspection on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from hightide.planning.explain import HEAD, Explanation, Row
from hightide.tools.inspect.constant_list import Constant
from hightide.tools.inspect.file_report import FileReport, MethodReport, PartReport, TensorReport
from hightide.tools.inspect.listing import CallLine, layers_of
from hightide.tools.inspect.repeats import find_repeat
from hightide.tools.word_tables import WordTable, show
from hightide.units import count, counted, size

SHOWN_CONSTANTS = 8
PLAIN_WIDTH = 140  # where there is no terminal
NARROW = 100


def print_report(console: Console, report: FileReport, every: bool = False) -> None:
    """The program at a glance; `every` lists all constants."""
    about = f": {report.kind}, {size(report.bytes)}; planned for {report.target}"
    show(console, Text.assemble((report.path, "bold"), about))
    if report.metadata:
        facts = ", ".join(f"{name} {value}" for name, value in report.metadata.items())
        show(console, Text(facts, "dim"))
    for method in report.methods:
        show(console, Text())
        _print_method(console, method, every)
    if report.ops:
        show(console, Text())
        show(console, _counts("op calls", ["calls"], {op: [n] for op, n in report.ops.items()}))


def _print_method(console: Console, method: MethodReport, every: bool) -> None:
    takes = ", ".join(f"{tensor.name} {_type(tensor)}" for tensor in method.inputs)
    gives = ", ".join(_type(tensor) for tensor in method.outputs) or "nothing"
    show(console, Text.assemble((method.name, "bold cyan"), f"({takes}) -> {gives}"))
    facts = _table("", "")
    facts.add_row("varies", Text(", ".join(f"{s} up to {most}" for s, most in method.symbols.items()) or "nothing"))
    for what, kernels in (("on NumPy", method.outside), ("on the host", method.host)):
        if kernels:
            facts.add_row(what, Text(", ".join(f"{op} x{n}" for op, n in kernels.items()), "yellow"))
    if method.parts:
        calls, runs = (sum(sum(ops.values()) for ops in kinds) for kinds in _op_counts(method.parts))
        fewer = f", {runs} after fusion" if runs != calls else ""
        where = ", ".join(dict.fromkeys(part.delegate for part in method.parts))
        parts = f" in {len(method.parts)} parts" if len(method.parts) > 1 else ""
        facts.add_row("delegated", Text(f"{counted(calls, 'op call')}{parts} ({where}){fewer}"))
        facts.add_row("dispatches", Text(f"{sum(part.dispatches for part in method.parts)} at the max dims"))
    show(console, facts)
    if method.parts or method.constants:
        show(console, _memory(method))
    if method.parts:
        show(console, _ops(method.parts))
    constants = sorted((*_all_constants(method.parts), *method.constants), key=lambda c: -c.bytes)
    if constants:
        show(console, _constants(constants, every))


def _all_constants(parts: Sequence[PartReport]) -> Iterator[Constant]:
    for part in parts:
        for constant in part.constants:
            yield constant if len(parts) == 1 else replace(constant, name=f"{part.name}: {constant.name}")


def _type(tensor: TensorReport) -> str:
    return f"{tensor.dtype}[{', '.join(tensor.live)}]"


def _op_counts(parts: Sequence[PartReport]) -> tuple[list[Mapping[str, int]], list[Mapping[str, int]]]:
    return [part.ops for part in parts], [part.runs for part in parts]


def _memory(method: MethodReport) -> WordTable:
    parts = method.parts

    def total(name: str) -> int:
        return sum(getattr(part.memory, name) for part in parts)

    table = _table("memory at the max dims", ">", "")
    rows = [
        ("weights", total("weights"), "as they lie in the file"),
        ("KV and other state", total("state"), "kept between calls"),
        ("inputs", total("inputs"), ""),
        ("activations", total("activations"), f"in {counted(total('buffers'), 'buffer')} shared with scratch"),
        ("scratch", total("scratch"), "beyond the buffers of activations"),
    ]
    outside = {state: sum(c.bytes for c in method.constants if c.state == state) for state in (False, True)}
    rows = rows if parts else []
    rows += [("weights on NumPy", outside[False], "of kernels outside delegates")] if outside[False] else []
    rows += [("state on NumPy", outside[True], "of kernels outside delegates")] if outside[True] else []
    for kind, nbytes, note in rows:
        table.add_row(f"  {kind}", size(nbytes), Text(note, "dim"))
    table.add_row("  in all", Text(size(sum(nbytes for _, nbytes, _ in rows)), "bold"), "")
    if parts:
        saved = f"{size(total('views'))} by views that are no copies, {size(total('reuse'))} by reuse"
        table.add_row("  saved", size(total("views") + total("reuse")), Text(saved, "dim"))
    return table


def _ops(parts: Sequence[PartReport]) -> WordTable:
    in_file, in_runs = _op_counts(parts)
    counts: dict[str, list[int]] = {}
    for column, kinds in enumerate((in_file, in_runs)):
        for ops in kinds:
            for op, n in ops.items():
                counts.setdefault(op, [0, 0])[column] += n
    return _counts("op", ["in the file", "run"], counts)


def _counts(what: str, columns: Sequence[str], counts: Mapping[str, Sequence[int]]) -> WordTable:
    table = _table(what, *(f"{column} >" for column in columns))
    for op, numbers in counts.items():
        table.add_row(f"  {op}", *(str(n) if n else "-" for n in numbers))
    return table


def _constants(constants: Sequence[Constant], every: bool) -> WordTable:
    table = _table("constants, largest first", "type", "dims", "size >")
    shown = constants if every else constants[:SHOWN_CONSTANTS]
    for constant in shown:
        dims = ", ".join(map(str, constant.dims))
        name = Text(f"  {constant.name}") + Text(" (state)" if constant.state else "", "dim")
        table.add_row(name, constant.dtype, f"[{dims}]", size(constant.bytes))
    if len(shown) < len(constants):
        rest = constants[len(shown) :]
        table.add_row(Text(f"  and {len(rest)} more", "dim"), "", "", size(sum(c.bytes for c in rest)))
    return table


def print_graph(console: Console, title: str, lines: Sequence[CallLine], checked: int, every: bool = False) -> None:
    """The op list of a part, or the instructions of a method; layers that are alike are shown once."""
    name, _, about = title.partition(": ")
    levels = f"formulas checked at {counted(checked, 'level')}" if checked else "at its max dims: no run comes to it"
    show(console, Text.assemble((name, "bold cyan"), f": {about}; {levels}"))
    table = _table("op >", "name", "reads", "gives", lead=2)
    repeat = None if every else layers_of(lines)
    for line in lines:
        if repeat is not None and (layer := repeat.layer(line.op)) is not None:
            if layer == 0 and line.op == repeat.start:
                table.add_row("", Text(f"layer 1 of {repeat.count}", "bold"), "", "")
            if layer > 0:
                if line.op == repeat.start + repeat.period:
                    which = f"layers 2 to {repeat.count}" if repeat.count > 2 else "layer 2"
                    alike = f"{which}: the same, ops {line.op} to {repeat.end - 1}"
                    table.add_row("", Text(alike, "dim"), "", "")
                continue
            if line.op == repeat.end:
                table.add_row("", "", "", "")
        table.add_row(str(line.op), _named(console, line.name), Text(line.reads), Text(line.results, "green"))
    show(console, table)


def print_plan(console: Console, name: str, explanation: Explanation, every: bool = False) -> None:
    """The dispatches of a level, layers that are alike once, and what the routes take together."""
    show(console, Text.assemble((name, "bold cyan"), f": {explanation.summary}"))
    table = _table(*(f"{head} >" if head in ("op", "grid", "bytes", "FLOPs") else head for head in HEAD), lead=2)
    for (op, name, *cells), style in _plan_lines(explanation.rows, every):
        table.add_row(*(Text(cell, style) for cell in (op, _named(console, name), *cells)))
    show(console, table)
    show(console, _routes(explanation.rows))


def _plan_lines(rows: Sequence[Row], every: bool) -> Iterator[tuple[Sequence[str], str]]:
    repeat = None if every else find_repeat([(row.name, row.route, row.dims, row.grid) for row in rows])
    for n, row in enumerate(rows):
        layer = None if repeat is None else repeat.layer(n)
        if repeat is None or layer is None or layer == 0:
            yield row.cells(), "dim" if row.grid == (0, 0) else ""
        elif n == repeat.start + repeat.period:
            times = f"and {repeat.count - 1} times more the same" if repeat.count > 2 else "and once more the same"
            yield ["", times, "", f"ops {row.op} to {rows[repeat.end - 1].op}", "", "", ""], "dim"


def _routes(rows: Iterable[Row]) -> WordTable:
    totals: dict[str, list[int]] = {}
    for row in rows:
        if row.grid != (0, 0):
            total = totals.setdefault(row.route, [0, 0, 0])
            for n, amount in enumerate((1, row.bytes, row.flops)):
                total[n] += amount
    table = _table("route", "dispatches >", "bytes >", "FLOPs >")
    for route, (dispatches, nbytes, flops) in sorted(totals.items(), key=lambda item: -item[1][1]):
        table.add_row(route, str(dispatches), size(nbytes), count(flops))
    return table


def _named(console: Console, op: str) -> str:
    """An op's name; in a narrow window without the overload that most have."""
    return op.removesuffix(".default") if console.width < NARROW else op


def _table(*heads: str, lead: int = 1) -> WordTable:
    return WordTable(*heads, head_style="bold", lead=lead)
