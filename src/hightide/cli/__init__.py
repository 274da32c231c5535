"""The `hightide` command: results on stdout, everything else on stderr, one module per command.

A command's module is imported when that command is called, so that `hightide --help` imports none of them. Commands
read arguments and print; the work is in `tools`, `llm` and `pte`, and nothing imports this package.
"""

from __future__ import annotations

import io
import sys
import warnings
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import hightide
from hightide.errors import HightideError, error_text

COMMANDS = {
    "chat": "Chat with a model.",
    "generate": "Continue a text, or answer a message.",
    "embed": "Turn texts into vectors.",
    "serve": "Serve models over HTTP, with the API of OpenAI.",
    "web": "Export a model as a page that runs it in the browser.",
    "transcribe": "Write down what is said in a WAV file.",
    "perplexity": "Score how well a model predicts a text.",
    "run": "Run one method of a program.",
    "inspect": "Show what is in a program or model: methods, live shapes, ops, memory.",
    "adapters": "List the WebGPU adapters, best first.",
    "doctor": "Check drivers and adapters, test every kernel, and show which models fit.",
    "tune": "Measure which kernel routes are fastest on an adapter, and keep them.",
    "ops": "List the supported ops.",
    "export": "Export a torch module, or a GGUF or Whisper model, as a .pte program.",
    "pull": "Fetch a model from the Hugging Face Hub.",
    "convert": "Write a Hugging Face folder as a GGUF file.",
    "verify": "Compare the GPU with the NumPy references, op by op.",
    "profile": "Show where the time of a step goes, on the GPU and on the host.",
    "kernels": "Compile a model's kernels for a GPU that need not be there, and predict their time on it.",
    "bench": "Measure prefill and decode speed, host overhead, memory and kernels.",
}


class LazyCommands(TyperGroup):
    """Swaps the command that is called, which is only a line of help so far, for the one in its module."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name in COMMANDS else command, rest


app = typer.Typer(
    name="hightide",
    help="Run language models and ExecuTorch programs on any WebGPU adapter.",
    cls=LazyCommands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"hightide {hightide.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of `hightide` itself."""


for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(lambda: None)


def load_command(name: str) -> Any:
    """The command itself, with its options."""
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(getattr(import_module(f"hightide.cli.{name}"), name))
    return typer.main.get_command(alone)


def main() -> None:
    """The entry point: a user's error is one sentence on stderr and exit code 1."""
    warnings.showwarning = _show_warning
    if isinstance(sys.stdout, io.TextIOWrapper):  # a model may write any character, whatever a Windows pipe is set to
        sys.stdout.reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="replace")
    try:
        app()
    except (HightideError, OSError) as error:
        print(f"hightide: {error_text(error)}", file=sys.stderr)
        sys.exit(1)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"hightide: {message}", file=sys.stderr)
