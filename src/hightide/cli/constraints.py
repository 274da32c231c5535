"""What an answer must look like, as commands and files of prompts say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hightide.cli.options import decode_text
from hightide.errors import InputError
from hightide.llm.grammar import Grammar

# By their keys in a file of prompts.
KINDS = {
    "json_schema": Grammar.json_schema,
    "regex": Grammar.regex,
    "grammar": Grammar.lark,
    "choices": Grammar.choice,
}


def _option(*names: str, **options: Any) -> Any:
    return typer.Option(*names, rich_help_panel="What the answer looks like", **options)


@dataclass(frozen=True)
class ConstraintOptions:
    """At most one of these."""

    json_schema: Annotated[Path | None, _option(metavar="FILE", help="JSON that is valid by this JSON schema.")] = None
    regex: Annotated[str | None, _option(metavar="REGEX", help="Text that this regular expression matches.")] = None
    grammar: Annotated[Path | None, _option(metavar="FILE", help="Text by this grammar in Lark's syntax.")] = None
    choice: Annotated[list[str] | None, _option(metavar="TEXT", help="One of these texts. Repeatable.")] = None

    def read(self) -> Grammar | None:
        given = {
            "json_schema": self.json_schema and _read(self.json_schema),
            "regex": self.regex,
            "grammar": self.grammar and _read(self.grammar),
            "choices": self.choice or None,
        }
        return read_grammar({kind: value for kind, value in given.items() if value is not None})


def read_grammar(given: Mapping[str, Any]) -> Grammar | None:
    """By the one of `KINDS` that is given."""
    kinds = [kind for kind in KINDS if kind in given]
    if len(kinds) > 1:
        raise InputError(f"an answer can follow one of {' and '.join(kinds)}, not all of them")
    return KINDS[kinds[0]](given[kinds[0]]) if kinds else None


def _read(path: Path) -> str:
    return decode_text(path.read_bytes(), str(path))
