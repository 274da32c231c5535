"""What the user types: lines of a terminal with editing and history, or lines of a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from hightide.cli.options import decode_text, note
from hightide.folders import state_folder

HISTORY = "history"


def is_interactive() -> bool:
    """Whether somebody sits there: stdin is a terminal, and there is one to write the prompt to."""
    return sys.stdin.isatty() and (sys.stderr.isatty() or sys.stdout.isatty())


def typed_lines(commands: Sequence[str]) -> Iterator[str]:
    """Until Ctrl-D. Ctrl-C drops the line, Alt-Enter begins a new one within it, Tab completes commands."""
    session = _prompt_session(commands)
    while True:
        try:
            yield session.prompt()
        except EOFError:
            return
        except KeyboardInterrupt:
            note("press Ctrl-D or type /quit to quit")


def piped_lines() -> Iterator[str]:
    for line in sys.stdin.buffer:
        yield decode_text(line, "the input").rstrip("\r\n")


def _prompt_session(commands: Sequence[str]) -> Any:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.output import create_output

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    path = state_folder() / HISTORY
    history: History = InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
        history = FileHistory(str(path))
    except OSError:  # a home that cannot be written: no history after this run
        pass
    return PromptSession(
        "> ",
        history=history,
        key_bindings=keys,
        completer=WordCompleter(list(commands), sentence=True),
        complete_while_typing=False,
        # stdout is for answers alone
        output=create_output(stdout=sys.stderr if sys.stderr.isatty() else sys.stdout),
    )
