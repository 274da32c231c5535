"""Progress bars on stderr, for people: in a pipe there are none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Tell = Callable[[int, int], None]  # (done, in all)


@contextmanager
def bar(what: str, unit: Literal["bytes", "tokens"]) -> Iterator[Tell | None]:
    """A function to tell the progress to; the bar appears when it is first called and goes away at the end."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), amount, TimeRemainingColumn())
    shown = Progress(*columns, console=Console(stderr=True), transient=True)
    task = shown.add_task(what, total=None, start=False)

    def tell(done: int, total: int) -> None:
        if not shown.live.is_started:
            shown.start()
            shown.start_task(task)
        shown.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        if shown.live.is_started:
            shown.stop()
