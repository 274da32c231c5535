"""`hightide doctor`: what there is to run on, what is wrong with it, and whether every kernel is right on it."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from hightide.cli.options import Device, Json
from hightide.cli.progress import bar
from hightide.cli.window import window
from hightide.runtime.build import named_device
from hightide.tools.doctor.examination import Examination, SelfTest, amount, examine
from hightide.tools.doctor.fits import CONTEXT, Fit
from hightide.tools.word_tables import WordTable, show
from hightide.units import counted

SHOWN_FAILURES = 10
PLAIN_WIDTH = 80  # of a pipe


def doctor(
    device: Device = None,
    test: Annotated[bool, typer.Option(help="Run the self-test and measure the adapter.")] = True,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Test and measure again, even if that was done on this driver before.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check drivers and adapters, test every kernel, and show which models fit.

    If there is no adapter, it explains why and how to install one.
    The exit code is 0 if an adapter was found and all its kernels are right.
    """
    selector = named_device(device)
    if selector == "cpu":
        selector = None  # the references need no doctor: the best adapter does
    with bar("testing", "cases") as tell:
        report = examine(selector, test=test, fresh=fresh, progress=tell)
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        _show(report)
    raise typer.Exit(0 if report.healthy else 1)


def _show(report: Examination) -> None:
    console = window(PLAIN_WIDTH)
    _show_system(console, report)
    for problem in report.problems:
        _say(console, f"\n[{'bold red' if problem.grave else 'yellow'}]{escape(problem.what)}[/]")
        console.print(Text.from_markup(f"  fix: [bold]{escape(problem.fix)}[/]"), soft_wrap=True)  # copied as one line
    if report.examined is None:
        _say(console, "\nUntil then, hightide runs on its NumPy references (--device cpu), which is slow.")
        return
    _say(console, f"\n[bold]{escape(report.examined.name)}[/]")
    table = WordTable("", "", "", "")
    for row in report.properties:
        _add(table, row.name, f"[{'green' if row.good else 'yellow'}]{escape(row.value)}[/]", escape(row.meaning))
    show(console, table)
    _show_models(console, report)
    if report.self_test is not None:
        _show_self_test(console, report.self_test)
    if report.wrong:
        console.print(f"\nKernels that give wrong results here: [bold red]{len(report.wrong)}[/]")
        for wrong in report.wrong[:SHOWN_FAILURES]:
            console.print(f"  {escape(str(wrong))}", soft_wrap=True)
        console.print("Sessions take other routes; an op that has none is refused. --fresh tests again.")


def _show_system(console: Console, report: Examination) -> None:
    system = report.system
    where = [w for w, there in (("in a container", system.container), ("in WSL", system.wsl)) if there]
    table = WordTable("", "", "", "")
    _add(table, "system", escape(" ".join([system.release, system.machine, *where])))
    if system.platform == "linux":
        _add(table, "loader", escape(system.loader) or "[red]none[/]")
        usable = [driver for driver in system.drivers if not driver.problem]
        names = ", ".join(driver.file.rsplit("/", 1)[-1] for driver in usable) or "[red]none[/]"
        _add(table, "drivers", names + (f" (from {system.overridden_by})" if system.overridden_by else ""))
        for driver in system.drivers:
            if driver.problem:
                _add(table, "", f"[yellow]{escape(driver.file)}: {driver.problem}[/]")
        gpus = [f"{gpu.vendor} {gpu.node}" + ("" if gpu.allowed else " (not allowed)") for gpu in system.gpus]
        _add(table, "GPUs", escape(", ".join(gpus)) or "none that the kernel shows")
    for adapter in report.adapters:
        about = ", ".join(part for part in (adapter.kind, adapter.backend, adapter.driver) if part)
        _add(table, "adapters" if not adapter.index else "", escape(f"{adapter.index}: {adapter.name} ({about})"))
    if not report.adapters:
        _add(table, "adapters", "[red]none[/]")
    show(console, table)


def _show_models(console: Console, report: Examination) -> None:
    fitting = [model for model in report.models if model.fits]
    largest = f"the largest that fits is {fitting[-1].name}" if fitting else "none fits"
    about = f"Models at 4 bits with {CONTEXT} of context, in {amount(report.memory)}"
    _say(console, f"\n{about}: [bold]{escape(largest)}[/]")
    table = WordTable("", "", "", "")
    for model in report.models:
        fits = "[green]fits[/]" if model.fits else "[dim]does not fit[/]"
        _add(table, model.name, f"needs {amount(model.needs)}", fits, _remark(model))
    show(console, table)


def _remark(model: Fit) -> str:
    if not model.fits:
        return ""
    return f"at most {model.tokens_per_second:.3g} tok/s" if model.tokens_per_second else ""


def _show_self_test(console: Console, result: SelfTest) -> None:
    when = "earlier, on this driver" if result.before else f"in {result.seconds:.0f} s"
    about = f"{counted(result.trials, 'case')} over {counted(result.routes, 'kernel route')}, {when}"
    if not result.failures:
        _say(console, f"\nSelf-test: [green]all right[/] ({about})")
        return
    _say(console, f"\nSelf-test: [bold red]{len(result.failures)} wrong[/] ({about})")
    for _, problem in result.failures[:SHOWN_FAILURES]:
        _say(console, f"  {escape(problem)}")
    if len(result.failures) > SHOWN_FAILURES:
        _say(console, f"  … and {len(result.failures) - SHOWN_FAILURES} more: see --json")


def _say(console: Console, text: str) -> None:
    show(console, Text.from_markup(text))


def _add(table: WordTable, *cells: str) -> None:
    """Cells with rich's markup."""
    table.add_row(*map(Text.from_markup, cells))
