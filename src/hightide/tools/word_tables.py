"""Tables for windows of any width, in which no word is ever broken.

Columns give way to each other at spaces. Where even the longest words do not fit side by side, every row becomes a
few lines of its own: what it is about, then its other cells, each behind its column's name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

GAP = 2  # between columns
READABLE = 12  # a column of longer texts is not made narrower than this
INDENT = 4  # of the cells of a row that has lines of its own

WORD = re.compile(r"(\s*\S+)\s*")

Cell: TypeAlias = str | Text


def show(console: Console, *shown: RenderableType) -> None:
    """Print; a word that is longer than a line is left whole."""
    console.print(*(Words(item) if isinstance(item, Text) else item for item in shown), overflow="ignore", crop=False)


class Words:
    """A text that is broken at spaces alone."""

    def __init__(self, text: Text) -> None:
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _wrapped(self.text, options.max_width)


class WordTable:
    """A head that ends in ">" is of a column aligned to the right; `lead` columns say what a row is about."""

    def __init__(self, *heads: str, head_style: str = "dim", lead: int = 1) -> None:
        self.heads = [head.removesuffix(">").strip() for head in heads]
        self.right = [head.endswith(">") for head in heads]
        self.head_style, self.lead = head_style, lead
        self.rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: Cell, style: str = "") -> None:
        made = [cell.copy() if isinstance(cell, Text) else Text(cell) for cell in cells]
        for cell in made:
            if style:
                cell.stylize(style)
        self.rows.append((*made, *(Text() for _ in range(len(self.heads) - len(made)))))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [tuple(Text(head, self.head_style) for head in self.heads)] if any(self.heads) else []
        lines += self.rows
        widths = column_widths(lines, options.max_width)
        if widths is None:
            for row in self.rows:
                yield from self._apart(row, options.max_width)
            return
        for line in lines:
            yield from self._side_by_side(line, widths)

    def _side_by_side(self, cells: Sequence[Text], widths: Sequence[int]) -> RenderResult:
        columns = [_wrapped(cell, width, _indent(cell)) for cell, width in zip(cells, widths, strict=True)]
        for n in range(max(map(len, columns))):
            line = Text(no_wrap=True)
            for column, width, right in zip(columns, widths, self.right, strict=True):
                if not width:
                    continue
                part = column[n] if n < len(column) else Text()
                blank = " " * (width - part.cell_len)
                line.append_text(Text.assemble(blank, part) if right else Text.assemble(part, blank))
                line.append(" " * GAP)
            line.rstrip()
            yield line

    def _apart(self, row: Sequence[Text], width: int) -> RenderResult:
        about = [cell for cell in row[: self.lead] if cell.plain.strip()]
        about[1:] = [cell[_indent(cell) :] for cell in about[1:]]
        yield from _wrapped(Text(" ").join(about), width, hanging=INDENT)
        names = max((len(head) for head in self.heads[self.lead :]), default=0)
        for head, cell in zip(self.heads[self.lead :], row[self.lead :], strict=True):
            if cell.plain.strip():
                label = f"{'':{INDENT}}{head:<{names}}  " if names else " " * INDENT
                yield from _wrapped(Text.assemble((label, self.head_style), cell), width, hanging=len(label))


def column_widths(rows: Sequence[Sequence[Text]], width: int) -> list[int] | None:
    """As wide as the cells are, or narrower, down to their longest words; None if those do not fit."""
    columns = list(zip(*rows, strict=True))
    most = [max(cell.cell_len for cell in column) for column in columns]
    words = [max(_longest_word(cell) for cell in column) for column in columns]
    least = [max(word, min(whole, READABLE)) for word, whole in zip(words, most, strict=True)]
    room = width - GAP * (sum(map(bool, most)) - 1)
    if sum(least) > room:
        return None
    limit = max(most, default=0)
    while sum(fitted := [max(low, min(high, limit)) for low, high in zip(least, most, strict=True)]) > room:
        limit -= 1
    return fitted


def _indent(cell: Text) -> int:
    return len(cell.plain) - len(cell.plain.lstrip())


def _longest_word(cell: Text) -> int:
    return _indent(cell) + max((cell_len(word) for word in cell.plain.split()), default=0)


def _wrapped(text: Text, width: int, hanging: int = 0) -> list[Text]:
    """The lines of a text, broken at spaces alone; those after the first are indented."""
    lines = []
    for line in text.split("\n", allow_blank=True) if "\n" in text.plain else [text]:
        for n, part in enumerate(line.divide(_breaks(line.plain, width, hanging))):
            part.rstrip()
            part = Text.assemble(" " * hanging, part) if n else part
            part.no_wrap, part.overflow = True, "ignore"
            lines.append(part)
    return lines


def _breaks(plain: str, width: int, hanging: int) -> list[int]:
    """Where lines after the first begin."""
    found: list[int] = []
    column = 0
    for word in WORD.finditer(plain):
        length = cell_len(word.group(1))
        if column and column + length > width and plain[: word.start()].strip():
            found.append(word.start())
            column = hanging
        column += cell_len(word.group())
    return found
