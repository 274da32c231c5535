"""Progress bars on stderr, for people: in a pipe there are none."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from hightide.gpu.pipelines import compiling

if sys.platform != "win32":
    import termios

LEAST_SHARE = 0.1  # of the work, before the time left is told
Tell = Callable[[int, int], None]  # (done, in all)
Unit = Literal["bytes", "tokens", "kernels", "cases", "runs", "levels", "answers"]


@contextmanager
def bar(what: str, unit: Unit, beside: Callable[[], str] = str) -> Iterator[Tell | None]:
    """A function to tell the progress to; the bar appears when it is first called and goes away at the end.

    `beside` gives what is shown behind the amount.
    """
    with bars() as add:
        yield add and add(what, unit, beside)


@contextmanager
def bars() -> Iterator[Callable[..., Tell] | None]:
    """The same for several, one below the other."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[amount]}", markup=False),
        RemainingTime(),
    )
    shown = Progress(*columns, console=Console(stderr=True), transient=True)
    running = ExitStack()

    def add(what: str, unit: Unit, beside: Callable[[], str] = str) -> Tell:
        task = shown.add_task(what, total=None, start=False, visible=False, amount="")

        def tell(done: int, total: int) -> None:
            if not shown.live.is_started:
                running.enter_context(unechoed())
                shown.start()
            if shown.tasks[task].start_time is None:
                shown.start_task(task)
            amount = f"{decimal(done)} of {decimal(total)}" if unit == "bytes" else f"{done} of {total} {unit}"
            shown.update(task, completed=done, total=total, visible=True, amount=amount + beside())

        return tell

    try:
        yield add
    finally:
        if shown.live.is_started:
            shown.stop()
        running.close()


class RemainingTime(ProgressColumn):
    """The time left at the speed so far, once that says something: the first pieces may be slow, or small."""

    def render(self, task: Task) -> Text:
        elapsed, done = task.elapsed or 0.0, task.completed / task.total if task.total else 0.0
        if elapsed < 1 or not LEAST_SHARE <= done < 1:
            return Text("")
        minutes, seconds = divmod(round(elapsed * (1 - done) / done), 60)
        return Text(f"{minutes}:{seconds:02} left", style="progress.remaining")


@contextmanager
def unechoed() -> Iterator[None]:
    """What is typed is not shown, which would tear the bars apart, but kept for whoever reads it next."""
    if sys.platform == "win32" or not sys.stdin or not sys.stdin.isatty():
        yield
        return
    keys = sys.stdin.fileno()
    try:
        if os.tcgetpgrp(keys) != os.getpgrp():  # in the background, whoever changes the terminal is stopped
            raise OSError
        before = termios.tcgetattr(keys)
        silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
        termios.tcsetattr(keys, termios.TCSANOW, silent)
    except (OSError, termios.error):
        yield
        return
    try:
        yield
    finally:
        termios.tcsetattr(keys, termios.TCSANOW, before)


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
