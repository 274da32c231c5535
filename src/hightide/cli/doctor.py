"""`hightide doctor`: what there is to run on, what is wrong with it, and whether every kernel is right on it."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hightide.cli.options import Device, Json
from hightide.cli.progress import bar
from hightide.runtime.build import named_device
from hightide.tools.doctor.examination import Examination, SelfTest, amount, examine
from hightide.tools.doctor.fits import CONTEXT, Fit

SHOWN_FAILURES = 10


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
    console = Console(highlight=False)
    _show_system(console, report)
    for problem in report.problems:
        console.print(f"\n[{'bold red' if problem.grave else 'yellow'}]{escape(problem.what)}[/]")
        console.print(f"  fix: [bold]{escape(problem.fix)}[/]", soft_wrap=True)  # to be copied as one line
    if report.examined is None:
        console.print("\nUntil then, hightide runs on its NumPy references (--device cpu), which is slow.")
        return
    console.print(f"\n[bold]{escape(report.examined.name)}[/]")
    table = _table()
    for row in report.properties:
        table.add_row(row.name, f"[{'green' if row.good else 'yellow'}]{escape(row.value)}[/]", escape(row.meaning))
    console.print(table)
    _show_models(console, report)
    if report.self_test is not None:
        _show_self_test(console, report.self_test)


def _show_system(console: Console, report: Examination) -> None:
    system = report.system
    where = [w for w, there in (("in a container", system.container), ("in WSL", system.wsl)) if there]
    table = _table()
    table.add_row("system", escape(" ".join([system.release, system.machine, *where])))
    if system.platform == "linux":
        table.add_row("loader", escape(system.loader) or "[red]none[/]")
        usable = [driver for driver in system.drivers if not driver.problem]
        names = ", ".join(driver.file.rsplit("/", 1)[-1] for driver in usable) or "[red]none[/]"
        table.add_row("drivers", names + (f" (from {system.overridden_by})" if system.overridden_by else ""))
        for driver in system.drivers:
            if driver.problem:
                table.add_row("", f"[yellow]{escape(driver.file)}: {driver.problem}[/]")
        gpus = [f"{gpu.vendor} {gpu.node}" + ("" if gpu.allowed else " (not allowed)") for gpu in system.gpus]
        table.add_row("GPUs", escape(", ".join(gpus)) or "none that the kernel shows")
    for adapter in report.adapters:
        about = ", ".join(part for part in (adapter.kind, adapter.backend, adapter.driver) if part)
        table.add_row("adapters" if not adapter.index else "", escape(f"{adapter.index}: {adapter.name} ({about})"))
    if not report.adapters:
        table.add_row("adapters", "[red]none[/]")
    console.print(table)


def _show_models(console: Console, report: Examination) -> None:
    fitting = [model for model in report.models if model.fits]
    largest = f"the largest that fits is {fitting[-1].name}" if fitting else "none fits"
    console.print(
        f"\nModels at 4 bits with {CONTEXT} of context, in {amount(report.memory)}: [bold]{escape(largest)}[/]"
    )
    table = _table()
    for model in report.models:
        fits = "[green]fits[/]" if model.fits else "[dim]does not fit[/]"
        table.add_row(model.name, f"needs {amount(model.needs)}", fits, _remark(model))
    console.print(table)


def _remark(model: Fit) -> str:
    if not model.fits:
        return ""
    return f"at most {model.tokens_per_second:.3g} tok/s" if model.tokens_per_second else ""


def _show_self_test(console: Console, result: SelfTest) -> None:
    when = "earlier, on this driver" if result.before else f"in {result.seconds:.0f} s"
    about = f"{result.trials} cases over {result.routes} kernel routes, {when}"
    if not result.failures:
        console.print(f"\nSelf-test: [green]all right[/] ({about})")
        return
    console.print(f"\nSelf-test: [bold red]{len(result.failures)} wrong[/] ({about})")
    for _, problem in result.failures[:SHOWN_FAILURES]:
        console.print(f"  {escape(problem)}")
    if len(result.failures) > SHOWN_FAILURES:
        console.print(f"  … and {len(result.failures) - SHOWN_FAILURES} more: see --json")


def _table() -> Table:
    return Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
