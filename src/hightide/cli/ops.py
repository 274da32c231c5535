"""`hightide ops`: the supported ops, where they run, and their types and routes."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from hightide.cli.options import Json
from hightide.errors import InputError
from hightide.ops.table import count_line, op_table


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
    table = [("op", "family", "runs on", "types", "routes")]
    table += [(r.name, r.family, r.runs_on, " ".join(r.types) or "-", " ".join(r.routes) or "-") for r in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print(count_line(rows))
