"""HTML forms for notebooks: tables that follow the notebook's own colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MOST_ROWS = 400  # a notebook with more is hard to scroll


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table with a caption; the columns in `right` are numbers."""
    body = [_row(cells, "td", right) for cells in rows]
    more = ""
    if len(body) > MOST_ROWS:
        more = f"<p>and {len(body) - MOST_ROWS} more rows</p>"
        body = body[:MOST_ROWS]
    return (
        f"<p>{escape(caption)}</p><div style='max-height:30em;overflow:auto'><table>"
        f"<thead>{_row(head, 'th', right)}</thead><tbody>{''.join(body)}</tbody></table></div>{more}"
    )


def _row(cells: Sequence[str], tag: str, right: Sequence[int]) -> str:
    def cell(n: int, text: str) -> str:
        side = "right" if n in right else "left"
        return f"<{tag} style='text-align:{side};white-space:nowrap'>{escape(text)}</{tag}>"

    return "<tr>" + "".join(cell(n, text) for n, text in enumerate(cells)) + "</tr>"
