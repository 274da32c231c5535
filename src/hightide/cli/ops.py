"""`hightide ops`: the supported ops, where they run, and their types and routes."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer
from rich.text import Text

from hightide.cli.options import Json
from hightide.cli.window import window
from hightide.errors import InputError
from hightide.ops.table import count_line, op_table
from hightide.tools.word_tables import WordTable, show

PLAIN_WIDTH = 1000  # of a pipe: one line per op, for grep


def ops(
    only: Annotated[
        str,
        typer.Argument(
            metavar="FILTER", help="Only ops with this in their name, family or routes.", show_default=False
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """List the supported ops.

    With the family of each, where it runs, and the types and routes that its test cases cover.
    """
    part = only.lower()
    rows = [row for row in op_table() if any(part in text.lower() for text in (row.name, row.family, *row.routes))]
    if not rows:
        raise InputError(f"no op has {only!r} in its name, family or routes; `hightide ops` lists them all")
    if as_json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
        return
    table = WordTable("op", "family", "runs on", "types", "routes", head_style="bold")
    for r in rows:
        table.add_row(r.name, r.family, r.runs_on, " ".join(r.types) or "-", " ".join(r.routes) or "-")
    show(window(PLAIN_WIDTH), table, Text(count_line(rows)))
