"""The `hightide` command: results on stdout, everything else on stderr, one file per command."""

from __future__ import annotations

import io
import sys
import warnings
from typing import Any

import typer

from hightide.cli.adapters import adapters
from hightide.cli.bench import bench
from hightide.cli.chat import chat
from hightide.cli.doctor import doctor
from hightide.cli.export import export
from hightide.cli.generate import generate
from hightide.cli.inspect import inspect
from hightide.cli.ops import ops
from hightide.cli.perplexity import perplexity
from hightide.cli.profile import profile
from hightide.cli.run import run
from hightide.cli.tune import tune
from hightide.cli.verify import verify
from hightide.errors import HightideError

app = typer.Typer(
    name="hightide",
    help="Language models and ExecuTorch programs on any WebGPU adapter, at any live shape.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(chat)
app.command()(generate)
app.command()(perplexity)
app.command()(run)
app.command()(inspect)
app.command()(adapters)
app.command()(doctor)
app.command()(tune)
app.command()(ops)
app.command()(export)
app.command()(verify)
app.command()(profile)
app.command()(bench)


def main() -> None:
    """The entry point: a user's error is one sentence on stderr and exit code 1."""
    warnings.showwarning = _show_warning
    if isinstance(sys.stdout, io.TextIOWrapper):  # text of a model may be any, whatever a Windows pipe is set to
        sys.stdout.reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="replace")
    try:
        app()
    except (HightideError, OSError) as error:
        print(f"hightide: {error}", file=sys.stderr)
        sys.exit(1)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"hightide: {message}", file=sys.stderr)
