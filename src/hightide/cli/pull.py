"""`hightide pull`: a model from the Hugging Face Hub."""

from __future__ import annotations

from typing import Annotated

import typer

from hightide.llm import pull as hub


def pull(
    name: Annotated[str, typer.Argument(metavar="NAME", help="OWNER/MODEL, or OWNER/MODEL:TYPE for a GGUF file.")],
    revision: Annotated[str | None, typer.Option(help="A branch, a tag or a commit. Default: the newest.")] = None,
) -> None:
    """Fetch a model from the Hugging Face Hub.

    It goes into the cache that other tools share; its path is printed.
    """
    print(hub.pull(name, revision))
