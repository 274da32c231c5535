"""Progress bars on stderr, for people: in a pipe there are none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from hightide.gpu.pipelines import compiling

Tell = Callable[[int, int], None]  # (done, in all)
Unit = Literal["bytes", "tokens", "kernels", "cases", "runs", "levels"]


@contextmanager
def bar(what: str, unit: Unit) -> Iterator[Tell | None]:
    """A function to tell the progress to; the bar appears when it is first called and goes away at the end."""
    with bars() as add:
        yield add and add(what, unit)


@contextmanager
def bars() -> Iterator[Callable[[str, Unit], Tell] | None]:
    """The same for several, one below the other."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeRemainingColumn(),
    )
    shown = Progress(*columns, console=Console(stderr=True), transient=True)

    def add(what: str, unit: Unit) -> Tell:
        task = shown.add_task(what, total=None, start=False, visible=False, amount="")

        def tell(done: int, total: int) -> None:
            if not shown.live.is_started:
                shown.start()
            if shown.tasks[task].start_time is None:
                shown.start_task(task)
            amount = f"{decimal(done)} of {decimal(total)}" if unit == "bytes" else f"{done} of {total} {unit}"
            shown.update(task, completed=done, total=total, visible=True, amount=amount)

        return tell

    try:
        yield add
    finally:
        if shown.live.is_started:
            shown.stop()


@contextmanager
def loading(name: str) -> Iterator[Tell | None]:
    """The bars of a model that is loaded: its weights, and the kernels as they are compiled."""
    with bars() as add:
        if add is None:
            yield None
            return
        tell = add(f"loading {name}", "bytes")
        token = compiling.set(add("compiling", "kernels"))
        try:
            yield tell
        finally:
            compiling.reset(token)
